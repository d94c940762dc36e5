"""Typed readers of environment variables for settings.py; a bad value fails loudly and names the variable."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

TRUE = {"1", "true", "yes", "on"}
FALSE = {"0", "false", "no", "off", ""}


def env(name: str, default: str = "") -> str:
    return os.environ.get(name, "").strip() or default


def env_bool(name: str, default: bool) -> bool:
    value = env(name, str(default)).lower()
    if value in TRUE:
        return True
    if value in FALSE:
        return False
    raise ImproperlyConfigured(f"{name} must be true or false, not {value!r}")


def env_int(name: str, default: int, low: int = 0, high: int = 2**63 - 1) -> int:
    value = env(name, str(default))
    try:
        number = int(value)
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a whole number, not {value!r}")
    if not low <= number <= high:
        raise ImproperlyConfigured(f"{name} must be between {low} and {high}, not {number}")
    return number


def env_choice(name: str, default: str, choices: list[str]) -> str:
    value = env(name, default).upper()
    if value not in choices:
        raise ImproperlyConfigured(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    return value


def env_url(name: str, default: str, schemes: tuple[str, ...]) -> str:
    """A URL with a host, of one of the schemes; the message shows no password."""
    value = env(name, default)
    try:
        parts = urlsplit(value.partition(",")[0])  # some take several hosts
        good = parts.scheme in schemes and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        raise ImproperlyConfigured(f"{name} must be like {schemes[0]}://host:port")
    return value


def env_list(name: str) -> list[str]:
    return [part.strip() for part in env(name).split(",") if part.strip()]


def postgres_settings(url: str) -> dict:
    """Django's DATABASES entry for `postgresql://user:password@host:port/name?option=value`."""
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise ImproperlyConfigured(f"DATABASE_URL must begin with postgresql://, not {parts.scheme or 'nothing'}")
    options = dict(pair.split("=", 1) for pair in parts.query.split("&") if "=" in pair)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")) or "mlp",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 600,
        "CONN_HEALTH_CHECKS": True,
        # A lock that is not had within the time is a fault to report, not a reason to hang for ever.
        "OPTIONS": {
            "connect_timeout": 5,
            "options": "-c lock_timeout=15s -c statement_timeout=120s -c idle_in_transaction_session_timeout=120s",
            **options,
        },
    }

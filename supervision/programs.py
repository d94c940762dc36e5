"""Versions of the programs beside Python. Shown in the operators' overview (mlp.operators.machine)."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured

from runners import confine

from . import nginx
from .binaries import version_of

LIMIT_S = 10  # a busy machine starts programs slowly


def nginx_version() -> str:
    """Return the gateway's version; "" where there is none, as on a machine that runs other parts only."""
    try:
        return _version(nginx.nginx(), "-v")
    except ImproperlyConfigured:
        return ""


def bubblewrap_version() -> str:
    """Return the version of the preferred bubblewrap; "" where there is none."""
    paths = confine.bwraps()
    return _version(paths[0], "--version") if paths else ""


def _version(program: str, option: str) -> str:
    """Return the program's version; "" when it prints none, and then the next call asks again."""
    try:
        return version_of(program, option, LIMIT_S)
    except LookupError:
        return ""

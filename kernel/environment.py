"""Settings read from environment variables, each declared with its default, unit and meaning where it is read.

`Section` reads and declares; tools/settings.py writes docs/settings.md from what was declared. A bad value raises
ImproperlyConfigured with the variable's name.
"""

from __future__ import annotations

import hmac
import importlib.util
import ipaddress
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

TRUE = {"1", "true", "yes", "on"}
FALSE = {"0", "false", "no", "off", ""}
HIGHEST = 2**63 - 1
ROOT = Path(__file__).resolve().parent.parent
MASK = "********"


def env(name: str, default: str = "") -> str:
    """Return the variable without surrounding blanks, the default when it is unset or empty."""
    return os.environ.get(name, "").strip() or default


def without(extra: str, module: str) -> str:
    """Return how the packages of an extra are installed where its module is missing, "" where it is there."""
    if importlib.util.find_spec(module) is not None:
        return ""
    return f"packages that are not installed; run: {sys.executable} -m pip install {packages_of(extra)}"


def packages_of(extra: str) -> str:
    """Return the arguments by which pip installs the packages of an extra."""
    file = ROOT / f"requirements-{extra}.txt"  # of a checkout; an installed package knows its extras by name
    return f"-r {file}" if file.exists() else f"'mlp-platform[{extra}]'"


def require(setting: str, extra: str, module: str) -> None:
    """Raise ImproperlyConfigured where a setting needs the packages of an extra that is not installed."""
    if missing := without(extra, module):
        raise ImproperlyConfigured(f"{setting} needs {missing}")


@dataclass(frozen=True)
class Setting:
    """A declared variable: what docs/settings.md says of it."""

    name: str
    default: str
    unit: str
    help: str


class Secret:
    """The text of a secret setting. It is masked wherever it is printed, formatted or logged; `reveal` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str = ""):
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return MASK if self else "''"

    def __reduce__(self):
        raise TypeError("a secret cannot be pickled")

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict) -> Secret:
        return self


class Section:
    """A group of settings with a heading in docs/settings.md; its methods read variables and declare them.

    `help` says what the setting means. `shown` is the default as the documentation shows it, where it depends on other
    settings; `unit` is that of a number.
    """

    def __init__(self, title: str):
        self.title = title
        self.settings: dict[str, Setting] = {}

    def text(self, name: str, default: str = "", *, help: str, shown: str = "", unit: str = "") -> str:
        self.settings[name] = Setting(name, shown or default, unit, help)
        return env(name, default)

    def program(self, name: str, default: str, *, help: str, shown: str = "") -> str:
        """Return the absolute path of a program that this user may execute."""
        value = self.text(name, default, help=help, shown=shown)
        if not (os.path.isabs(value) and os.path.isfile(value) and os.access(value, os.X_OK)):
            raise ImproperlyConfigured(f"{name} must be the absolute path of a program, not {value!r}")
        return value

    def secret(self, name: str, *, help: str) -> Secret:
        """Return a text that is never shown."""
        return Secret(self.text(name, help=help))

    def variant(self, name: str, default: str) -> str:
        """Return a variable of a family, such as one for each provider, that the help of a declared one describes."""
        return env(name, default)

    def flag(self, name: str, default: bool, *, help: str) -> bool:
        value = self.text(name, str(default).lower(), help=help).lower()
        if value not in TRUE | FALSE:
            raise ImproperlyConfigured(f"{name} must be true or false, not {value!r}")
        return value in TRUE

    def integer(
        self, name: str, default: int, low: int = 0, high: int = HIGHEST, *, help: str, shown: str = "", unit: str = ""
    ) -> int:
        value = self.text(name, str(default), help=help, shown=shown, unit=unit)
        try:
            number = int(value)
        except ValueError:
            raise ImproperlyConfigured(f"{name} must be a whole number, not {value!r}")
        if not low <= number <= high:
            raise ImproperlyConfigured(f"{name} must be between {low} and {high}, not {number}")
        return number

    def choice(self, name: str, default: str, choices: Sequence[str], *, help: str) -> str:
        """Return one of the choices, however the variable spells its case."""
        value = self.text(name, default, help=help)
        known = {choice.lower(): choice for choice in choices}
        if value.lower() not in known:
            raise ImproperlyConfigured(f"{name} must be one of {', '.join(choices)}, not {value!r}")
        return known[value.lower()]

    def url(
        self, name: str, schemes: Sequence[str], default: str = "", *, help: str, shown: str = "",
        extra: tuple[str, str] | None = None,
    ) -> str:  # fmt: skip
        """Return a URL of one of the schemes with a host (or a path: unix, file), or "" when there is none.

        The error shows no password. `extra` names the extra that a URL needs, and a module of it.
        """
        value = self.text(name, default, help=help, shown=shown)
        if value and not _is_url(value.partition(",")[0], schemes):  # some take several hosts
            raise ImproperlyConfigured(f"{name} must be like {schemes[0]}://host:port")
        if value and extra:
            require(name, *extra)
        return value

    def items(self, name: str, *, help: str, shown: str = "", default: str = "") -> list[str]:
        """Return the parts of a value that is separated by commas."""
        return [part.strip() for part in self.text(name, default, help=help, shown=shown).split(",") if part.strip()]

    def urls(self, name: str, schemes: Sequence[str], *, help: str) -> list[str]:
        """Return URLs of the schemes, separated by commas. The error shows none of them: they may have passwords."""
        parts = self.items(name, help=help)
        for part in parts:
            if not _is_url(part, schemes) or " " in part:
                raise ImproperlyConfigured(f"{name} must be like {schemes[0]}://host:port, separated by commas")
        return parts

    def networks(self, name: str, *, help: str) -> list[str]:
        """Return the IP addresses and networks of a value that is separated by commas."""
        try:
            return [str(ipaddress.ip_network(part)) for part in self.items(name, help=help)]
        except ValueError as problem:
            raise ImproperlyConfigured(f"{name} must be IP addresses or networks: {problem}")


def _is_url(value: str, schemes: Sequence[str]) -> bool:
    """Return whether it is a URL of one of the schemes with a host (or a path: unix, file). A password with a `#` or
    `/` that is not encoded makes it none: programs would take its begin for the port, and print it.
    """
    try:
        parts = urlsplit(value)
        place = parts.path if parts.scheme in ("unix", "file") else parts.hostname
        return parts.scheme in schemes and bool(place) and parts.port != 0
    except ValueError:
        return False


def default_root(base: Path) -> Path:
    """Return where data is kept unless MLP_ROOT says otherwise, for the code below `base`.

    `var` in a checkout. Where pip has installed the code, `mlp` in the user's data folder ($XDG_DATA_HOME, else
    ~/.local/share): site-packages is replaced by every upgrade. Raises ImproperlyConfigured without a home.
    """
    if (base / "pyproject.toml").exists():
        return base / "var"
    try:
        return Path(env("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "mlp"
    except RuntimeError:
        raise ImproperlyConfigured(
            f"The user id {os.geteuid()} has no home on this machine: set MLP_ROOT, the folder for the data."
        ) from None


def default_run_python(base: Path) -> str:
    """Return the interpreter of runs unless MLP_RUN_PYTHON says otherwise: that of `.runs-venv` beside the code below
    `base`, which `make venv` makes, else the platform's own.
    """
    python = base / ".runs-venv" / "bin" / "python"
    return str(python) if python.exists() else sys.executable


def usable(root: Path) -> None:
    """Create the storage root. Raises ImproperlyConfigured, with what to do, where this user cannot write there: a new
    volume often belongs to root.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        problem = "" if os.access(root, os.W_OK | os.X_OK) else "it is not writable"
    except OSError as error:
        problem = str(error.strerror)
    if problem:
        parent = next(path for path in (root, *root.parents) if path.exists())
        info, user, group = parent.stat(), os.geteuid(), os.getegid()
        raise ImproperlyConfigured(
            f"MLP_ROOT: {root} cannot be used by user {user}: {problem}; {parent} belongs to user {info.st_uid}, mode "
            f"{info.st_mode & 0o7777:o}. As its owner or root run: chown {user}:{group} {parent}"
        )


def host_of(netloc: str) -> str:
    """Return the host of an address; a folder of sockets is written with percent signs (`%2Frun%2Fpostgresql`)."""
    host = netloc.rpartition("@")[2]
    return unquote(re.sub(r":\d*$", "", host).strip("[]"))


def postgres_settings(url: str) -> dict:
    """Return Django's DATABASES entry for `postgresql://user:password@host:port/name?option=value`."""
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise ImproperlyConfigured(f"DATABASE_URL must begin with postgresql://, not {parts.scheme or 'nothing'}")
    options = dict(pair.split("=", 1) for pair in parts.query.split("&") if "=" in pair)
    return {
        "ENGINE": "kernel.postgres",
        "NAME": unquote(parts.path.lstrip("/")) or "mlp",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host_of(parts.netloc),
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 600,
        "CONN_HEALTH_CHECKS": True,
        # A lock that is not obtained in time is an error to report, not a reason to hang.
        "OPTIONS": {
            "connect_timeout": 5,
            "options": "-c lock_timeout=15s -c statement_timeout=120s -c idle_in_transaction_session_timeout=120s",
            **options,
        },
    }

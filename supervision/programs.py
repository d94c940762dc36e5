"""What the programs beside Python say of their versions. Asked by the operators' overview (mlp.operators.machine)."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured

from runners import confine

from . import nginx
from .binaries import version_of

LIMIT_S = 10  # a busy machine takes its time to start a program


def nginx_version() -> str:
    """Of the gateway's; "" where there is none, as on a machine that runs other parts only."""
    try:
        return _version(nginx.nginx(), "-v")
    except ImproperlyConfigured:
        return ""


def bubblewrap_version() -> str:
    """Of the one that would be taken first; "" where there is none."""
    found = confine.bwraps()
    return _version(found[0], "--version") if found else ""


def _version(program: str, option: str) -> str:
    """The program's version; "" when it says none, and then it is asked again next time."""
    try:
        return version_of(program, option, LIMIT_S)
    except LookupError:
        return ""

"""The folders of the user that the clients write to, by the XDG base directory specification."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import LOCAL, Failure


def folder(variable: str, default: str) -> Path:
    """Return the clients' folder below an XDG base directory. Raises Failure for a user id without a home directory, as
    in many containers.
    """
    base = os.environ.get(variable)
    if base:
        return Path(base) / "mlp"
    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        raise Failure(LOCAL, f"no home directory; set HOME or {variable}")
    return Path(home) / default / "mlp"

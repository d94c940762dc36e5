"""The folders of the user that the clients write to, by the XDG base directory specification."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import LOCAL, Failure


def folder(variable: str, default: str) -> Path:
    """Return the clients' folder below an XDG base directory. Raises Failure for a user without a home folder, as in a
    container with any user id.
    """
    base = os.environ.get(variable)
    if base:
        return Path(base) / "mlp"
    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        raise Failure(LOCAL, f"there is no home folder to write to; set HOME or {variable}")
    return Path(home) / default / "mlp"

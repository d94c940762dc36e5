"""Which browser the tests use: Chromium's headless shell, which draws no window and so is lighter, else Chromium."""

from __future__ import annotations

import shutil

PROGRAMS = ("chromium-headless-shell", "chromium")
MISSING = f"no browser is installed ({' or '.join(PROGRAMS)}): the browser tests are left out"


def program() -> str | None:
    """Return the browser's path; None where none is installed."""
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)

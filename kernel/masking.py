"""Environment variables whose names look secret: their values are shown only in the owner's form."""

from __future__ import annotations

import re

SECRET = re.compile(r"pass|secret|token|credential|(^|_)(key|pwd|auth|dsn|cookie)(_|$)|api_?key|private", re.IGNORECASE)
HIDDEN = "••••••"


def masked(env: dict[str, str]) -> dict[str, str]:
    """Return the variables; the values of names that look secret are hidden."""
    return {name: HIDDEN if SECRET.search(name) and value else value for name, value in env.items()}

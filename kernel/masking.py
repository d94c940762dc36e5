"""Environment variables whose names look secret, and what stands before the host of an address: they are shown only in
the owner's form.
"""

from __future__ import annotations

import re

SECRET = re.compile(r"pass|secret|token|credential|(^|_)(key|pwd|auth|dsn|cookie)(_|$)|api_?key|private", re.IGNORECASE)
HIDDEN = "••••••"
CREDENTIALS = re.compile(r"(?<=://)(?!git@)[^\s/@]+(?=@)")


def masked(env: dict[str, str]) -> dict[str, str]:
    """Return the variables; the values of names that look secret are hidden."""
    return {name: HIDDEN if SECRET.search(name) and value else value for name, value in env.items()}


def without_credentials(text: str) -> str:
    """Return the text; users, passwords and tokens in addresses are hidden."""
    return CREDENTIALS.sub(HIDDEN, text)

"""The choice of an application's port: a free one of the contract's range, at random. Called by lifecycle.

On a cluster the application listens on it in its pod. On one machine it only belongs to the row.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection

from .models import PORTS


def choose(taken: Collection[int]) -> int | None:
    """Return a port that is not `taken`; None when all are taken."""
    free = [port for port in PORTS if port not in taken]
    return secrets.choice(free) if free else None

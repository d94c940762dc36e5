"""What is served before queued jobs when resources become free.

Jobs end by themselves, so they can wait for what does not; the apps of the latter are above `jobs` and register here
what admits their own queues.
"""

from __future__ import annotations

from collections.abc import Callable

from kernel import healing

FIRST: list[Callable[[], object]] = []


def register(admit: Callable[[], object]) -> None:
    """Have `admit` called before queued jobs are admitted."""
    FIRST.append(admit)


def serve() -> None:
    """Admit what comes before jobs. A failure is logged, and jobs go on."""
    for admit in FIRST:
        healing.attempt(admit)

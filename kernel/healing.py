"""Work on many objects in which one failure does not stop the others. Used by each reconcile.

A round that ended at the first row it cannot heal would never reach the rows behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

log = logging.getLogger(__name__)


def attempt(work: Callable, *what) -> None:
    """Call `work(*what)`. Whatever it raises is logged; the next round tries again."""
    try:
        work(*what)
    except Exception as problem:
        # a traceback adds nothing when a server is unavailable, and many objects may need it
        trace = None if getattr(problem, "passes", False) else problem
        log.error("%s %s: %s; trying again", _name(work), what, problem or type(problem).__name__, exc_info=trace)


def each(work: Callable, items: Iterable) -> None:
    """Call `attempt` for each of the items."""
    for item in items:
        attempt(work, item)


def _name(work: Callable) -> str:
    owner = getattr(work, "__self__", None)
    if owner is not None:  # a method: its class says more than its module
        return f"{type(owner).__module__}.{type(owner).__qualname__}.{work.__name__}"
    return f"{work.__module__}.{getattr(work, '__qualname__', work)}"

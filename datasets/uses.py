"""Who uses a dataset now, so that it is not deleted under them. Apps above register how to find out (`apps.py`)."""

from __future__ import annotations

from collections.abc import Callable

from kernel.locking import WrongState

from .models import Dataset

Finder = Callable[[Dataset], WrongState | None]

_finders: list[Finder] = []


def register(finder: Finder) -> None:
    """Add a function that returns why the locked dataset must stay, None where it need not."""
    if finder not in _finders:
        _finders.append(finder)


def require_unused(dataset: Dataset) -> None:
    """Raise WrongState, which names the user of the dataset, if there is one. Call it with the dataset's row locked:
    a job that is created meanwhile waits for that lock (`sources.hold`).
    """
    for finder in _finders:
        if (refusal := finder(dataset)) is not None:
            raise refusal

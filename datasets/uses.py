"""What uses a dataset: now, so that it is not deleted meanwhile, and at any time, to be shown.

Apps above register how to find out (`apps.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from django.utils.translation import gettext_lazy as _

from kernel.locking import WrongState

from .models import Dataset

KINDS = {
    "job": _("Job"), "model": _("Model"), "sweep": _("Sweep"), "schedule": _("Schedule"), "pipeline": _("Pipeline")
}  # fmt: skip


@dataclass(frozen=True)
class Use:
    """An object that reads, has read or will read a dataset: its `kind` (job, model, sweep, schedule or pipeline), its
    owner and state ("" for one without a lifecycle), and since when it exists.
    """

    kind: str
    user: str
    name: str
    state: str
    state_word: str
    created: datetime

    @property
    def kind_word(self) -> str:
        """Return the kind in the reader's language."""
        return KINDS[self.kind]


Target = tuple[Dataset, int | None]  # a dataset, or the version of it with that number
Finder = Callable[[Sequence[Target]], dict[Target, WrongState]]
Lister = Callable[[Dataset, int], Iterable[Use]]

_finders: list[Finder] = []
_listers: list[Lister] = []


def register(finder: Finder) -> None:
    """Add a function that returns why datasets of one owner, or versions of one, must stay."""
    if finder not in _finders:
        _finders.append(finder)


def register_lister(lister: Lister) -> None:
    """Add a function that returns the newest uses of a dataset, at most so many of a kind."""
    if lister not in _listers:
        _listers.append(lister)


def require_unused(dataset: Dataset, version: int | None = None) -> None:
    """Raise WrongState, which names the user of the dataset, or of its version of a number, if any.

    Call it with the dataset's row locked: a job that is created meanwhile waits for that lock (`sources.hold`).
    """
    if (refusal := _refusals([(dataset, version)]).get((dataset, version))) is not None:
        raise refusal


def refusals(datasets: Sequence[Dataset]) -> dict[int, WrongState]:
    """Return why datasets of one owner must stay, by primary key: one question to each kind of user for all of them."""
    return {dataset.pk: refusal for (dataset, _), refusal in _refusals([(each, None) for each in datasets]).items()}


def refusals_of_versions(dataset: Dataset, numbers: Sequence[int]) -> dict[int, WrongState]:
    """Return why versions of a dataset must stay, by number."""
    return {number: refusal for (_, number), refusal in _refusals([(dataset, each) for each in numbers]).items()}


def _refusals(targets: Sequence[Target]) -> dict[Target, WrongState]:
    reasons: dict[Target, WrongState] = {}
    for dataset, version in targets:
        if version is None and dataset.incoming_id is not None:
            refusal = WrongState("another version of the dataset %(name)s is being published", name=dataset.name)
            reasons[dataset, version] = refusal
    for finder in _finders:
        if left := [target for target in targets if target not in reasons]:
            reasons |= finder(left)
    return reasons


def newest(dataset: Dataset, most: int) -> list[Use]:
    """Return the newest uses of a dataset, at most so many, of all kinds."""
    uses = [use for lister in _listers for use in lister(dataset, most)]
    return sorted(uses, key=attrgetter("created"), reverse=True)[:most]

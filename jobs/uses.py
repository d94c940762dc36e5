"""The jobs that use a dataset (datasets.uses)."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q

from datasets import sources
from datasets.models import Dataset
from datasets.uses import Use
from kernel.locking import WrongState

from .models import Job, State

LIVE = (State.CREATING, State.RUNNING)


def of_datasets(datasets: Sequence[Dataset], version: int | None) -> dict[int, WrongState]:
    """Return which datasets of one owner a job uses, or may read that version of. A job of another user counts as long
    as the dataset is shared with them.
    """
    own, shared = {}, {}
    for dataset, spelled in sources.all_spellings(datasets, version).items():
        own |= dict.fromkeys(spelled[0], dataset)
        shared |= dict.fromkeys(spelled[1], dataset)
    reading = Q(user=datasets[0].user_id, datasets__has_any_keys=list(own)) | Q(datasets__has_any_keys=list(shared))
    found: dict[int, WrongState] = {}
    readable: dict[tuple[int, str], bool] = {}
    for job in Job.objects.filter(reading, state__in=LIVE).select_related("user").order_by("pk"):
        is_own = job.user_id == datasets[0].user_id
        for dataset in filter(None, map((own if is_own else shared).get, job.datasets)):
            if dataset.pk in found:
                continue
            if is_own:
                refusal = WrongState(
                    "the job %(name)s uses this dataset; cancel it or wait until it has ended", name=job.name
                )
            elif _is_readable(job, dataset, readable):
                refusal = WrongState(
                    "the job %(name)s of %(user)s uses this dataset; stop sharing it or wait until the job has ended",
                    name=job.name, user=job.user.username,
                )  # fmt: skip
            else:
                continue
            found[dataset.pk] = refusal
    return found


def _is_readable(job: Job, dataset: Dataset, known: dict[tuple[int, str], bool]) -> bool:
    """Return whether the dataset of another user is still shared with the job's; `known` are earlier answers."""
    key = (job.user_id, f"{dataset.user.username}/{dataset.name}")
    if key not in known:
        known[key] = not sources.missing(job.user, [key[1]])
    return known[key]


def newest(dataset: Dataset, most: int) -> list[Use]:
    """Return the newest jobs that were submitted with the dataset, also by those with whom it is shared."""
    rows = Job.kept.filter(_reads(dataset), created__gte=dataset.created).select_related("user").order_by("-pk")
    return [
        Use("job", job.user.username, job.name, job.shown_state, job.shown_state_word, job.created)
        for job in rows[:most]
    ]


def _reads(dataset: Dataset, version: int | None = None) -> Q:
    own, shared = sources.spellings(dataset, version)
    return Q(user=dataset.user_id, datasets__has_any_keys=own) | Q(datasets__has_any_keys=shared)

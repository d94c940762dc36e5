"""The jobs that use a dataset (datasets.uses)."""

from __future__ import annotations

from django.db.models import Q

from datasets import sources
from datasets.models import Dataset
from datasets.uses import Use
from kernel.locking import WrongState

from .models import Job, State

LIVE = (State.CREATING, State.RUNNING)


def of_dataset(dataset: Dataset, version: int | None) -> WrongState | None:
    """Return that a job uses the dataset, or may read that version of it. One of another user counts as long as the
    dataset is shared with them.
    """
    for job in Job.objects.filter(_reads(dataset, version), state__in=LIVE).select_related("user").order_by("pk"):
        if job.user_id == dataset.user_id:
            return WrongState("the job %(name)s uses this dataset; cancel it or wait until it has ended", name=job.name)
        if not sources.missing(job.user, [f"{dataset.user.username}/{dataset.name}"]):
            return WrongState(
                "the job %(name)s of %(user)s uses this dataset; stop sharing it or wait until the job has ended",
                name=job.name, user=job.user.username,
            )  # fmt: skip
    return None


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

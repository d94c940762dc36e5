"""The jobs that use a dataset now: queued and running ones (datasets.uses)."""

from __future__ import annotations

from django.db.models import Q

from datasets import sources
from datasets.models import Dataset
from kernel.locking import WrongState

from .models import Job, State

LIVE = (State.CREATING, State.RUNNING)


def of_dataset(dataset: Dataset) -> WrongState | None:
    """Return that a job uses the dataset. One of another user counts as long as the dataset is shared with them."""
    owner = dataset.user.username
    shared = f"{owner}/{dataset.name}"
    named = Q(user=dataset.user_id, datasets__contains=[dataset.name]) | Q(datasets__contains=[shared])
    for job in Job.objects.filter(named, state__in=LIVE).select_related("user").order_by("pk"):
        if job.user_id == dataset.user_id:
            return WrongState("the job %(name)s uses this dataset; cancel it or wait until it has ended", name=job.name)
        if not sources.missing(job.user, [shared]):
            return WrongState(
                "the job %(name)s of %(user)s uses this dataset; stop sharing it or wait until the job has ended",
                name=job.name, user=job.user.username,
            )  # fmt: skip
    return None

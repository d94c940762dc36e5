"""The jobs that use a dataset (datasets.uses)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from django.db import connection
from django.db.models import Q

from datasets import sources
from datasets.models import Dataset
from datasets.uses import Target, Use
from kernel.locking import WrongState

from .models import Job, State

LIVE = (State.CREATING, State.RUNNING)
# The first job of each user that reads a dataset by each of its spellings: there may be thousands of others.
FIRST_READERS = """
SELECT min(job.id), job.user_id, reference
FROM job CROSS JOIN LATERAL jsonb_array_elements_text(job.datasets) AS reference
WHERE job.state = ANY(%s) AND job.datasets ?| %s AND reference = ANY(%s) GROUP BY 2, 3 ORDER BY 1
"""


def of_datasets(targets: Sequence[Target]) -> dict[Target, WrongState]:
    """Return which datasets of one owner, or versions of one, a job uses or may read. A job of another user counts as
    long as the dataset is shared with them.
    """
    own, shared, owner = defaultdict(list), defaultdict(list), targets[0][0].user_id
    for target, spelled in sources.all_spellings(targets).items():
        for known, names in ((own, spelled[0]), (shared, spelled[1])):
            for name in names:
                known[name].append(target)
    with connection.cursor() as cursor:
        names = [*own, *shared]
        cursor.execute(FIRST_READERS, [list(LIVE), names, names])
        readers = cursor.fetchall()
    jobs = Job.objects.select_related("user").in_bulk([pk for pk, _user, _name in readers])
    refusals: dict[Target, WrongState] = {}
    readable: dict[tuple[int, str], bool] = {}
    for pk, user, name in readers:
        is_own, job = user == owner, jobs.get(pk)
        used = [target for target in (own if is_own else shared).get(name, ()) if target not in refusals]
        if not used or job is None:
            continue
        if is_own:
            refusal = WrongState(
                "the job %(name)s uses this dataset; cancel it or wait until it has ended", name=job.name
            )
        elif _is_readable(job, used[0][0], readable):
            refusal = WrongState(
                "the job %(name)s of %(user)s uses this dataset; stop sharing it or wait until the job has ended",
                name=job.name, user=job.user.username,
            )  # fmt: skip
        else:
            continue
        refusals |= dict.fromkeys(used, refusal)
    return refusals


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

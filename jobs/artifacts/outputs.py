"""What the folders of a user's jobs and workspaces take on the disk, and the limit on it (MLP_OUTPUTS_LIMIT_MIB,
lowered by resources.limits).

Nothing is walked here: jobs.sizes counts each folder of a job, files that arrive are charged to jobs.artifacts.space,
and apps above register what else counts (`apps.py`). A user who is over the limit submits nothing, queued jobs wait,
and those that grow are ended (jobs.sizes.apply_limits).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable

from django.conf import settings
from django.db.models import BigIntegerField, F, Sum
from django.db.models.functions import Coalesce, Greatest

from jobs.models import Job
from kernel.messages import Message
from resources import limits

FRESH_S = 2.0  # how long a sum may be used
MANY = 100_000  # sums that a process remembers

_others: list[Callable[[set[int]], dict[int, int]]] = []
_sums: dict[int, tuple[float, int, int]] = {}  # of users: when it was read, bytes used, the limit in bytes


class TooMuchOutput(limits.OverLimit):
    """The folders of the user's jobs and workspaces take as much of the disk as they may."""


def register(usage: Callable[[set[int]], dict[int, int]]) -> None:
    """Add a function that returns what else of each of these users counts, in bytes; users without may be left out."""
    if usage not in _others:
        _others.append(usage)


def usage_of(users: Iterable[int]) -> dict[int, int]:
    """Return how many bytes the folders of each user take; users without any are left out."""
    users = set(users)
    size = Greatest(
        Coalesce(F("output_bytes"), 0), Coalesce(F("artifact_space__stored"), 0), output_field=BigIntegerField()
    )
    rows = Job.objects.filter(user__in=users).order_by().values("user").annotate(size=Sum(size))
    sums = Counter({row["user"]: int(row["size"]) for row in rows})
    for usage in _others:
        sums.update(usage(users))
    return dict(sums)


def limits_of(users: Iterable[int]) -> dict[int, int]:
    """Return the bytes that the folders of each user may take."""
    highest = settings.OUTPUTS_LIMIT_MIB
    lower = limits.mib_of(users, "outputs")
    return {user: min(highest, lower.get(user, highest)) << 20 for user in users}


def left(user_id: int) -> int:
    """Return how many bytes more the user's folders may take; some seconds old, unless it is 0 or less."""
    now = time.monotonic()
    read, size, limit = _sums.get(user_id, (float("-inf"), 0, 0))
    if size >= limit or now - read > FRESH_S:
        if len(_sums) >= MANY:
            _sums.clear()
        size, limit = usage_of([user_id]).get(user_id, 0), limits_of([user_id])[user_id]
        _sums[user_id] = now, size, limit
    return limit - size


def problem(user_id: int) -> TooMuchOutput | None:
    """Return why nothing of the user's may start; None while there is room."""
    rest = left(user_id)
    if rest > 0:
        return None
    _read, size, limit = _sums[user_id]
    return TooMuchOutput(says(size, limit))


def says(size: int, limit: int) -> Message:
    """Return what is used, of how much, and what makes room."""
    return Message(
        "the files of your jobs and workspaces take %(size)s MiB of the disk, and the limit is %(limit)s MiB "
        "(MLP_OUTPUTS_LIMIT_MIB, or that of the tenant): delete some, and empty the trash",
        size=size >> 20, limit=limit >> 20,
    )  # fmt: skip


def require(user_id: int) -> None:
    """Raise TooMuchOutput for a user whose folders take all that they may."""
    refusal = problem(user_id)
    if refusal is not None:
        raise refusal

"""The order in which queued jobs are admitted.

Used by lifecycle.reserve_next, which admits jobs, by jobs.preemption, and by line, which explains the queue: the rule
is implemented only here. First come the jobs that others have stepped back for (jobs.preemption); last come preemptible
ones, which run in what the others leave free. Among equals the next job is that of the user with the fewest admitted
jobs, then of the one whose last start is longest ago; of that user's jobs the one with the highest priority, then the
one that has waited longest, whereby preemptible ones come after the user's others, too: were one of them the first of a
line, all of the line would wait behind the jobs of other users. Admission of a tenant stops at the first job that does
not fit, so that small jobs do not starve a large one; if only its user's limit is exceeded, it stops for that user, and
if only GPUs of its type are missing, the others leave these to it and go on.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.db.models import BooleanField, ExpressionWrapper, OuterRef, Q, Subquery

from jobs.models import Job, State
from resources.limits import OverLimit
from resources.products import NoneLeft

KEPT = "queue"  # the key in the cache under which jobs.queue.line keeps the queues
LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Queued(NamedTuple):
    """A queued job with what its order depends on."""

    pk: int
    user_id: int
    tenant_id: int
    preemptible: bool = False
    has_preempted: bool = False  # others have stepped back for it, or are stepping back


class Turns:
    """The turns of queued jobs. `take` returns the next; then say whether it was admitted or did not fit."""

    def __init__(self, waiting: Iterable[Queued], admitted: Mapping[int, int], served: Mapping[int, datetime]):
        """Take the queued jobs, each user's own in their order; `admitted` counts the users' admitted jobs, `served`
        has their last starts.
        """
        self._admitted, self._served = Counter(admitted), served
        self._lines: dict[int, deque[Queued]] = {}
        self._first: deque[Queued] = deque()
        for entry in waiting:
            if entry.has_preempted:
                self._first.append(entry)
            else:
                self._lines.setdefault(entry.user_id, deque()).append(entry)
        self._stopped: set[int | tuple[int, int]] = set()
        self.ahead: Counter[str] = Counter()  # free GPUs by type, left to refused jobs
        self._out: int | None = None  # the user whose job was taken last
        self._heap: list[tuple] | None = None  # made after those that others step back for, which count as admitted

    def take(self) -> Queued | None:
        """Return the job that is next; None if there is none."""
        while self._first:
            entry = self._first.popleft()
            if not self._stopped & {entry.tenant_id, (entry.user_id, entry.tenant_id)}:
                return entry
        if self._heap is None:
            self._heap = [self._key(line[0]) for line in self._lines.values()]
            heapify(self._heap)
        self._put_back()
        while self._heap:
            *_others, pk, self._out = heappop(self._heap)
            line = self._lines[self._out]
            while line and self._stopped & {line[0].tenant_id, (self._out, line[0].tenant_id)}:
                line.popleft()
            if line and line[0].pk == pk:
                return line.popleft()
            self._put_back()  # with the key of the user's next job
        return None

    def admitted(self, entry: Queued) -> None:
        """Record that the job has been admitted, which moves its user back in the order."""
        self._admitted[entry.user_id] += 1

    def refused(self, entry: Queued, refusal: Exception) -> None:
        """Record that the job does not fit: no later job of its tenant is taken, or of its user if only the user's
        limit is exceeded. Where only GPUs of its type are missing, later jobs leave those to it.
        """
        if isinstance(refusal, NoneLeft):
            self.ahead[refusal.kind] += refusal.left
            return
        only_user = isinstance(refusal, OverLimit)
        self._stopped.add((entry.user_id, entry.tenant_id) if only_user else entry.tenant_id)

    @property
    def stopped(self) -> set[int]:
        """Return the tenants of which a job does not fit: they lend nothing to others meanwhile."""
        return {tenant for tenant in self._stopped if isinstance(tenant, int)}

    def _put_back(self) -> None:
        if self._out is not None and self._lines[self._out]:
            heappush(self._heap, self._key(self._lines[self._out][0]))
        self._out = None

    def _key(self, entry: Queued) -> tuple:
        user = entry.user_id
        return entry.preemptible, self._admitted[user], self._served.get(user, LONG_AGO), entry.pk, user


def reordered() -> None:
    """Have pages read the queue again at once, not only when what they keep of it is old."""
    cache.delete(KEPT)


def waiting():
    """Return the queued jobs, preemptible ones after the others, the highest priority first, then the longest wait."""
    return Job.objects.filter(state=State.CREATING, reserved=False).order_by("preemptible", "-priority", "pk")


def has_preempted() -> ExpressionWrapper:
    """Return the column that tells whether others step back for a queued job."""
    stepped = Job.objects.filter(preempted_for__isnull=False).values("preempted_for")
    return ExpressionWrapper(Q(pk__in=stepped), output_field=BooleanField())


def admitted_counts() -> Counter:
    """Return the number of admitted jobs that each user has, by the user's key."""
    return Counter(Job.objects.filter(reserved=True).values_list("user_id", flat=True))


def last_starts(users: Iterable[int]) -> dict[int, datetime]:
    """Return when a job of each of the users was last started; users without any are left out."""
    started = Job.objects.filter(user=OuterRef("pk"), started__isnull=False).order_by("-started").values("started")[:1]
    rows = get_user_model().objects.filter(pk__in=set(users)).annotate(last=Subquery(started))
    return {pk: last for pk, last in rows.values_list("pk", "last") if last is not None}


def turns() -> Turns:
    """Return the turns of all jobs that are queued now."""
    queued = waiting().annotate(has_preempted=has_preempted())
    entries = [Queued(*row) for row in queued.values_list(*Queued._fields)]
    return Turns(entries, admitted_counts(), last_starts(entry.user_id for entry in entries))

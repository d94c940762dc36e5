"""The queue of each tenant: which jobs are admitted next, and the first that is not. Used by waiting and forecast.

It follows the order of jobs.queue.turns and the checks of resources.tcc, with the amounts counted in memory instead of
reserved. The result for all jobs is cached until the queue or the resources in use change. A queue of thousands of jobs
is cached a little longer, so that the cost does not depend on how often the queue changes or on the number of open
pages.
"""

from __future__ import annotations

import copy
import logging
import time
from array import array
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from django.core.cache import cache
from django.db.models import Count, F, Max, Q, Sum

from jobs.artifacts import outputs
from jobs.queue import turns
from jobs.queue.turns import Queued, Turns
from kernel.errors import Refused
from kernel.messages import Message
from resources import lending, products, tcc
from resources.limits import OverLimit
from resources.models import KINDS, LENDING, LIVE, ResourceRequest, Tenant, UserLimit
from resources.products import NoneLeft, Stock
from resources.units import amounts, kinds_of, zero

log = logging.getLogger(__name__)

KEPT_S = 60
SHARE = 20  # a queue that takes 0.1 s to read is read every 2 s at most
COLUMNS = (
    "pk", "user_id", "tenant_id", "user__username", "name", "entry", "gpu", "cpu", "ram", "workers",
    "preemptible", "has_preempted", "gpu_type",
)  # fmt: skip


@dataclass(frozen=True)
class QueuedJob:
    """A queued job with its total needs."""

    pk: int
    user_id: int
    tenant_id: int
    user: str
    name: str
    script: str
    gpu: int
    cpu: float
    ram: int
    workers: int
    preemptible: bool = False
    has_preempted: bool = False
    gpu_type: str = ""

    @property
    def gpus(self) -> int:
        return self.gpu * self.workers

    @property
    def needs(self) -> dict:
        """Return the amounts of all workers together, in the units of the tenant's row."""
        return amounts(gpu=self.gpu * self.workers, cpu=self.cpu * self.workers, ram=self.ram * self.workers)

    @property
    def queued(self) -> Queued:
        return Queued(self.pk, self.user_id, self.tenant_id, self.preemptible, self.has_preempted)


@dataclass(frozen=True)
class Stop:
    """The first job that does not fit: no job behind it is admitted. `left` are the amounts that were free for it."""

    first: QueuedJob
    left: dict
    by_limit: bool
    limits: dict = field(default_factory=dict)  # (used, limit) of the kinds on which its user has a limit
    full: Message | None = None  # what its user has to delete first


@dataclass
class Line:
    """The queue of a tenant: the jobs in the order of admission, without those of users at their own limit."""

    order: array = field(default_factory=lambda: array("q"))
    users: array = field(default_factory=lambda: array("q"))
    stop: Stop | None = None
    limited: dict[int, Stop] = field(default_factory=dict)  # by user
    limited_order: dict[int, list[int]] = field(default_factory=dict)
    fits: list[int] = field(default_factory=list)  # about to be admitted
    lacking: dict[int, Message] = field(default_factory=dict)  # which wait only for GPUs of their type, and why


class Room:
    """The free amounts of tenants and the amounts used by users, in memory: the simulation reserves and releases them
    here.
    """

    def __init__(self):
        self.ledger = lending.everything()
        rows = UserLimit.objects.all()
        self.limits = {(row.tenant_id, row.user): row for row in rows}
        self.used: dict[tuple[int, str], dict] = {}
        self.full: dict[int, OverLimit | None] = {}  # by user: whose jobs have stored all that they may
        self._stock: Stock | None = None  # read for the first job that names a type
        self._moved: Counter[str] = Counter()  # GPUs by type that were taken here until then
        if self.limits:
            requests = ResourceRequest.objects.filter(LIVE, owner__gt="")
            sums = requests.values("tenant_id", "owner").annotate(**{f"{kind}_sum": Sum(kind) for kind in KINDS})
            self.used = {(row["tenant_id"], row["owner"]): kinds_of(row, "_sum") for row in sums}

    def fresh(self) -> Room:
        """Return an independent copy."""
        other = copy.copy(self)
        other.ledger = self.ledger.fresh()
        other.used = {key: dict(has) for key, has in self.used.items()}
        other._stock, other._moved = self._stock and self._stock.fresh(), Counter(self._moved)
        return other

    @property
    def stock(self) -> Stock:
        """Return the GPUs by product, with those in use."""
        if self._stock is None:
            self._stock = products.current()
            for kind, count in self._moved.items():
                self._stock.take(kind, count)
        return self._stock

    def lacks(self, entry: QueuedJob) -> int:
        """Return how many GPUs of its type a job is short of."""
        return max(0, entry.gpus - self.stock.left(entry.gpu_type)) if entry.gpu_type else 0

    def _limit(self, entry: QueuedJob) -> UserLimit | None:
        return self.limits.get((entry.tenant_id, entry.user)) or self.limits.get((entry.tenant_id, ""))

    def _has(self, entry: QueuedJob) -> dict:
        return self.used.setdefault((entry.tenant_id, entry.user), {kind: zero(kind) for kind in KINDS})

    def _lendable(self, entry: QueuedJob, closed: Collection[int]) -> dict:
        return self.ledger.lendable(entry.tenant_id, closed) if entry.preemptible else {}

    def refusal(
        self, entry: QueuedJob, closed: Collection[int] = (), ahead: Mapping[str, int] | None = None
    ) -> Refused | None:
        """Return why the job could not be admitted now; None if it could. The tenants `closed` do not lend; the
        GPUs `ahead`, by type, are left to jobs ahead of it.
        """
        if entry.user_id not in self.full:
            self.full[entry.user_id] = outputs.problem(entry.user_id)
        if (full := self.full[entry.user_id]) is not None:
            return full
        tenant, limit = self.ledger.tenants[entry.tenant_id], self._limit(entry)
        has = self._has(entry) if limit is not None else {}
        if entry.gpus and (entry.gpu_type or ahead):
            lacking = self.stock.refusal(entry.gpu_type, entry.gpus, ahead)
            if lacking is not None:
                return lacking
        return tcc.refusal(tenant, entry.user, entry.needs, limit, has, self._lendable(entry, closed))

    def limits_of(self, entry: QueuedJob) -> dict:
        """Return (used, limit) by kind for each on which the job's user has a limit."""
        limit, has = self._limit(entry), self._has(entry)
        return {kind: (has[kind], most) for kind in KINDS if (most := getattr(limit, kind, None)) is not None}

    def take(self, entry: QueuedJob, closed: Collection[int] = ()) -> None:
        """Add the job's needs to the amounts in use."""
        self.ledger.take(entry.tenant_id, entry.needs, closed)
        self._count(entry, 1)

    def give_back(self, entry: QueuedJob, to: int | None = None) -> None:
        """Subtract the job's needs from the amounts in use; loans are returned to the tenant `to` first."""
        self.ledger.give_back(entry.tenant_id, entry.needs, to)
        self._count(entry, -1)

    def _count(self, entry: QueuedJob, sign: int) -> None:
        has = self._has(entry)
        for kind, value in entry.needs.items():
            has[kind] += sign * value
        if self._stock is not None:
            self._stock.take(entry.gpu_type, sign * entry.gpus)
        else:
            self._moved[entry.gpu_type] += sign * entry.gpus

    def left(self, entry: QueuedJob, closed: Collection[int] = ()) -> dict:
        """Return the largest amounts that the job's user could reserve now."""
        tenant, limit, has = self.ledger.tenants[entry.tenant_id], self._limit(entry), self._has(entry)
        more = self._lendable(entry, closed)
        left = {kind: tenant.left(kind) + more.get(kind, 0) for kind in KINDS}
        for kind in KINDS:
            most = getattr(limit, kind, None)
            if most is not None:
                left[kind] = max(min(left[kind], most - has[kind]), zero(kind))
        return left


def admit(order: Turns, entries: dict[int, QueuedJob], room: Room):
    """Yield each job in the order of admission with the reason why it cannot be admitted; None if it is admitted."""
    while turn := order.take():
        entry = entries[turn.pk]
        refusal = room.refusal(entry, order.stopped, order.ahead)
        if refusal is None:
            room.take(entry, order.stopped)
            order.admitted(turn)
        else:
            order.refused(turn, refusal)
        yield entry, refusal


def lines() -> dict[int, Line]:
    """Return the queue of each tenant that has queued jobs, by the tenant's key."""
    now = mark()
    kept = _cached()
    if kept and (kept["mark"] == now or 0 <= time.time() - kept["at"] < kept["took"] * SHARE):
        return kept["lines"]
    begun = time.monotonic()
    line_of = _read()
    try:
        kept = {"mark": now, "at": time.time(), "took": time.monotonic() - begun, "lines": line_of}
        cache.set(turns.KEPT, kept, KEPT_S)
    except Exception as problem:  # only a cache
        log.warning("the queue's order could not be cached: %s", problem)
    return line_of


def _cached() -> dict | None:
    try:
        return cache.get(turns.KEPT)
    except Exception as problem:  # only a cache
        log.warning("the cache does not respond; reading the queue from the database: %s", problem)
        return None


def mark() -> list:
    """Return a value that changes with the queue and with the resources in use."""
    waiting = turns.waiting().order_by().annotate(has_preempted=turns.has_preempted())
    queued = waiting.aggregate(
        Count("pk"), Max("pk"), Sum("pk"), placed=Sum(F("pk") * F("priority")),
        first=Sum("pk", filter=Q(has_preempted=True)),
    )  # fmt: skip
    used = Tenant.objects.order_by("pk").values_list(*KINDS, *lending.MOVED, *LENDING)
    limited = UserLimit.objects.order_by("pk").values_list("pk", *KINDS, "outputs")
    return [queued, list(used), list(limited)]


def entries_of(queued) -> dict[int, QueuedJob]:
    """Return the entries of the jobs of a query, by their keys."""
    rows = queued.annotate(has_preempted=turns.has_preempted()).values_list(*COLUMNS)
    return {row[0]: QueuedJob(*row) for row in rows}


def _read() -> dict[int, Line]:
    entries = entries_of(turns.waiting())
    admitted = turns.admitted_counts()
    served = turns.last_starts(entry.user_id for entry in entries.values())
    queue = [entry.queued for entry in entries.values()]
    line_of = {tenant_id: Line() for tenant_id in {entry.tenant_id for entry in queue}}
    room, order = Room(), Turns(queue, admitted, served)
    for entry, refusal in admit(order, entries, room):
        line = line_of[entry.tenant_id]
        if refusal is None:
            line.fits.append(entry.pk)
        elif isinstance(refusal, NoneLeft):
            line.lacking[entry.pk] = refusal.problem
        elif isinstance(refusal, OverLimit):
            full = refusal.problem if isinstance(refusal, outputs.TooMuchOutput) else None
            line.limited[entry.user_id] = Stop(
                entry, room.left(entry, order.stopped), True, room.limits_of(entry), full
            )  # fmt: skip
        else:
            line.stop = Stop(entry, room.left(entry, order.stopped), False)
    order = Turns(queue, admitted, served)
    while turn := order.take():
        order.admitted(turn)
        line = line_of[turn.tenant_id]
        if turn.user_id in line.limited and turn.pk not in line.fits:
            line.limited_order.setdefault(turn.user_id, []).append(turn.pk)
        else:
            line.order.append(turn.pk)
            line.users.append(turn.user_id)
    return line_of

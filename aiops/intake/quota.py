"""How much a user may keep of log lines (MLP_AIOPS_USER_MIB), so that one user's flood displaces nobody else's lines.

Beyond it the user's own oldest lines are removed, in each round of the housekeeping. Who sends so fast that a round
cannot keep up is asked to wait for the next one: 503 with Retry-After, which every shipper sends again, while some
drop for good what is answered 429 or 403. Lines of jobs and applications, which are read from files, wait for nothing.

The sizes of the last round are in the cache. Where it is unavailable nobody is asked to wait.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from django.conf import settings
from django.core.cache import cache
from redis import RedisError

from aiops.logstore.base import Share
from kernel.errors import Fault
from kernel.messages import Message

KEPT, ARRIVED = "log-shares", "log-arrived"  # keys of the cache
KEPT_S = 600  # longer than between two rounds
ROUND_S = 60
SLACK = 4  # beyond the limit by this part of it, senders wait
ROW = 262  # bytes of a line beside its texts: a row, its entries in indexes (aiops.logstore.retention)
NEAR = 0.9  # of the limit; from there on the user's page and `doctor` show it


class TooMany(Fault):
    """The user's log lines take all that they may, and the oldest are not removed yet."""

    is_logged = False  # senders repeat it
    retry_after_s = ROUND_S


class Use(NamedTuple):
    """What a user's lines take, of how much."""

    size: int
    limit: int

    @property
    def is_near(self) -> bool:
        return self.size >= NEAR * (self.limit << 20)

    @property
    def mib(self) -> int:
        return round(self.size / (1 << 20))


def measured(shares: Mapping[str, Share]) -> None:
    """Remember what a round of the housekeeping has found."""
    with _or_nothing():
        cache.set(KEPT, (time.time_ns(), {name: share.size for name, share in shares.items()}), KEPT_S)


def require(user) -> int:
    """Raise TooMany where a user's lines are too many already. Administrators have no limit. Return which round of the
    housekeeping was the last.

    Asked once for each request, before any of its lines are stored: what is sent again would be stored twice.
    """
    if user.is_administrator:
        return 0
    round_of, sizes = _kept()
    limit, arrived = settings.AIOPS_USER_MIB << 20, 0
    with _or_nothing():
        arrived = cache.get(_arrived(round_of, user), 0)
    if sizes.get(user.username, 0) + arrived > limit + limit // SLACK:
        raise TooMany(
            "your log lines take more than %(limit)s MiB (%(setting)s), and the oldest are being removed; "
            "try again in %(seconds)s s",
            limit=settings.AIOPS_USER_MIB, setting="MLP_AIOPS_USER_MIB", seconds=ROUND_S,
        )  # fmt: skip
    return round_of


def count(user, lines: Sequence[dict], round_of: int | None = None) -> None:
    """Add lines of a user to those that have arrived since the last round, which `require` has returned."""
    if user.is_administrator:
        return
    key, size = _arrived(_kept()[0] if round_of is None else round_of, user), sum(map(_size, lines))
    with _or_nothing():
        try:
            cache.incr(key, size)
        except ValueError:  # the first ones of this round
            if not cache.add(key, size, KEPT_S):
                cache.incr(key, size)


def use_of(username: str) -> Use:
    """Return what the user's lines took in the last round."""
    return Use(_kept()[1].get(username, 0), settings.AIOPS_USER_MIB)


def nearly_full() -> dict[str, Use]:
    """Return the users whose lines take about all that they may."""
    uses = {name: Use(size, settings.AIOPS_USER_MIB) for name, size in _kept()[1].items()}
    return {name: use for name, use in uses.items() if use.is_near}


def notice(username: str) -> Message | None:
    """Return what the user's page says of it; None where nothing has to be said."""
    use = use_of(username)
    if not use.is_near:
        return None
    return Message(
        "Your log lines take %(size)s MiB of %(limit)s MiB (%(setting)s). Your oldest lines are removed first.",
        size=use.mib, limit=use.limit, setting="MLP_AIOPS_USER_MIB",
    )  # fmt: skip


def _arrived(round_of: int, user) -> str:
    return f"{ARRIVED}:{round_of}:{user.username}"


def _size(line: dict) -> int:
    attributes = line.get("attributes") or {}
    return ROW + 2 * len(line["log"]) + sum(len(name) + len(value) for name, value in attributes.items())


def _kept() -> tuple[int, dict[str, int]]:
    with _or_nothing():
        return cache.get(KEPT) or (0, {})
    return 0, {}


@contextlib.contextmanager
def _or_nothing() -> Iterator[None]:
    """Do without the cache where it is unavailable, or has forgotten a key meanwhile."""
    with contextlib.suppress(RedisError, OSError, ValueError):
        yield

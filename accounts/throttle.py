"""Rate limits: failed log-ins and registrations, counted in the database, and the address that they count by.

Every `Limit` has some free attempts, then each further one doubles the wait, up to MAX_S; after `forget_s` one attempt
is forgotten. An attempt is counted before its password is checked, so that a thousand at once are no way round. None is
held up: it is refused with the time to wait. Rows are few, since each costs its sender a whole check of a password.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import math
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from kernel import clock
from kernel.errors import TooMany

from .models import Throttle
from .tokens import signature

FIRST_S = 1  # the wait after the last free attempt; each further one doubles it
MAX_S = 900
HOUR_S = 3600
AT_ONCE = 4  # hashes that strangers may have computed at the same time: half of a web process's threads
SIGN_INS_PER_HOUR = 600  # of a network, which may be a whole company
RESETS_PER_HOUR, RESETS_OF_ONE = 30, 5
PROGRAMS_PER_HOUR, CODES_PER_HOUR = 120, 120
BUSY_S = 2
KEPT = timedelta(days=1)  # by then the attempts of a row are forgotten
LOCAL = "127.0.0.1"
_hashing = threading.BoundedSemaphore(AT_ONCE)


@dataclass(frozen=True)
class Limit:
    """What attempts are counted by: `scope` and `parts` name the row."""

    scope: str
    parts: tuple[str, ...]
    free: int
    forget_s: float

    @property
    def key(self) -> str:
        """Return the row's key; a digest, so that it reveals no names and has a fixed length."""
        return hashlib.sha256("\0".join((self.scope, *self.parts)).encode()).hexdigest()[:32]

    def left(self, row: Throttle, now: datetime) -> float:
        """Return how many of the row's attempts are not forgotten yet."""
        return max(0.0, row.count - max(0.0, (now - row.at).total_seconds()) / self.forget_s)

    def wait_s(self, count: float) -> float:
        """Return how long the next attempt has to wait after that many."""
        over = math.ceil(count) - self.free
        return min(MAX_S, FIRST_S * 2 ** min(over, 10)) if over >= 0 else 0


class Budget(Limit):
    """A limit without growing waits: when the free attempts are used up, the next waits until one is forgotten."""

    def wait_s(self, count: float) -> float:
        return max(0.0, (math.ceil(count) + 1 - self.free) * self.forget_s)


# --- the caller's address -----------------------------------------------------------------------------------------
def gateway_key() -> str:
    """Return the secret by which the gateway proves that X-Real-IP is its own word."""
    return signature("gateway")


def client_address(request) -> str:
    """Return the client's address: the one that the gateway says, else the peer's; no other header is believed."""
    peer = request.META.get("REMOTE_ADDR") or LOCAL
    key = request.META.get("HTTP_X_GATEWAY_KEY", "")
    if key and hmac.compare_digest(key.encode(), gateway_key().encode()):
        peer = request.META.get("HTTP_X_REAL_IP", peer)
    try:
        return str(ipaddress.ip_address(peer.partition("%")[0]))
    except ValueError:
        return LOCAL


def network(address: str) -> str:
    """Return the network that counts as one client: an IPv4 address, or the /64 of an IPv6 address."""
    ip = ipaddress.ip_address(address)
    if ip.version == 4:
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.ip_network((ip, 64), strict=False))


# --- counting -----------------------------------------------------------------------------------------------------
def claim(limits: Iterable[Limit]) -> int:
    """Count an attempt by each limit and return 0; or, when one of them has to wait, count nothing and return the
    seconds to wait.
    """
    by_key = {limit.key: limit for limit in limits}
    now = timezone.now()
    blank = [Throttle(key=key, count=0, at=now, until=now) for key in sorted(by_key)]
    Throttle.objects.bulk_create(blank, ignore_conflicts=True)
    with transaction.atomic():
        rows = _locked(by_key)
        # The clock may have been set back since the row was written: no wait is longer than when it began.
        wait_s = max(((row.until - max(now, row.at)).total_seconds() for row in rows), default=0)
        if wait_s > 0:
            return math.ceil(wait_s)
        for row in rows:
            limit = by_key[row.key]
            row.count, row.at = limit.left(row, now) + 1, now
            row.until = now + timedelta(seconds=limit.wait_s(row.count))
        Throttle.objects.bulk_update(rows, ["count", "at", "until"])
    return 0


def undo(limits: Iterable[Limit]) -> None:
    """Take back one attempt that `claim` has counted; those of others stay."""
    with transaction.atomic():
        rows = _locked(limit.key for limit in limits)
        for row in rows:
            row.count, row.until = max(0.0, row.count - 1), row.at
        Throttle.objects.bulk_update(rows, ["count", "until"])


def _locked(keys: Iterable[str]) -> list[Throttle]:
    return list(Throttle.objects.select_for_update().filter(pk__in=list(keys)).order_by("pk"))


def reset(limits: Iterable[Limit]) -> None:
    """Forget all attempts counted by these limits."""
    Throttle.objects.filter(pk__in=[limit.key for limit in limits]).delete()


def count_registration(address: str) -> None:
    """Count a registration. Raises TooMany with the time to wait once the network has used up its hourly number."""
    most = settings.REGISTRATIONS_PER_HOUR
    wait_s = claim([Budget("registration", (network(address),), most, HOUR_S / most)])
    if wait_s:
        raise TooMany(
            "too many registrations from this address; try again in %(seconds)s s", field="username", seconds=wait_s
        )


def count_program_login(address: str) -> None:
    """Count a program that asks to be confirmed. Raises TooMany with the time to wait."""
    wait_s = claim([Budget("program", (network(address),), PROGRAMS_PER_HOUR, HOUR_S / PROGRAMS_PER_HOUR)])
    if wait_s:
        raise TooMany("too many log-ins at the moment; try again in %(seconds)s s", seconds=wait_s)


def count_code(username: str) -> None:
    """Count a code that a user has typed. Raises TooMany with the time to wait."""
    wait_s = claim([Budget("code of", (username,), CODES_PER_HOUR, HOUR_S / CODES_PER_HOUR)])
    if wait_s:
        raise TooMany("too many log-ins at the moment; try again in %(seconds)s s", field="code", seconds=wait_s)


def count_reset(address: str, username: str) -> None:
    """Count a request for a new password. Raises TooMany with the time to wait."""
    limits = [
        Budget("reset", (network(address),), RESETS_PER_HOUR, HOUR_S / RESETS_PER_HOUR),
        Budget("reset of", (username,), RESETS_OF_ONE, HOUR_S / RESETS_OF_ONE),
    ]
    wait_s = claim(limits)
    if wait_s:
        raise TooMany("too many log-ins at the moment; try again in %(seconds)s s", field="username", seconds=wait_s)


def count_sign_in(address: str) -> None:
    """Count a sign-in at a provider, which each stores a session. Raises TooMany with the time to wait."""
    wait_s = claim([Budget("signin", (network(address),), SIGN_INS_PER_HOUR, HOUR_S / SIGN_INS_PER_HOUR)])
    if wait_s:
        raise TooMany("too many log-ins at the moment; try again in %(seconds)s s", seconds=wait_s)


def count_submission(username: str) -> None:
    """Count a job that a user submits. Raises TooMany with the time to wait once the minute's number is used up: who
    submits in a loop must not delay the requests of others.
    """
    most = settings.SUBMISSIONS_PER_MINUTE
    wait_s = claim([Budget("submissions of", (username,), most, 60 / most)]) if most else 0
    if wait_s:
        raise TooMany(
            "at most %(most)s jobs can be submitted in a minute; try again in %(seconds)s s", most=most, seconds=wait_s
        )


@contextlib.contextmanager
def hashing() -> Iterator[None]:
    """Let a stranger's password be hashed, which takes long on purpose. Raises TooMany while too many are: others must
    not wait for a free thread because of them.
    """
    if not _hashing.acquire(blocking=False):
        raise TooMany("too many log-ins at the moment; try again in %(seconds)s s", field="username", seconds=BUSY_S)
    try:
        yield
    finally:
        _hashing.release()


def tidy() -> None:
    """Delete the rows whose attempts are forgotten."""
    Throttle.objects.filter(at__lt=clock.settled(timezone.now()) - KEPT).delete()

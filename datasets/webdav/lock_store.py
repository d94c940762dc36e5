"""The rows of locks (RFC 4918, class 2): which exist, what each covers, and whether a request has the tokens it needs.

A lock is a row, so every process sees it. It binds its holder's own clients too: every writer presents its token.
lock_verbs.py has the methods LOCK and UNLOCK; put/, verbs.py, props.py and propfind.py ask here.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.utils import timezone

from kernel import downloads
from kernel.messages import Message

from ..models import Lock
from . import tree
from .conditions import ANY, Conditions, StateCheck
from .errors import HttpError
from .paths import Target, parse_destination

DEFAULT_S, LONGEST_S = 600, 3600
TIMEOUT = re.compile(r"Second-(\d{1,10})")


def active(target: Target) -> list[Lock]:
    """Return the locks in the target's dataset that have not expired."""
    if not target.dataset:
        return []
    locks = Lock.objects.filter(user__username=target.user, dataset=target.dataset, expires__gt=timezone.now())
    return list(locks.order_by("token"))


def covers(lock: Lock, path: str) -> bool:
    """Return whether the lock protects this path: its own, or one below a folder that is locked with its content."""
    return lock.path == path or (lock.deep and (not lock.path or path.startswith(lock.path + "/")))


def is_below(lock: Lock, target: Target) -> bool:
    """Return whether the locked path lies inside the target folder."""
    return not target.path or lock.path.startswith(target.path + "/")


def conflicting(target: Target, *, deep: bool) -> list[Lock]:
    """Return the locks on what a new lock on the target would cover, `deep` with all of its content."""
    return [lock for lock in active(target) if covers(lock, target.path) or (deep and is_below(lock, target))]


def required(target: Target, locks: Iterable[Lock], *, below: bool = False) -> list[Lock]:
    """Return those of the locks whose token a request needs that creates, changes or removes the target.

    A lock on the parent folder is one of them, since the folder's members change. `below`: the target is changed with
    all of its content.
    """
    parent = target.path.rpartition("/")[0]
    return [
        lock
        for lock in locks
        if covers(lock, target.path) or (target.path and lock.path == parent) or (below and is_below(lock, target))
    ]


def require(conditions: Conditions, holder: str, *targets: Target, below: bool = False) -> None:
    """Check the `If` header against the first target, and the locks on everything that the request would change.

    Raises HttpError 412 when the header does not hold, 423 when a lock's token is missing or not `holder`'s.
    """
    if conditions.alternatives and not any(
        all(_holds(check, conditions.host, targets[0]) for check in alternative)
        for alternative in conditions.alternatives
    ):
        raise HttpError(412, "the condition is not met", field="If")
    for target in targets:
        by_path: dict[str, list[Lock]] = {}
        for lock in required(target, active(target), below=below):
            by_path.setdefault(lock.path, []).append(lock)
        for locks in by_path.values():  # of several shared locks one is enough
            if not any(lock.token in conditions.tokens and lock.holder == holder for lock in locks):
                raise is_locked(locks[0])


def is_locked(lock: Lock) -> HttpError:
    """Return the error 423 that names the lock's holder and its expiry."""
    until = f"{lock.expires:%H:%M:%S}"
    locked = Message("is locked by %(holder)s until %(time)s UTC", holder=lock.holder, time=until)
    return HttpError(423, locked, field="path")


def remove_below(target: Target) -> None:
    """Remove the locks of a file or folder that is gone, with those inside of it."""
    for lock in active(target):
        if lock.path == target.path or is_below(lock, target):
            lock.delete()


def sweep() -> None:
    """Remove the expired locks. Called by the reconcile loop."""
    Lock.objects.filter(expires__lte=timezone.now()).delete()


def expiry(timeout: str) -> datetime:
    """Return when a lock with this `Timeout` header (`Second-600`) expires, an hour from now at the latest."""
    match = TIMEOUT.search(timeout)
    seconds = min(int(match[1]), LONGEST_S) if match else DEFAULT_S
    return timezone.now() + timedelta(seconds=max(seconds, 1))


def etag(target: Target) -> str:
    """Return the file's ETag; empty where there is no file."""
    info = tree.status(target.steps) if target.parts else None
    return downloads.etag(info) if info is not None and stat.S_ISREG(info.st_mode) else ""


def require_match(conditions: Conditions, target: Target) -> None:
    """Check `If-Match` and `If-None-Match` against what the request is about to change. Raises HttpError 412."""
    if not conditions.etags and not conditions.unwanted:
        return
    tag, there = etag(target), bool(target.parts) and tree.status(target.steps) is not None
    if conditions.etags and not (there and conditions.etags == ANY) and tag not in conditions.etags:
        raise HttpError(412, "the file has changed or does not exist", field="If-Match")
    if there and conditions.unwanted == ANY:
        raise HttpError(412, "a file of that name already exists", field="path")
    if tag and tag in conditions.unwanted:
        raise HttpError(412, "the file is one of these versions", field="If-None-Match")


def _holds(check: StateCheck, host: str, target: Target) -> bool:
    resource = parse_destination(check.resource, host) if check.resource else target
    if check.is_etag:
        return (check.value == etag(resource)) is not check.negated
    held = any(lock.token == check.value and covers(lock, resource.path) for lock in active(resource))
    return held is not check.negated

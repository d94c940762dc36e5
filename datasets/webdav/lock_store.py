"""Locks (RFC 4918, class 2): who may write where while somebody else says "mine", and the `If` header. Used by put.py,
verbs.py, propfind.py and locking.py, which has the methods LOCK and UNLOCK.

A lock is a row, so every process sees it; it binds its holder's own clients too: whoever writes shows its token.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable
from datetime import timedelta

from django.http import HttpRequest
from django.utils import timezone

from ..models import Lock
from . import tree
from .errors import HttpError
from .paths import Target, parse_destination

SCHEME = "urn:uuid:"
DEFAULT_S, LONGEST_S = 600, 3600
PIECE = re.compile(r"\s*(<[^<>]*>|\[[^\]]*\]|\(|\)|[Nn][Oo][Tt](?=[\s<\[]))\s*")
TOKEN = re.compile(rf"<({SCHEME}[0-9a-f-]+)>")


def living(target: Target) -> list[Lock]:
    """The locks in the target's dataset that have not run out."""
    if not target.dataset:
        return []
    found = Lock.objects.filter(user__username=target.user, dataset=target.dataset, expires__gt=timezone.now())
    return list(found.order_by("token"))


def covers(lock: Lock, path: str) -> bool:
    """Is the path locked by it: itself, or something in a folder locked with all that is in it?"""
    return lock.path == path or (lock.deep and (not lock.path or path.startswith(lock.path + "/")))


def in_the_way(target: Target, locks: Iterable[Lock], *, below: bool = False) -> list[Lock]:
    """Those that whoever makes, changes or removes the target must hold; `below`: with all that is in it."""
    parent = target.path.rpartition("/")[0]
    found = []
    for lock in locks:
        inside = not target.path or lock.path.startswith(target.path + "/")
        if covers(lock, target.path) or (target.path and lock.path == parent) or (below and inside):
            found.append(lock)
    return found


def must_hold(request: HttpRequest, holder: str, *targets: Target, below: bool = False) -> None:
    """Judges the request's `If`, and the locks on what it would change. Raises HttpError 400, 412 or 423."""
    header = request.META.get("HTTP_IF", "")
    shown = set(TOKEN.findall(header))
    if header:
        _judge(header, targets[0], request.META.get("HTTP_HOST", ""))
    for target in targets:
        by_path: dict[str, list[Lock]] = {}
        for lock in in_the_way(target, living(target), below=below):
            by_path.setdefault(lock.path, []).append(lock)
        for there in by_path.values():  # of shared locks one is enough
            if not any(lock.token in shown and lock.holder == holder for lock in there):
                raise HttpError(423, f"path: is locked by {there[0].holder} until {there[0].expires:%H:%M:%S} UTC")


def forget(target: Target) -> None:
    """What is gone is locked no more."""
    for lock in living(target):
        if lock.path == target.path or not target.path or lock.path.startswith(target.path + "/"):
            lock.delete()


def sweep() -> None:
    """Removes the locks that have run out. Called by the reconcile loop."""
    Lock.objects.filter(expires__lte=timezone.now()).delete()


def ending(request: HttpRequest):
    """When a lock asked for now runs out: `Timeout: Second-600`, an hour at the most."""
    told = re.search(r"Second-(\d{1,10})", request.META.get("HTTP_TIMEOUT", ""))
    seconds = min(int(told[1]), LONGEST_S) if told else DEFAULT_S
    return timezone.now() + timedelta(seconds=max(seconds, 1))


def etag(target: Target) -> str:
    """As nginx makes it; empty where there is no file."""
    info = tree.look(target.steps) if target.parts else None
    if info is None or not stat.S_ISREG(info.st_mode):
        return ""
    return f'"{int(info.st_mtime):x}-{info.st_size:x}"'


def _judge(header: str, target: Target, host: str) -> None:
    """One of the header's lists must be true (RFC 4918, 10.4). Raises HttpError 400 or 412."""
    resource, conditions, negated, lists, at = target, None, False, [], 0
    while at < len(header):
        found = PIECE.match(header, at)
        if found is None:
            raise HttpError(400, "If: not understood")
        at, piece = found.end(), found[1]
        match piece[0]:
            case "(" if conditions is None:
                conditions = []
            case ")" if conditions:
                lists.append(all(conditions))
                conditions = None
            case "<" if conditions is None:
                resource = parse_destination(piece[1:-1], host)
            case "<" | "[" if conditions is not None:
                conditions.append(_holds(piece, resource) is not negated)
                negated = False
            case "n" | "N" if conditions is not None:
                negated = True
            case _:
                raise HttpError(400, "If: not understood")
    if conditions is not None or not lists:
        raise HttpError(400, "If: not understood")
    if not any(lists):
        raise HttpError(412, "If: what it demands is not so")


def _holds(piece: str, resource: Target) -> bool:
    if piece[0] == "[":
        return piece[1:-1].strip() == etag(resource)
    return any(lock.token == piece[1:-1] and covers(lock, resource.path) for lock in living(resource))

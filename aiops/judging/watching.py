"""The workloads whose lines are judged: the administrators' watchlist, and what owners watch of their own beside it.

An owner's workload is judged by the serving model, and the next training that an administrator starts learns from it;
where its tenant has a model of its own, by that one (own_models).
"""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from accounts.lifecycle import hold_active
from accounts.models import User
from aiops.models import WatchedWorkload
from aiops.wire import kv, watchlist
from kernel.database import reachable
from kernel.errors import Fault, Refused
from kernel.locking import get_or_missing
from kernel.messages import Message

from . import own_models, scope


@reachable()
def owned() -> set[watchlist.Triple]:
    """Return the workloads that their owners watch. Raises Fault."""
    rows = WatchedWorkload.objects.values_list("namespace", "deployment")
    return {(scope.LOCAL, namespace, deployment) for namespace, deployment in rows}


def general() -> set[watchlist.Triple]:
    """Return the workloads on the administrators' watchlist. Raises Fault, also where the stored one is invalid."""
    try:
        return watchlist.triples(kv.watched() or {})
    except ValueError as problem:
        raise Fault(Message("the watchlist cannot be read: %(problem)s", problem=problem)) from problem


def triples() -> set[watchlist.Triple]:
    """Return all watched workloads. Raises Fault, also where the stored watchlist is invalid."""
    return general() | owned()


@dataclass(frozen=True)
class Known:
    """What is watched, and what of it waits for the first training of its tenant's own model, with whether that has
    begun or is queued.
    """

    watched: set[watchlist.Triple]
    untrained: dict[watchlist.Triple, bool]


def known() -> Known | None:
    """Return what is watched; None while that cannot be found out."""
    try:
        watched = triples()
        with reachable():
            return Known(watched, own_models.untrained(watched))
    except Fault:
        return None


def without_verdict(document: dict, known: Known | None) -> str:
    """Return why a line has no verdict: "" for one that is judged soon, else "unwatched", "untrained" while the model
    that judges it is not trained, or "training" while it is being trained for the first time, or is queued for it.
    """
    names = tuple(document.get(name, "") for name in ("cluster_id", "namespace_name", "deployment"))
    if document.get("log_type", "workload") != "workload" or known is None:
        return ""
    if names not in known.watched:
        return "unwatched"
    if names not in known.untrained:
        return ""
    return "training" if known.untrained[names] else "untrained"


def visible(user: User):
    """Return what is watched by owners of the namespaces that the user may see."""
    rows = WatchedWorkload.objects.select_related("by")
    names = scope.namespaces(user)
    return rows if names is None else rows.filter(namespace__in=names)


def require_room(user: User) -> None:
    """Raise Refused for a user who watches as many workloads as are allowed."""
    _require_count(user, WatchedWorkload.objects.filter(by=user).count() + 1)


def _require_count(user: User, count: int) -> None:
    most = settings.AIOPS_WATCHED_PER_USER
    if not user.is_administrator and count > most:
        raise Refused("at most %(most)s watched workloads of a user", field="deployment", most=most)


def watch(*, user: User, deployment: str, namespace: str = "") -> WatchedWorkload:
    """Watch a workload, by default of the user's own namespace. Idempotent. Raises Refused."""
    namespace = namespace or user.username
    if not scope.may_see(user, scope.LOCAL, namespace):
        raise Refused("must be a namespace whose lines you may see", field="namespace")
    with transaction.atomic():
        hold_active(user)
        row, created = WatchedWorkload.objects.get_or_create(
            namespace=namespace, deployment=deployment, defaults={"by": user}
        )
        if created:
            _require_count(user, WatchedWorkload.objects.filter(by=user).count())
    return row


def unwatch(user: User, number: int | None) -> None:
    """Watch a workload no longer. Raises Missing."""
    get_or_missing(visible(user), number, "watched workload").delete()

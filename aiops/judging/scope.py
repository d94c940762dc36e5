"""Which lines a user may see: decided here only, for searches, alerts, labels and exports.

A user's lines are those of the namespaces of the local cluster that have the names of the user and of the user's
service accounts. The administrator of a tenant sees those of its members as well, but only of members who are in no
tenant that somebody else administers, since a line belongs to a user and not to a tenant, and never those of
administrators of the platform. These see all lines of all clusters.
"""

from __future__ import annotations

from django.db.models import Exists, OuterRef, Q

from accounts.models import ADMINISTRATORS, Membership, Role, State, User

LOCAL = "local"  # the cluster of the platform itself and of its users' lines
CLUSTER, NAMESPACE = "cluster_id", "namespace_name.keyword"


def namespaces(user: User) -> frozenset[str] | None:
    """Return the namespaces of the local cluster whose lines the user may see; None for all lines."""
    if user.is_administrator:
        return None
    theirs = Q(pk=user.pk) | Q(owner_id=user.pk)
    led = _led_by(user)
    if led:
        memberships = Membership.objects.filter(user_id=OuterRef("pk"))
        members = User.objects.filter(Exists(memberships.filter(tenant__in=led)), ~ADMINISTRATORS, state=State.ACTIVED)
        members = members.exclude(Exists(memberships.exclude(tenant__in=led))).values("pk")
        theirs |= Q(pk__in=members) | Q(owner_id__in=members)
    return frozenset(User.objects.filter(theirs).values_list("username", flat=True)) | {user.username}


def _led_by(user: User) -> list[int]:
    """Return the keys of the tenants that the user administers; a service account administers none."""
    if user.owner_id is not None:
        return []
    return list(Membership.objects.filter(user_id=user.pk, role=Role.ADMIN).values_list("tenant_id", flat=True))


def may_see(user: User, cluster: str, namespace: str) -> bool:
    """Return whether the user may see all lines of that namespace; "" means any."""
    names = namespaces(user)
    return names is None or (cluster == LOCAL and namespace in names)


def owns(user: User, cluster: str, namespace: str) -> bool:
    """Return whether the namespace is the user's, or a service account's of the user; all are an administrator's."""
    if user.is_administrator:
        return True
    mine = Q(pk=user.pk) | Q(owner_id=user.pk)
    return cluster == LOCAL and User.objects.filter(mine, username=namespace).exists()


def clauses(user: User) -> list[dict]:
    """Return the conditions of the log store on the lines that the user may see."""
    names = namespaces(user)
    if names is None:
        return []
    within = {"term": {NAMESPACE: next(iter(names))}} if len(names) == 1 else {"terms": {NAMESPACE: sorted(names)}}
    return [{"term": {CLUSTER: LOCAL}}, within]  # a namespace of that name in another cluster is not the user's


def share_a_tenant(one: User, other: User) -> bool:
    """Return whether the two users are in the same tenant."""
    theirs = Membership.objects.filter(user_id=other.member_id).values("tenant_id")
    return Membership.objects.filter(user_id=one.member_id, tenant_id__in=theirs).exists()

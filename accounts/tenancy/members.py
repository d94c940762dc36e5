"""Adds, changes and removes members of tenants. The only writer of Membership. Called by api, pages, admin and signin.

Each change is a row of the audit log, kind `membership`, with the name of the tenant. What a user has submitted to a
tenant outlives the membership: it goes on until it ends, or until somebody ends it (resources.work).
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection, transaction
from django.db.models import Model, Q

from accounts import lifecycle, notices
from accounts.models import SUBMITTING, Membership, Role, State, User
from kernel import after_commit, remembered
from kernel.database import first_row
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.messages import Message, word
from kernel.models import record_change

Tenants = User._meta.get_field("tenant").related_model.objects
LEFT = "none"  # the role, in the audit log, of a user who is not a member

MEND = """
INSERT INTO tenant_member (user_id, tenant_id, role)
SELECT one.id, one.tenant_id, 'member' FROM "user" AS one
WHERE one.owner_id IS NULL
  AND NOT EXISTS (SELECT FROM tenant_member WHERE user_id = one.id AND tenant_id = one.tenant_id)
ON CONFLICT DO NOTHING
"""


def members_of(tenant: Model, reader: User):
    """Return those of the tenant's members that the reader may know of, by name: its administrators all of them, others
    these and themselves.
    """
    rows = Membership.objects.filter(tenant=tenant, user__state=State.ACTIVED)
    if not reader.administers(tenant.pk):
        rows = rows.filter(Q(role=Role.ADMIN) | Q(user_id=reader.member_id))
    return rows.select_related("user", "tenant").order_by("user__username")


def visible(user: User, name: str) -> Model:
    """Return the tenant to the platform's administrators and to those who are in it. Raises Missing for others."""
    tenant = Tenants.filter(name=name).first()
    if tenant is None or not (user.is_administrator or tenant.pk in user.roles()):
        raise Missing("tenant")
    return tenant


@remembered.memoized
def open_to(user: User) -> list[Model]:
    """Return the tenants that the user may submit to, by name."""
    rows = Membership.objects.filter(user_id=user.member_id, role__in=SUBMITTING).select_related("tenant")
    return [row.tenant for row in rows.order_by("tenant__name")]


@remembered.memoized
def chosen(user: User, name: str | None) -> Model:
    """Return the tenant of that name that the user submits to, by default their own one.

    Raises Missing for a tenant that they are not in, Refused for one in which they may only look.
    """
    key = {"pk": user.tenant_id} if name is None else {"name": name}
    tenant = first_row(Tenants.model, key)
    role = user.roles().get(tenant.pk) if tenant is not None else None
    if role is None:  # the same answer for a tenant of others and for none at all
        raise Missing("tenant")
    if role not in SUBMITTING:
        raise Refused("you are a viewer of the tenant %(tenant)s; only its members can submit", field="tenant",
                      tenant=tenant.name)  # fmt: skip
    return tenant


def hold(user: User, name: str | None) -> Model:
    """Return the tenant that a new object will belong to, and lock the user's row until the caller's transaction ends.

    It must be the first lock of the transaction: a change of roles waits for it, so a role that is lost admits nothing
    after the change. Raises as `chosen`, and Refused when the account is not active.
    """
    lifecycle.hold_active(user)
    return chosen(user, name)


def put(*, tenant: str, user: str, role: str, by: str, by_groups: bool = False) -> Membership:
    """Add a member, or give one another role. Raises Missing for an unknown tenant, Refused for an unknown user."""
    row = _tenant(tenant)
    if role not in Role.values:
        raise Refused("must be one of %(choices)s", field="role", choices=", ".join(Role.values))
    with transaction.atomic():
        member = _locked(user)[0]
        if not member.is_active:
            raise Refused("no active user has this name", field="user")
        if member.owner_id is not None:
            raise Refused("a service account has the tenants of its owner", field="user")
        membership = Membership.objects.filter(user=member, tenant=row).first()
        before = membership.role if membership is not None else LEFT
        if membership is not None and (before, membership.by_groups) == (role, by_groups):
            return membership
        membership = membership or Membership(user=member, tenant=row)
        membership.role, membership.by_groups = role, by_groups
        membership.save()
        if before != role:
            record_change(membership, transition="member", source=before, target=role, by=by)
            _tell(membership, by)
    return membership


def remove(*, tenant: str, user: str, by: str) -> Membership:
    """Take a user out of a tenant; if it was their default, another is. Raises Missing, and Refused for the last."""
    row = _tenant(tenant)
    with transaction.atomic():
        people = _locked(user)
        membership = Membership.objects.filter(user=people[0], tenant=row).select_related("user", "tenant").first()
        if membership is None:
            raise Missing("member")
        _remove(membership, people, by)
    return membership


def require_other(membership: Membership) -> None:
    """Raise Refused for the only membership of a user."""
    if not Membership.objects.filter(user=membership.user_id).exclude(pk=membership.pk).exists():
        raise Refused("this is the only tenant of %(user)s; add them to another one first, or deactivate the account",
                      field="user", user=membership.user.username)  # fmt: skip


def _remove(membership: Membership, people: list[User], by: str) -> None:
    """Delete the membership of the first of the locked people; the others are that user's service accounts."""
    member = people[0]
    require_other(membership)
    others = Membership.objects.filter(user=member).exclude(pk=membership.pk).order_by("pk")
    if member.tenant_id == membership.tenant_id:
        best = next((other for other in others if other.role in SUBMITTING), others[0])
        _move(member, best.tenant_id)
    key = membership.pk
    membership.delete()
    membership.pk = key
    record_change(membership, transition="member", source=membership.role, target=LEFT, by=by)
    what = Message(
        "%(by)s removed you from the tenant %(tenant)s.", by=notices.name_of(by), tenant=membership.tenant.name
    )
    _notify(member, membership.tenant, by, what)


def make_default(*, user: User, tenant: str, by: str) -> None:
    """Let new objects of the user, and of their service accounts, belong to that tenant where they name none. Raises
    Refused for a service account, else as `chosen`.
    """
    if user.owner_id is not None:
        raise Refused("a service account has the tenants of its owner", field="user")
    with transaction.atomic():
        member = _locked(user.username)[0]
        _move(member, chosen(member, tenant).pk)
        after_commit.changed(member.username, "user", "")


def follow_groups(user: User, roles: Sequence[tuple[str, str]], by: str) -> None:
    """Make the user's tenants those of their groups: [(tenant, role)…], the most important first.

    What others have given stays, except that a group's role replaces a lower one. A user whom groups have put into
    tenants and who is in none of such groups any more gets the tenant `default`. Raises Refused for a tenant that does
    not exist.
    """
    with transaction.atomic():
        people = _locked(user.username)
        member = people[0]
        rows = {
            membership.tenant.name: membership
            for membership in Membership.objects.filter(user=member).select_related("tenant")
        }
        given = dict(roles)
        order = list(Role.values)
        for tenant, role in roles:
            if not Tenants.filter(name=tenant).exists():
                raise Refused(
                    "your groups belong to the tenant %(tenant)s, which does not exist; tell an administrator",
                    tenant=tenant,
                )
            have = rows.get(tenant)
            if have is None or have.by_groups or order.index(role) > order.index(have.role):
                put(tenant=tenant, user=member.username, role=role, by=by, by_groups=True)
        gone = [membership for name, membership in rows.items() if membership.by_groups and name not in given]
        if gone and not given and all(row.by_groups for row in rows.values()):
            put(tenant="default", user=member.username, role=Role.MEMBER, by=by)
        for membership in gone:
            membership.user = member
            _remove(membership, people, by)


def forget_first(user: User, tenants: Sequence[str]) -> None:
    """Let a user whom groups have just brought into these tenants be in none but them; the first is their default."""
    Membership.objects.filter(user=user).exclude(tenant__name__in=tenants).delete()
    _move(user, Tenants.get(name=tenants[0]).pk)


def mend() -> int:
    """Add the memberships that an older release has not written; return how many. Called at each start."""
    with connection.cursor() as cursor:
        cursor.execute(MEND)
        return cursor.rowcount


def _tenant(name: str) -> Model:
    row = Tenants.filter(name=name).first()
    if row is None:
        raise Missing("tenant")
    return row


def _locked(username: str) -> list[User]:
    """Lock a user and their service accounts, in the order of their keys: what these create waits, too. Return the user
    first. Raises Refused.
    """
    both = Q(username=username) | Q(owner__username=username)
    rows = list(User.objects.select_for_update(of=("self",), no_key=True).filter(both).order_by("pk"))
    rows.sort(key=lambda row: row.username != username)
    if not rows or rows[0].username != username:
        raise Refused("no active user has this name", field="user")
    return rows


def _move(member: User, tenant_id: int) -> None:
    User.objects.filter(Q(pk=member.pk) | Q(owner=member)).update(tenant=tenant_id)
    member.tenant_id = tenant_id


def _tell(membership: Membership, by: str) -> None:
    what = Message("%(by)s made you a %(role)s of the tenant %(tenant)s.", by=notices.name_of(by),
                   role=word(Role(membership.role).label), tenant=membership.tenant.name)  # fmt: skip
    _notify(membership.user, membership.tenant, by, what)


def _notify(member: User, tenant: Model, by: str, what: Message) -> None:
    if notices.name_of(by) != member.username:
        notices.notify(user=member, kind="tenant", name=tenant.name, event="changed", reason=what)
    after_commit.changed(member.username, "user", "")  # open pages check their rights again

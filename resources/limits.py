"""Limits of single users inside a tenant: none until an operator sets one. Called by tcc, api and admin.

A user's own row replaces the row for everybody (`*` on the wire) as a whole. It limits what the user's objects hold in
that tenant; `database` and `outputs` limit the members whose default tenant it is, below MLP_DATABASE_LIMIT_MIB and
MLP_OUTPUTS_LIMIT_MIB. A limit below what they hold now only refuses further requests.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.db.models import Sum

from kernel import remembered
from kernel.errors import Refused
from kernel.locking import Missing

from .models import EVERYBODY, KINDS, LIVE, ResourceRequest, Tenant, UserLimit
from .units import amounts, kinds_of, with_unit, zero

LIMITED = (*KINDS, "database", "outputs")  # the fields of a limit; these two in MiB, asked by kernel.stored and jobs
OF_DEFAULT = """
SELECT who.id, user_limit.database, user_limit.outputs FROM user_limit JOIN "user" AS who USING (tenant_id)
WHERE who.id = ANY(%s) AND user_limit.user IN (who.username, '') ORDER BY user_limit.user
"""


class OverLimit(Refused):
    """The user's own limit is exceeded: the tenant may have enough, and others need not wait."""


@remembered.memoized
def limit_of(tenant_id: int, user: str) -> UserLimit | None:
    """Return the limit that applies to the user: their own, else everybody's, else None."""
    rows = {row.user: row for row in UserLimit.objects.filter(tenant_id=tenant_id, user__in=[user, ""])}
    return rows.get(user) or rows.get("")


def effective_limit(tenant: Tenant, user: str) -> UserLimit:
    """Return the limit that applies to the user, else an empty one that is not stored. Raises Missing."""
    name = _known(user)
    return limit_of(tenant.pk, name) or UserLimit(tenant=tenant, user=name)


def mib_of(users: Iterable[int], kind: str) -> dict[int, int]:
    """Return the MiB of `database` or `outputs` that their default tenants allow users; those without are left out."""
    with connection.cursor() as cursor:
        cursor.execute(OF_DEFAULT, [list(users)])
        rows = {user: dict(zip(("database", "outputs"), amounts, strict=True)) for user, *amounts in cursor.fetchall()}
    return {user: row[kind] for user, row in rows.items() if row[kind] is not None}


def database_mib(user_id: int) -> int | None:
    """Return the user's `database`, as kernel.stored asks for it."""
    return mib_of([user_id], "database").get(user_id)


def used_by(tenant_id: int, user: str, but: str = "") -> dict:
    """Return what the user's objects hold in the tenant, without the request `but`."""
    live = ResourceRequest.objects.filter(LIVE, tenant_id=tenant_id, owner=user).exclude(pk=but)
    return kinds_of(live.aggregate(**{f"{kind}_sum": Sum(kind) for kind in KINDS}), "_sum")


def overview(tenant_id: int, most: int = 200) -> list[dict]:
    """Return user, use and limit of each user who uses or may use something by an own limit, by name.

    At most `most` rows. `limit` is None for a user whom no limit applies to; the user "" is not listed.
    """
    own = {row.user: row for row in UserLimit.objects.filter(tenant_id=tenant_id)}
    everybody = own.pop("", None)
    requests = ResourceRequest.objects.filter(LIVE, tenant_id=tenant_id, owner__gt="").values("owner").order_by()
    sums = requests.annotate(**{f"{kind}_sum": Sum(kind) for kind in KINDS})
    used = {row["owner"]: kinds_of(row, "_sum") for row in sums}
    nothing = {kind: zero(kind) for kind in KINDS}
    return [
        {"user": name, "used": used.get(name, nothing), "limit": own.get(name, everybody)}
        for name in sorted(own.keys() | used.keys())[:most]
    ]


def exceeded(limit: UserLimit, user: str, has: dict, wanted: dict) -> OverLimit | None:
    """Return the refusal if the amounts exceed the limit of a user who already has `has`; else None.

    While the tenant's row is locked, a user's sum does not change.
    """
    for kind, value in wanted.items():
        most = getattr(limit, kind)
        if most is not None and value and has[kind] + value > most:
            return OverLimit(
                "requested %(asked)s, but user %(user)s already uses %(used)s of a limit of %(limit)s",
                field=kind, asked=with_unit(kind, value), used=with_unit(kind, has[kind]),
                limit=with_unit(kind, most), user=user,
            )  # fmt: skip
    return None


def never_fits(tenant_id: int, user: str, wanted: dict) -> None:
    """Raise OverLimit when the amounts alone exceed the user's limit, so that waiting would not help."""
    limit = limit_of(tenant_id, user)
    for kind, value in wanted.items():
        most = getattr(limit, kind, None)
        if most is not None and value > most:
            used = with_unit(kind, used_by(tenant_id, user)[kind])
            raise OverLimit(
                "requested %(asked)s, but the limit for user %(user)s is %(limit)s (%(used)s in use)",
                field=kind, asked=with_unit(kind, value), user=user, limit=with_unit(kind, most), used=used,
            )  # fmt: skip


def set_limit(*, tenant: str, user: str, by: str, **values) -> UserLimit:
    """Set the named limits, None for no limit; the others stay. `user` may be `*`. Raises Missing."""
    name = _known(user)
    rounded = {
        kind: value if value is None or kind not in KINDS else amounts(**{kind: value})[kind]
        for kind, value in values.items()
    }
    with transaction.atomic():
        row = Tenant.objects.select_for_update(no_key=True).filter(name=tenant).first()
        if row is None:
            raise Missing("tenant")
        limit, _ = UserLimit.objects.update_or_create(tenant=row, user=name, defaults=rounded)
    return limit


def remove_limit(*, tenant: str, user: str, by: str) -> UserLimit:
    """Delete the limit and return it as it was. Raises Missing."""
    name = "" if user == EVERYBODY else user
    with transaction.atomic():
        limit = UserLimit.objects.select_for_update(of=("self",)).filter(tenant__name=tenant, user=name).first()
        if limit is None:
            raise Missing("limit")
        limit.delete()
    return limit


def _known(user: str) -> str:
    """Return the user's name as in the rows, "" for `*`. Raises Missing when there is no such user."""
    if user == EVERYBODY:
        return ""
    if user == "" or not get_user_model().objects.filter(username=user).exists():
        raise Missing("user")
    return user

"""Usage by owner and kind, now and over time. reconcile takes samples; api and pages read them.

A sample is a snapshot of one tenant: a row for each owner and kind that holds something. It is stored when it differs
from the last one, and every ten minutes anyway, so the usage at any time is the last snapshot before it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Sum
from django.utils import timezone

from kernel import clock
from kernel.models import StateChange

from .models import GIVEN_BACK, KINDS, LIVE, ResourceRequest, Tenant, UsageSample
from .units import kinds_of, zero

SNAPSHOT_AFTER = timedelta(minutes=10)
KEPT = timedelta(days=90)
STEPS_S = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
POINTS = 150
BY = {"owner": "owner", "kind": "applier"}

# For each moment of the chart the last snapshot before it: one index lookup each, however long the history is.
SERIES = """
SELECT moment.at, sample.{column}, SUM(sample.gpu), SUM(sample.cpu), SUM(sample.ram), SUM(sample.rom)
FROM unnest(%(times)s::timestamptz[]) AS moment (at)
CROSS JOIN LATERAL (
    SELECT at FROM usage_sample WHERE tenant_id = %(tenant)s AND at <= moment.at ORDER BY at DESC LIMIT 1
) AS snapshot
JOIN usage_sample AS sample ON sample.tenant_id = %(tenant)s AND sample.at = snapshot.at
WHERE sample.applier <> '' AND (%(owner)s::text IS NULL OR sample.owner = %(owner)s)
GROUP BY moment.at, sample.{column}
"""


def holders(tenant: Tenant | None = None) -> dict[int, dict[tuple[str, str], dict]]:
    """Return what is held now, by tenant and then by (owner, applier), in one query. Owner "" is REST's."""
    rows = ResourceRequest.objects.filter(LIVE | GIVEN_BACK, **({} if tenant is None else {"tenant": tenant}))
    sums = rows.values("tenant_id", "owner", "applier").annotate(
        **{f"{kind}_taken": Sum(kind, filter=LIVE) for kind in KINDS},
        **{f"{kind}_given": Sum(kind, filter=GIVEN_BACK) for kind in KINDS},
    )
    by_tenant: dict[int, dict] = {}
    for row in sums:
        taken, given = kinds_of(row, "_taken"), kinds_of(row, "_given")
        # releases are not tied to requests, so one applier may have released what another had requested
        left = {kind: max(taken[kind] - given[kind], zero(kind)) for kind in KINDS}
        if any(left.values()):
            by_tenant.setdefault(row["tenant_id"], {})[row["owner"], row["applier"]] = left
    return by_tenant


def _kind_and_number(row: ResourceRequest) -> tuple[str, str]:
    """Return the history's kind and the key of the object that the request is for, from its id: `app:7`."""
    kind, _colon, number = row.pk.partition(":")
    return ("application" if kind == "app" else kind), number


def with_objects(requests: list[ResourceRequest]) -> list[tuple[ResourceRequest, str, str]]:
    """Return each request with the kind and the name of its object, as far as the history has them.

    The history is used because the objects' apps import this one.
    """
    keys = {row.pk: _kind_and_number(row) for row in requests}
    ids = [int(number) for _kind, number in keys.values() if number.isdigit()]
    changes = StateChange.objects.filter(
        transition="create", kind__in={kind for kind, _number in keys.values()}, object_id__in=ids
    )
    names = {(kind, str(pk)): name for kind, pk, name in changes.values_list("kind", "object_id", "name")}
    return [(row, keys[row.pk][0], names.get(keys[row.pk], "")) for row in requests]


def record(now: datetime | None = None) -> int:
    """Store a snapshot of every tenant that has changed or has no recent one; return how many were stored."""
    now, by_tenant, taken = now or timezone.now(), holders(), 0
    for pk in Tenant.objects.values_list("pk", flat=True):
        snapshot = by_tenant.get(pk, {})
        last = UsageSample.objects.filter(tenant_id=pk).order_by("-at").values_list("at", flat=True).first()
        if last is not None and (last >= now or (now - last < SNAPSHOT_AFTER and _snapshot(pk, last) == snapshot)):
            continue
        rows = [
            UsageSample(tenant_id=pk, at=now, owner=owner, applier=applier, **amounts)
            for (owner, applier), amounts in snapshot.items()
        ]
        with transaction.atomic():
            UsageSample.objects.bulk_create(rows or [UsageSample(tenant_id=pk, at=now)])
        taken += 1
    UsageSample.objects.filter(at__lt=clock.settled(now) - KEPT).delete()
    return taken


def _snapshot(tenant_id: int, at: datetime) -> dict:
    rows = UsageSample.objects.filter(tenant_id=tenant_id, at=at).exclude(applier="")
    return {(row.owner, row.applier): row.amounts() for row in rows}


def series(tenant: Tenant, since: datetime, until: datetime, by: str = "owner", owner: str | None = None) -> dict:
    """Return a tenant's usage between two moments for a stacked chart: a layer for each owner or kind (`by`).

    `owner` restricts it to one user. Each layer has a value for each of `times`, for each of gpu, cpu, ram, rom.
    """
    step, times = grid(since, until)
    parameters = {"times": times, "tenant": tenant.pk, "owner": owner}
    index = {at: number for number, at in enumerate(times)}
    layers: dict[str, dict] = {}
    with connection.cursor() as cursor:
        cursor.execute(SERIES.format(column=BY[by]), parameters)
        for at, name, *sums in cursor.fetchall():
            layer = layers.setdefault(name, {kind: [0] * len(times) for kind in KINDS})
            for kind, value in zip(KINDS, sums, strict=True):
                layer[kind][index[at]] = float(value) if kind == "cpu" else int(value)
    return {
        "tenant": tenant.name,
        "by": by,
        "since": since,
        "until": until,
        "step_s": step,
        "times": times,
        "layers": [{"name": name, **layers[name]} for name in sorted(layers)],
    }


def grid(since: datetime, until: datetime) -> tuple[int, list[datetime]]:
    """Return the step in seconds and round moments, at most POINTS of them, with `until` itself as the last."""
    span = (until - since).total_seconds()
    step = next((step for step in STEPS_S if span / step <= POINTS), STEPS_S[-1])
    first = int(since.timestamp() // step + 1) * step
    moments = range(first, int(until.timestamp()) + 1, step)
    times = [datetime.fromtimestamp(moment, tz=since.tzinfo) for moment in moments]
    return step, times if times and times[-1] == until else [*times, until]

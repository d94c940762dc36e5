"""Who holds what, now and over time. Samples are taken by reconcile; read by api and pages.

A sample is a picture of one tenant: a row for each owner and kind that holds something. It is kept when it differs
from the last one, and every ten minutes anyway. So what held at any time is in the last picture before it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Sum
from django.utils import timezone

from .models import GIVEN_BACK, KINDS, LIVE, ResourceRequest, Tenant, UsageSample
from .units import kinds_of, zero

AGAIN_AFTER = timedelta(minutes=10)
KEPT = timedelta(days=90)
STEPS_S = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
POINTS = 150
BY = {"owner": "owner", "kind": "applier"}

# For each moment of the chart the last picture before it: one look into the index each, however long the history.
SERIES = """
SELECT moment.at, sample.{column}, SUM(sample.gpu), SUM(sample.cpu), SUM(sample.ram), SUM(sample.rom)
FROM unnest(%(times)s::timestamptz[]) AS moment (at)
CROSS JOIN LATERAL (
    SELECT at FROM usage_sample WHERE tenant_id = %(tenant)s AND at <= moment.at ORDER BY at DESC LIMIT 1
) AS picture
JOIN usage_sample AS sample ON sample.tenant_id = %(tenant)s AND sample.at = picture.at
WHERE sample.applier <> '' AND (%(owner)s::text IS NULL OR sample.owner = %(owner)s)
GROUP BY moment.at, sample.{column}
"""


def holders(tenant: Tenant | None = None) -> dict[int, dict[tuple[str, str], dict]]:
    """What is held now: by tenant, then by (owner, applier). One query. Owner "" is what came over REST."""
    rows = ResourceRequest.objects.filter(LIVE | GIVEN_BACK, **({} if tenant is None else {"tenant": tenant}))
    sums = rows.values("tenant_id", "owner", "applier").annotate(
        **{f"{kind}_taken": Sum(kind, filter=LIVE) for kind in KINDS},
        **{f"{kind}_given": Sum(kind, filter=GIVEN_BACK) for kind in KINDS},
    )
    found: dict[int, dict] = {}
    for row in sums:
        taken, given = kinds_of(row, "_taken"), kinds_of(row, "_given")
        # releases are not tied to requests, so one applier may have given back what another had taken
        left = {kind: max(taken[kind] - given[kind], zero(kind)) for kind in KINDS}
        if any(left.values()):
            found.setdefault(row["tenant_id"], {})[row["owner"], row["applier"]] = left
    return found


def record(now: datetime | None = None) -> int:
    """Takes a picture of every tenant that has changed or was not looked at for long; returns how many."""
    now, held, taken = now or timezone.now(), holders(), 0
    for pk in Tenant.objects.values_list("pk", flat=True):
        picture = held.get(pk, {})
        last = UsageSample.objects.filter(tenant_id=pk).order_by("-at").values_list("at", flat=True).first()
        if last is not None and (last >= now or (now - last < AGAIN_AFTER and _picture(pk, last) == picture)):
            continue
        rows = [
            UsageSample(tenant_id=pk, at=now, owner=owner, applier=applier, **amounts)
            for (owner, applier), amounts in picture.items()
        ]
        with transaction.atomic():
            UsageSample.objects.bulk_create(rows or [UsageSample(tenant_id=pk, at=now)])
        taken += 1
    UsageSample.objects.filter(at__lt=now - KEPT).delete()
    return taken


def _picture(tenant_id: int, at: datetime) -> dict:
    rows = UsageSample.objects.filter(tenant_id=tenant_id, at=at).exclude(applier="")
    return {(row.owner, row.applier): row.amounts() for row in rows}


def series(tenant: Tenant, since: datetime, until: datetime, by: str = "owner", owner: str | None = None) -> dict:
    """The usage of a tenant between two moments for a stacked chart: a layer for each owner or kind (`by`).

    `owner` shows only theirs. Each layer has a value for each of `times`, for each of gpu, cpu, ram, rom.
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
    """Round moments, at most POINTS of them, and `until` itself as the last."""
    span = (until - since).total_seconds()
    step = next((step for step in STEPS_S if span / step <= POINTS), STEPS_S[-1])
    first = int(since.timestamp() // step + 1) * step
    moments = range(first, int(until.timestamp()) + 1, step)
    times = [datetime.fromtimestamp(moment, tz=since.tzinfo) for moment in moments]
    return step, times if times and times[-1] == until else [*times, until]

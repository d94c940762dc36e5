"""What the database knows: jobs and other objects by state, resources by tenant, deliveries, the server's own figures.

No query reads all rows of a table that grows: only states that are left again are counted, and those are indexed.
Finished work is counted when it finishes (`mlp_state_changes_total`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache

from django.db import connection, transaction
from django.db.models import Count, F, FloatField, Min, Q, QuerySet, Sum, Value
from django.utils import timezone
from prometheus_client import Metric

from accounts.models import Delivery
from aiops.models import TrainingRun
from apps.models import Application
from automation.models import PipelineRun, Sweep
from automation.models.sweep import ENDED
from datasets.models import Dataset
from jobs.models import Job
from models_app.models import Model, RegistryDelivery
from resources.models import KINDS, LENDABLE, Tenant

from .families import counter, gauge

LIMIT_MS = 3000
SIZE_EVERY_S = 60.0  # the size of a database is the sum of its files
UNSTEADY = Q(state__in=("creating", "deleting"))
# What is counted of each kind: all rows of an application, which takes a port, else the states that an index holds.
KEPT = (
    ("application", Application, Q()),
    ("dataset", Dataset, UNSTEADY),
    ("model", Model, UNSTEADY),
    ("training", TrainingRun, Q(state="training")),
    ("sweep", Sweep, ~Q(state__in=ENDED)),
    ("pipeline_run", PipelineRun, Q(state__in=("running", "deleting"))),
)
UNIT = {"cpu": 1, "gpu": 1, "ram": 1 << 20, "rom": 1}  # Prometheus has bytes
SHOWN = {"cpu": "cpu_cores", "gpu": "gpu_devices", "ram": "memory_bytes", "rom": "disk_bytes"}
STATISTICS = """
    SELECT xact_commit, xact_rollback, deadlocks, current_setting('max_connections')::int
    FROM pg_stat_database WHERE datname = current_database()
"""
CONNECTIONS = """
    SELECT coalesce(state, 'other'), count(*) FROM pg_stat_activity WHERE datname = current_database() GROUP BY 1
"""
_size: tuple[float, int] = (float("-inf"), 0)


def collect() -> Iterator[Metric]:
    """Yield the metrics of one moment. A query that takes LIMIT_MS ends the collection."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL statement_timeout = {LIMIT_MS}")
        yield from _jobs(cursor)
        yield from _objects(cursor)
        yield from _resources(cursor)
        yield from _deliveries(cursor)
        yield from _server(cursor)


def _rows(cursor, question: Callable[[], QuerySet]) -> list[tuple]:
    """Return the rows of a query that is always the same: Django composes it once."""
    cursor.execute(*_composed(question))
    return cursor.fetchall()


@cache
def _composed(question: Callable[[], QuerySet]) -> tuple[str, tuple]:
    return question().query.sql_with_params()


def _live_jobs() -> QuerySet:
    return (
        Job.objects.filter(state__in=("creating", "running", "deleting"))
        .order_by()
        .values_list("display_state", "origin")
        .annotate(
            Count("pk"),
            Min("created"),
            gpus=Sum(F("gpu") * F("workers"), output_field=FloatField()),
            cores=Sum(F("cpu") * F("workers"), output_field=FloatField()),
        )
    )


def _jobs(cursor) -> Iterator[Metric]:
    counts = {("queued", "job"): 0, ("starting", "job"): 0, ("running", "job"): 0}
    age_s, gpus, cores = 0.0, 0, 0
    for state, origin, count, oldest, wanted_gpus, wanted_cores in _rows(cursor, _live_jobs):
        counts[state, origin] = count
        if (state, origin) == ("queued", "job"):
            age_s = max(0.0, (timezone.now() - oldest).total_seconds())
            gpus, cores = wanted_gpus, wanted_cores
    yield gauge("mlp_jobs", "Jobs that have not ended, by their state.", ("state", "origin"), counts.items())
    yield gauge("mlp_job_queue_age_seconds", "Age of the oldest queued job.", (), [((), age_s)])
    wanted = [(("gpu_devices",), gpus), (("cpu_cores",), cores)]
    yield gauge("mlp_job_queue_requested", "Resources that queued jobs wait for.", ("resource",), wanted)


def _kept_objects() -> QuerySet:
    first, *others = [
        model._default_manager.filter(which).order_by().values_list(Value(kind), "state").annotate(Count("pk"))
        for kind, model, which in KEPT
    ]
    return first.union(*others, all=True)


def _objects(cursor) -> Iterator[Metric]:
    rows = [((kind, state), count) for kind, state, count in _rows(cursor, _kept_objects)]
    yield gauge(
        "mlp_objects", "Applications, and other objects in a state that they leave again.", ("kind", "state"), rows
    )


def _tenants() -> QuerySet:
    loans = [F(f"{kind}_{what}") if kind in LENDABLE else Value(0) for what in ("lent", "borrowed") for kind in KINDS]
    return Tenant.objects.order_by("name").values_list("name", *KINDS, *(f"{kind}_inuse" for kind in KINDS), *loans)


def _resources(cursor) -> Iterator[Metric]:
    rows: dict[str, list] = {"capacity": [], "in_use": [], "lent": [], "borrowed": [], "free": []}
    for name, *amounts in _rows(cursor, _tenants):
        for index, kind in enumerate(KINDS):
            has, used, lent, borrowed = amounts[index :: len(KINDS)]
            values = {"capacity": has, "in_use": used, "lent": lent, "borrowed": borrowed}
            values["free"] = has + borrowed - lent - used
            for what, amount in values.items():
                rows[what].append(((name, SHOWN[kind]), float(amount) * UNIT[kind]))
    for what, help in (
        ("capacity", "Resources that the tenant has."),
        ("in_use", "Resources of the tenant that are reserved."),
        ("lent", "Resources of the tenant that other tenants have borrowed."),
        ("borrowed", "Resources that the tenant has borrowed from others."),
        ("free", "Resources of the tenant that are neither reserved nor lent."),
    ):
        yield gauge(f"mlp_tenant_resources_{what}", help, ("tenant", "resource"), rows[what])


def _open_deliveries() -> QuerySet:
    one, other = [
        model.objects.filter(open=True).order_by().values_list(Value(kind)).annotate(Count("pk"), Min("not_before"))
        for kind, model in (("notice", Delivery), ("registry_webhook", RegistryDelivery))
    ]
    return one.union(other, all=True)


def _deliveries(cursor) -> Iterator[Metric]:
    counts, late = {}, {}
    for kind, count, due in _rows(cursor, _open_deliveries):
        counts[(kind,)] = count
        late[(kind,)] = max(0.0, (timezone.now() - due).total_seconds()) if due else 0.0
    yield gauge("mlp_deliveries_waiting", "Notices and webhook calls that wait to be sent.", ("kind",), counts.items())
    yield gauge("mlp_delivery_delay_seconds", "How long the oldest of them has been due.", ("kind",), late.items())


def _server(cursor) -> Iterator[Metric]:
    cursor.execute(STATISTICS)
    commits, rollbacks, deadlocks, most = cursor.fetchone()
    cursor.execute(CONNECTIONS)
    links = [((state,), count) for state, count in cursor.fetchall()]
    ends = [(("commit",), commits), (("rollback",), rollbacks)]
    yield counter("mlp_database_transactions", "Transactions of the database.", ("outcome",), ends)
    yield counter("mlp_database_deadlocks", "Deadlocks that the database has ended.", (), [((), deadlocks)])
    yield gauge("mlp_database_connections", "Connections to the database.", ("state",), links)
    yield gauge("mlp_database_connections_limit", "Connections that the server allows.", (), [((), most)])
    yield gauge("mlp_database_size_bytes", "Size of the database.", (), [((), _database_size(cursor))])


def _database_size(cursor) -> int:
    """Return the size of the database, at most SIZE_EVERY_S old."""
    global _size
    if time.monotonic() - _size[0] > SIZE_EVERY_S:
        cursor.execute("SELECT pg_database_size(current_database())")
        _size = time.monotonic(), cursor.fetchone()[0]
    return _size[1]

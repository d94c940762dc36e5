"""The platform's own state: parts, migrations, books, streams, what was left behind, backups."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import connection

import runners
from aiops.intake import quota
from aiops.models import TrainingRun
from apps.models import Application, Replica, Rollout
from datasets import orphans
from jobs.models import Job
from kernel import broker, consuming, units
from models_app.models import Model
from operations.accounting import SOURCES
from resources import books, inventory, products
from resources.models import GpuProduct, Tenant
from resources.units import with_unit
from supervision import health, launch, release
from supervision import root as roots
from supervision.part import run_dir
from tracking.metrics.recording import DURABLE, STREAM
from workspaces.models import Workspace

from .findings import Finding

LAG_WARNING_S, LAG_PROBLEM_S = 60, 600
MAX_TASKS = 1000
BACKUP_OLD = timedelta(hours=26)  # as deploy/monitoring/rules.yml has it
LONG_S = 600  # of a transaction
SETTLED_S = 60  # a run that was started just before may not be in its row yet
QUEUES = ("default", "files", "gpu")
OWNERS = (Job, Model, Application, Replica, Rollout, Workspace, TrainingRun)


def parts() -> Iterator[Finding]:
    """Ask whether the platform runs, and what its health is."""
    if (settings.MLP_ROOT / roots.HALF_RESTORED).exists():
        yield Finding("platform", "problem", "a restore of this root is not complete", "run `manage.py restore` again")
    with roots.lock() as stopped:
        if stopped:
            yield Finding("platform", "note", f"it does not run on {settings.MLP_ROOT}", "make up")
            return
    try:
        _, body = health.get(health.plain_gateway(), "/healthz", timeout_s=10)
        report = json.loads(body)
    except (OSError, ValueError, health.Unwell) as problem:
        yield Finding(
            "platform",
            "problem",
            f"the gateway does not answer: {problem}",
            "see {root}/log/gateway and {root}/log/web",
        )
        return
    for name in report.get("failing", ()):
        yield Finding("platform", "problem", f"{name}: {report['parts'][name]}", f"see {{root}}/log/{name}/{name}.log")
    if not report.get("failing"):
        yield Finding("platform", "ok", f"all {len(report['parts'])} parts work")


def migrations() -> Iterator[Finding]:
    there, known = release.applied(), release.known()
    if newer := sorted(there - known):
        yield Finding(
            "migrations", "problem", f"the database was migrated by a newer release ({newer[0]})",
            "start that release, or restore a backup of this one (docs/upgrade.md)",
        )  # fmt: skip
    elif pending := sorted(known - there):
        yield Finding("migrations", "warning", f"{len(pending)} are pending ({pending[0]})", "restart the platform")
    else:
        yield Finding("migrations", "ok", f"all {len(known)} are applied")


def resources() -> Iterator[Finding]:
    """Ask whether the books add up: the recorded use of resources, the requests, and the objects."""
    differences = [line for tenant in Tenant.objects.order_by("name") for line in books.explain(tenant, SOURCES)]
    for line in differences:
        what = f"{line.tenant}: {line.what} is recorded as {line.recorded}, and should be {line.expected}"
        yield Finding("books", "problem", what, "manage.py books --repair")
    if not differences:
        yield Finding("books", "ok", "the recorded use of resources is that of the objects")


def capacities() -> Iterator[Finding]:
    """Ask whether the tenants together have more than there is: administrators may have set so."""
    there, over = inventory.measured(), []
    for kind, value in there.items():
        given = sum(getattr(tenant, kind) for tenant in Tenant.objects.all())
        if given > value:
            over.append(f"{with_unit(kind, given)} of {with_unit(kind, value)} {kind}")
    if over:
        what = f"together they have more than the machine or the cluster: {', '.join(over)}"
        yield Finding("tenants", "warning", what, "set smaller capacities (docs/tenants.md)")
    else:
        yield Finding("tenants", "ok", "together they have no more than the machine or the cluster")


def requests() -> Iterator[Finding]:
    """Ask whether a single run may use all that there is."""
    bounds = {"cpu": settings.MAX_CPU, "gpu": settings.MAX_GPU, "ram": settings.MAX_RAM_MIB}
    names = {"cpu": "MLP_MAX_CPU", "gpu": "MLP_MAX_GPU", "ram": "MLP_MAX_RAM_MIB"}
    beyond = {kind: value for kind, value in inventory.measured().items() if kind in bounds and value > bounds[kind]}
    if beyond:
        there = ", ".join(f"{with_unit(kind, value)} {kind}" for kind, value in beyond.items())
        most = ", ".join(f"{with_unit(kind, bounds[kind])} {kind}" for kind in beyond)
        how = f"raise {', '.join(names[kind] for kind in beyond)} where single runs should use more"
        yield Finding("requests", "note", f"there are {there}; one worker or application may request {most}", how)
    else:
        yield Finding("requests", "ok", "one worker or application may request all that there is")


def gpu_types() -> Iterator[Finding]:
    """Ask which types of GPUs jobs can name, and whether the names that an administrator has given mean any."""
    known = GpuProduct.objects.exclude(name="").order_by("name")
    gone = [name for name in settings.GPU_TYPES if name not in products.offered()]
    if gone:
        what = f"no GPU here is of the types {', '.join(gone)} of MLP_GPU_TYPES, so jobs cannot name them"
        yield Finding("GPU types", "note", what, "compare their products with those at docs/jobs.md")
    elif known:
        yield Finding("GPU types", "ok", f"jobs can name those of {', '.join(map(str, known))}")


def stream() -> Iterator[Finding]:
    """Ask how far ingest is behind the stream of metrics."""
    waiting = consuming.backlog(STREAM.name, DURABLE, 5)
    summary = f"{waiting.messages} reports wait to be stored, the oldest for {waiting.age_s:.0f} s"
    if waiting.age_s < LAG_WARNING_S:
        yield Finding("stream", "ok", summary)
    else:
        level = "problem" if waiting.age_s >= LAG_PROBLEM_S else "warning"
        yield Finding("stream", level, summary, "see {root}/log/ingest/ingest.log, and the load of the database")


def tasks() -> Iterator[Finding]:
    client = broker.broker().client
    counts = {name: client.llen(f"dramatiq:{name}") for name in QUEUES}
    summary = ", ".join(f"{count} in {name}" for name, count in counts.items())
    if max(counts.values()) > MAX_TASKS:
        yield Finding("tasks", "warning", f"many tasks wait: {summary}", "see {root}/log/worker/worker.log")
    else:
        yield Finding("tasks", "ok", f"waiting tasks: {summary}")


def logs() -> Iterator[Finding]:
    """Ask whose log lines take all that a user's may, so that their oldest are removed."""
    full = quota.nearly_full()
    for name, use in sorted(full.items()):
        what = f"the lines of {name} take {use.mib} MiB of {use.limit} MiB: the oldest are removed"
        yield Finding("logs", "warning", what, "have them log less, or raise MLP_AIOPS_USER_MIB (docs/aiops.md)")
    if not full:
        yield Finding("logs", "ok", "no user's lines take what one user's may")


def sessions() -> Iterator[Finding]:
    """Ask the database for its connections and long transactions."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), current_setting('max_connections')::int, "
            "coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8 FROM pg_stat_activity "
            "WHERE backend_type = 'client backend'"
        )
        count, most, longest_s = cursor.fetchone()
    if count > 0.8 * most:
        yield Finding(
            "database",
            "warning",
            f"{count} of {most} connections are used",
            "raise max_connections, or end other users",
        )
    if longest_s > LONG_S:
        yield Finding(
            "database", "warning", f"a transaction has been open for {longest_s:.0f} s: rows that it sees are kept",
            "see pg_stat_activity (docs/debugging.md)",
        )  # fmt: skip
    if count <= 0.8 * most and longest_s <= LONG_S:
        yield Finding("database", "ok", f"{count} of {most} connections, no long transaction")


def leftovers() -> Iterator[Finding]:
    """Ask for processes without a platform, and, where it runs, for runs without an owner."""
    with roots.lock() as stopped:
        living = launch.living(*(run_dir() / "parts").glob("*/")) if stopped else set()
    if living:
        names = ", ".join(sorted(folder.name for folder in living))
        yield Finding("processes", "problem", f"parts of a killed platform still run: {names}", "make down, or make up")
    else:
        yield Finding("processes", "ok", "none is left by a killed platform")


def runs() -> Iterator[Finding]:
    names = runners.get().names()
    owned = {
        name for model in OWNERS for name in model.objects.filter(run_name__in=names).values_list("run_name", flat=True)
    }
    unknown = [name for name in names if name not in owned and _is_settled(name)]
    if unknown:
        shown = ", ".join(unknown[:5])
        yield Finding(
            "runs", "warning", f"{len(unknown)} belong to no job, model, application or training ({shown})",
            "reconcile ends them within a minute; see {root}/log/reconcile/reconcile.log if it does not",
        )  # fmt: skip
    else:
        yield Finding("runs", "ok", f"{len(names)} on record, each with an owner")


def _is_settled(name: str) -> bool:
    try:
        return time.time() - (run_dir() / "runs" / name).stat().st_mtime > SETTLED_S
    except OSError:
        return settings.MLP_RUNNER != "local"


def files() -> Iterator[Finding]:
    """Ask whether the datasets' rows and files match. Reads every folder, which takes long with many files."""
    findings = orphans.find()
    for finding in findings:
        yield Finding("files", "warning", f"{finding.where}: {finding.what}", "manage.py datasets check --repair")
    if not findings:
        yield Finding("files", "ok", "the datasets' rows and files match")


def backups() -> Iterator[Finding]:
    try:
        note = json.loads((run_dir() / "backup.json").read_text())
        age = datetime.now(UTC) - datetime.fromisoformat(note["completed"])
    except FileNotFoundError:
        yield Finding("backups", "warning", "there has been none", "manage.py backup DESTINATION (docs/backup.md)")
        return
    hours = age.total_seconds() / 3600
    if age > BACKUP_OLD:
        yield Finding(
            "backups",
            "warning",
            f"the last one was completed {units.count(round(hours), 'hour')} ago",
            "see why its timer did not run",
        )
    else:
        yield Finding("backups", "ok", f"the last one was completed {hours:.1f} hours ago")

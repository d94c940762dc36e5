"""The second half of a restore, in a process whose settings are those of the new root: the database and the streams.

Started by `restoring`. It runs the embedded servers alone, loads the dump, proves that its rows are those of the
backup, migrates it to this release, and finds what the files and the rows say differently. It writes what it found to
{root}/.restore/report.json.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import psycopg
from django.conf import settings
from django.core.management import call_command

import runners
from aiops.models import TrainingRun
from apps.models import Application
from datasets import orphans
from jobs.models import ENDED, Job
from kernel import storage
from kernel.errors import Refused
from kernel.messages import Message
from models_app.models import Model
from operations.accounting import SOURCES
from resources import books
from resources.models import Tenant
from supervision import servers_only
from workspaces.models import Workspace

from . import database, layout, streams
from .places import BackupError

KINDS = {"job": Job, "model": Model, "application": Application, "workspace": Workspace, "training": TrainingRun}


def refill(checks_only: bool) -> dict:
    """Load what lies in {root}/.restore; return the report.

    With `checks_only` nothing is repaired, and streams and rows are compared only. Raises BackupError.
    """
    root = Path(settings.MLP_ROOT)
    facts = json.loads((root / layout.WORK / "facts.json").read_text())
    try:
        with servers_only.running():
            report = _load(root, facts)
            call_command("migrate", interactive=False, verbosity=0)
            report |= {"books": _books(), "fingerprint": layout.fingerprint()}
            if checks_only:
                report["runs"] = [f"{kind} {name}" for kind, name, _ in _runs()]
            else:
                report["runs"] = _declare_lost(facts["moment"])
                report["repairs"] = _repair()
    except (servers_only.NotStarted, psycopg.Error) as problem:
        raise BackupError(str(problem).strip()) from problem
    storage.write_atomic(root / layout.REPORT, json.dumps(report).encode())
    return report


def _load(root: Path, facts: dict) -> dict:
    database.load(root / layout.DUMP, facts["replace"])
    differences = database.compare(facts["rows"])
    if differences:
        raise BackupError("the restored database is not that of the backup:\n" + "\n".join(differences))
    streams.load(root / layout.STREAMS, facts["streams"])
    differences = streams.compare(facts["streams"])
    if differences:
        raise BackupError("the restored streams are not those of the backup:\n" + "\n".join(differences))
    rows = sum(count for count, _ in facts["rows"].values())
    messages = sum(about["state"]["messages"] for about in facts["streams"].values())
    return {"tables": len(facts["rows"]), "rows": rows, "streams": len(facts["streams"]), "messages": messages}


def _books() -> list[str]:
    """Return the differences between the recorded use of resources and the objects, as `manage.py books` does."""
    differences = [line for tenant in Tenant.objects.order_by("name") for line in books.explain(tenant, SOURCES)]
    return [f"{line.tenant}: {line.what}: {line.recorded}, expected {line.expected}" for line in differences]


def _runs() -> list[tuple[str, str, str]]:
    """Return (kind, name, name of the run) of what ran at the moment of the backup."""
    jobs = Job.objects.exclude(run_name="").exclude(state__in=ENDED).filter(run_started=True).select_related("user")
    names = [("job", str(job), job.run_name) for job in jobs]
    for kind in ("model", "application", "workspace", "training"):
        names += [(kind, str(row), row.run_name) for row in KINDS[kind].objects.exclude(run_name="")]
    return names


def _declare_lost(moment: str) -> list[str]:
    """Record for the runner that these runs are gone, and why: reconcile ends their jobs with that reason."""
    at = f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M} UTC"
    why = Message("the run was lost when the platform was restored from its backup of %(time)s", time=at)
    runner, told = runners.get(), []
    for kind, name, run in _runs():
        runner.declare_lost(run, why)
        told.append(f"{kind} {name}")
    return told


def _repair() -> list[str]:
    """Repair what files and rows say differently, since some came or went while the files were copied."""
    try:
        findings = orphans.find()
    except orphans.NoStorage as problem:
        return [str(problem)]
    told = []
    for finding in findings:
        what = f"{finding.where}: {finding.what}"
        if finding.repair is None:
            told.append(f"{what}; not repaired: {finding.fix}")
            continue
        try:
            finding.repair()
            told.append(f"{what}; repaired: {finding.fix}")
        except (Refused, OSError) as problem:
            told.append(f"{what}; not repaired: {problem}")
    return told

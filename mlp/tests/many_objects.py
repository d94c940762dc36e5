"""A thousand jobs and hundreds of everything else, for tests and the benchmark of pages."""

from __future__ import annotations

from datetime import timedelta

from django.db import connection
from django.utils import timezone

from accounts.models import Notice
from aiops import logstore
from apps.models import Application
from datasets.models import Dataset
from jobs.models import Job, Metrics, Value
from kernel import storage
from kernel.models import StateChange
from models_app.models import Model
from resources import tcc

JOBS, OTHERS, EPOCHS, LINES, OUTSIDE, SCRIPTS = 1000, 300, 1000, 2000, 50, 50
LETTERS = "abcdefghij"


def name(number: int) -> str:
    return "n" + "".join(LETTERS[int(digit)] for digit in f"{number:04}")


def add(user, batch: int = 0) -> None:
    """Add one batch of objects beside those of `page_world.fill`; each batch has as many objects of each kind."""
    own, now = {"user": user, "tenant": user.tenant}, timezone.now()
    add_jobs(own, range(JOBS * batch, JOBS * (batch + 1)), now)
    add_others(own, range(OTHERS * batch, OTHERS * (batch + 1)))
    add_reports(range(EPOCHS * batch + 1, EPOCHS * (batch + 1) + 1), now)
    add_lines(user.username, range(LINES * batch, LINES * (batch + 1)), now)
    for number in range(OUTSIDE * batch, OUTSIDE * (batch + 1)):
        tcc.try_(id=f"ext-{number}", applier="jm", request_type="request", ram=1)
    for number in range(SCRIPTS):  # as many with each batch: their page lists all of them
        (storage.home_dir(user.username) / f"{name(number)}.py").write_text("print(1)\n" * 50)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def add_jobs(own: dict, numbers: range, now) -> None:
    states = ("finished", "finished", "error", "finished")
    rows = [
        Job(name=name(number), entry="train.py", state=states[number % 4], reason="exit code 1\n" * 20, **own)
        for number in numbers
    ]
    Job.objects.bulk_create(rows)
    StateChange.objects.bulk_create(
        StateChange(
            kind="job", owner=own["user"].username, name=row.name, object_id=row.pk, transition=step, source="",
            target=target, by="runner", reason=row.reason if target == "error" else "",
        )
        for row in rows
        for step, target in (("create", "creating"), ("start", "running"), ("fail", row.state))
    )  # fmt: skip
    Notice.objects.bulk_create(Notice(user=own["user"], kind="job", name=row.name, event=row.state) for row in rows)


def add_others(own: dict, numbers: range) -> None:
    Dataset.objects.bulk_create(Dataset(name=name(n), size=n, state="ready", **own) for n in numbers)
    Model.objects.bulk_create(Model(name=name(n), src="jobs/done", size=n, state="ready", **own) for n in numbers)
    served = Model.objects.get(name="net")
    Application.objects.bulk_create(
        Application(name=name(n), model=served, port=40000 + n, state="error", **own) for n in numbers
    )


def add_reports(steps: range, now) -> None:
    for job in Job.objects.filter(name__in=["fit", "done"]):
        Metrics.objects.filter(job=job, seq__in=steps).delete()
        Metrics.objects.bulk_create(
            Metrics(job=job, seq=n, epoch=n, accuracy=0.5, loss=1, progress=50, msg_id=str(n)) for n in steps
        )
        Value.objects.bulk_create(
            Value(job=job, name=f"series/{n % 10}", step=n, value=n, at=now, msg_id=str(n)) for n in steps
        )


def add_lines(owner: str, numbers: range, now) -> None:
    begin = int((now - timedelta(hours=1)).timestamp() * 1000)
    names = {"cluster_id": "local", "namespace_name": owner, "log_type": "workload"}
    logstore.get().append([
        {"_id": str(n), "time": begin + n * 500, "log": f"step {n} done", "deployment": f"job{n % 20}", **names}
        for n in numbers
    ])  # fmt: skip

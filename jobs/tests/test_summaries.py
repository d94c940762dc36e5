"""The parameters and summaries of runs: kept by what writes the runs, and filled by the migration in the same way."""

from __future__ import annotations

import importlib
import json
import math
from datetime import timedelta

import pytest
from django.apps import apps
from django.db import connection

from jobs import reconcile
from jobs.models import Job, Project, RunMetric, RunParam, Value
from jobs.summaries.arguments import number, parsed
from kernel import bus
from tracking.metrics import recording

migration = importlib.import_module("jobs.migrations.0010_summaries_of_jobs")


@pytest.mark.parametrize(
    ("args", "values"),
    [
        (["--lr", "0.1", "--epochs=3", "-b", "8"], {"lr": "0.1", "epochs": "3", "b": "8"}),
        (["model.lr=0.1", "+data=cifar", "--amp"], {"model.lr": "0.1", "data": "cifar", "amp": "true"}),
        (["--layers", "64", "128", "--out", "a b", "c"], {"layers": "64 128", "out": "a b"}),
        (["--bias", "-1.5", "--fast", "--seed", "-2e-3"], {"bias": "-1.5", "fast": "true", "seed": "-2e-3"}),
        (["--lr", "1", "--lr", "2", "--empty=", "--url=a=b"], {"lr": "2", "empty": "", "url": "a=b"}),
        (["train", "7", "--", "--not", "1"], {}),
        (["--" + "n" * 251, "1", "--a\ud800b", "\ud800"], {"a\ufffdb": "\ufffd"}),
        (["=", "-", "--=", "--1", "-1", "http://a/?b=c"], {}),
    ],
)
def test_arguments_are_read_as_names_and_values(args, values):
    assert parsed(args) == values


def test_only_finite_decimal_numbers_are_numbers():
    texts = ["0.1", "-3", "1e5", ".5", "1_000", "0x10", "nan", "inf", "1e999", "", " 1", "１"]
    assert [number(text) for text in texts] == [0.1, -3, 1e5, 0.5] + [None] * 8


def reports(job: Job, bodies: list[tuple[str, dict]]) -> None:
    deliveries = [
        bus.Delivery(subject, json.dumps(body).encode(), f"m{place}", place, job.created + timedelta(seconds=1))
        for place, (subject, body) in enumerate(bodies, 1)
    ]
    recording.record(deliveries)


def metric(epoch: int, loss: float) -> dict:
    return {"epoch": epoch, "accuracy": 0.5, "loss": loss, "progress": 0}


def summary() -> dict:
    rows = RunMetric.objects.values_list("name", "last", "min", "max", "count", "step")
    return {row[0]: row[1:] for row in rows}


@pytest.mark.django_db
def test_a_summary_has_each_stored_value_once_and_the_migration_finds_the_same(submit):
    job = submit(args=["--lr", "0.1", "name=a"])
    Job.objects.filter(pk=job.pk).update(run_name="job-1", attempt=1)
    own, other = recording.subject("alice", "fit"), recording.values_subject("alice", "fit")
    first = [(own, metric(1, 3)), (other, {"step": 4, "values": {"f1": 2, "norm": 7}}), (own, metric(2, 1))]
    reports(job, first)
    odd = (other, {"step": 1, "values": {"gap": math.nan}})
    more = [(other, {"step": 5, "values": {"f1": -1, "gap": 2}}), (own, metric(3, 2))]
    reports(job, [*first, odd, *more])
    expected = {
        "accuracy": (0.5, 0.5, 0.5, 3, 3),
        "loss": (2, 1, 3, 3, 3),
        "f1": (-1, -1, 2, 2, 5),
        "norm": (7, 7, 7, 1, 4),
        "gap": (2, 2, 2, 2, 5),
    }
    assert summary() == expected
    params = list(RunParam.objects.order_by("name").values_list("name", "text", "number"))
    assert params == [("lr", "0.1", 0.1), ("name", "a", None)]

    Value.objects.filter(name="gap").delete()  # NaN is stored since a later version
    del expected["gap"]
    RunMetric.objects.all().delete()
    RunParam.objects.all().delete()
    Job.objects.update(project=None)
    Project.objects.all().delete()
    with connection.cursor() as cursor:
        for statement in (migration.PROJECTS, migration.VALUES, migration.REPORTS):
            cursor.execute(statement)
    migration.fill_params(apps, None)
    assert summary() == expected
    assert list(RunParam.objects.order_by("name").values_list("name", "text", "number")) == params
    assert Job.objects.get().project == Project.objects.default_of(job.user)

    recording.delete(job.pk)
    assert summary() == {}


@pytest.mark.django_db
def test_a_submitted_job_is_in_a_project_with_tags_notes_and_group(submit, as_alice):
    submit()
    named = submit(name="other", project="vision: 2", tags=["baseline"], notes="**good**", group="sweep 1")
    assert named.project.name == "vision: 2"
    answer = as_alice.call("get", "users/alice/jobs/other").json()
    assert {key: answer[key] for key in ("project", "tags", "notes", "group", "favourite", "trashed")} == {
        "project": "vision: 2", "tags": {"baseline": ""}, "notes": "**good**", "group": "sweep 1", "favourite": False,
        "trashed": None,
    }  # fmt: skip
    assert as_alice.call("get", "users/alice/jobs/fit").json()["project"] == "default"
    Job.objects.update(project=None)  # as an older version of the platform leaves it
    reconcile.run()
    assert as_alice.call("get", "users/alice/jobs/other").json()["project"] == "default"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("tags", {"a=b": ""}, "must not contain"),
        ("tags", {"a": 1}, "the value of a must be a text"),
        ("tags", [" a"], "no space around"),
        ("tags", "a", "must be an object"),
        ("tags", {str(n): "" for n in range(101)}, "at most 100"),
        ("project", " ", "one line"),
        ("project", "a\nb", "one line"),
        ("group", "g" * 101, "1 to 100"),
        ("notes", "n" * 70_000, "at most 65536"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(as_alice, home, field, value, problem):
    (home / "train.py").write_text("")
    answer = as_alice.call("post", "users/alice/jobs", {"name": "fit", "entry": "train.py", field: value})
    assert answer.status_code == 403, answer.content
    assert answer.json()["msg"].startswith(f"{field}: ")
    assert problem in answer.json()["msg"]

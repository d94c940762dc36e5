"""`manage.py mlflow import` from a server that speaks MLflow's protocol over HTTP: this platform itself, as another
user. Nothing is missing afterwards, and nothing is there twice, also when the import is killed in the middle.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection

from accounts import lifecycle as accounts
from accounts.models import Notice
from jobs import trash
from jobs.artifacts import files
from jobs.models import Job, Project, RunMetric
from kernel import storage
from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S
from models_app.models import Imported, ModelVersion, RegisteredModel
from models_app.transfer.server import Away, Server
from resources.models import Tenant
from tracking.metrics.recording import too_many
from tracking.mlflow.tests.conftest import Mlflow

pytestmark = pytest.mark.django_db(transaction=True)

START = 1_700_000_000_000
SYSTEM = {"mlflow.source.name": "train.py", "mlflow.user": "carol", "mlflow.note.content": "# Notes"}


def tags(**values) -> list[dict]:
    return [{"key": key, "value": value} for key, value in values.items()]


class World:
    """What bob has on the server, and the import of it for alice."""

    def __init__(self, url: str, bob: str):
        self.url, self.bob, self.environment = f"{url}/mlflow", Mlflow(bob), {"MLFLOW_TRACKING_TOKEN": bob}

    def run(self, experiment: str, name: str, points: int = 3, status: str = "FINISHED", **given) -> str:
        call = self.bob.call
        run_id = call("post", "runs/create", experiment_id=experiment, run_name=name, user_id="carol",
                    start_time=START, tags=tags(**SYSTEM, **given))["run"]["info"]["run_id"]  # fmt: skip
        metrics = [
            {"key": key, "value": value, "timestamp": START + step, "step": step}
            for step in range(points)
            for key, value in (("loss", 1 / (step + 1)), ("acc", "NaN"))
        ]
        for at in range(0, len(metrics), 1000):
            call("post", "runs/log-batch", run_id=run_id, metrics=metrics[at : at + 1000])
        params = [{"key": "lr", "value": "0.1"}, {"key": "a/b c", "value": ""}]
        call("post", "runs/log-batch", run_id=run_id, params=params)
        dataset = {"name": "digits", "digest": "d1", "source_type": "local", "source": "{}"}
        call("post", "runs/log-inputs", run_id=run_id,
             datasets=[{"dataset": dataset, "tags": [{"key": "mlflow.data.context", "value": "train"}]}])  # fmt: skip
        if status != "RUNNING":
            call("post", "runs/update", run_id=run_id, status=status, end_time=START + 5000)
        return run_id

    def experiment(self, name: str) -> str:
        return self.bob.call("post", "experiments/create", name=name, tags=tags(team="red"))["experiment_id"]

    def take(self, *options: str, path=None) -> dict:
        """Import for alice; return the report."""
        arguments = ["import", self.url, "--user", "alice", *options]
        with contextlib.suppress(SystemExit):  # something could not be taken
            call_command("mlflow", *arguments, "--report", str(path), verbosity=0, stdout=io.StringIO())
        return json.loads(path.read_text())

    def start(self) -> subprocess.Popen:
        """Import for alice in a process of its own."""
        database = urlsplit(os.environ["DATABASE_URL"])._replace(path="/" + connection.settings_dict["NAME"]).geturl()
        command = [
            sys.executable,
            str(settings.BASE_DIR / "manage.py"),
            "mlflow",
            "import",
            self.url,
            "--user",
            "alice",
        ]
        environment = {**os.environ, **self.environment, "DATABASE_URL": database}
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


@pytest.fixture
def world(live_server, alice, bob, tasks, monkeypatch, tmp_path):
    world = World(live_server.url, accounts.token_of(bob))
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("models_app.transfer.server.PAUSE_S", 0.01)
    take = world.take
    world.take = lambda *options: take(*options, path=tmp_path / "report.json")
    return world


def without_ids(run: dict) -> dict:
    """Return what MLflow says of a run, but for the ids."""
    info = {key: run["info"][key] for key in ("run_name", "status", "start_time", "user_id")}
    info["end_time"] = run["info"].get("end_time")
    metrics = sorted(
        (metric["key"], metric["value"], metric["step"], metric["timestamp"]) for metric in run["data"]["metrics"]
    )
    own = {"mlflow.parentRunId", "mlflow.imported.run_id"}
    kept_tags = sorted((tag["key"], tag["value"]) for tag in run["data"]["tags"] if tag["key"] not in own)
    params = sorted((param["key"], param["value"]) for param in run["data"]["params"])
    return {"info": info, "metrics": metrics, "tags": kept_tags, "params": params, "inputs": run["inputs"]}


def test_nothing_is_taken_while_the_disk_is_nearly_full(world, alice, settings):
    run = world.run("0", "first")
    files.put_bytes(Job.objects.get(run_id=UUID(run)), "artifacts/a", b"x")
    minimum, settings.DISK_MINIMUM_MIB = settings.DISK_MINIMUM_MIB, 1 << 40
    with pytest.raises(CommandError, match="the disk is nearly full"):
        call_command("mlflow", "import", world.url, "--user", "alice", verbosity=0, stdout=io.StringIO())
    assert not Job.objects.filter(user=alice).exists()
    settings.DISK_MINIMUM_MIB = minimum
    assert world.take()["complete"]


def test_experiments_and_runs_arrive_with_all_that_they_have_and_once(world, alice, bob):
    digits = world.experiment("vision/digits")
    parent = world.run(digits, "parent")
    world.run(digits, "child", status="FAILED", **{"mlflow.parentRunId": parent, "mood": "fine"})
    world.run(digits, "killed", status="KILLED")
    world.run("0", "alone", points=1500, status="RUNNING")
    job = Job.objects.get(run_id=UUID(parent))
    for path, data in (("conf.json", b"{}"), ("notes/h\u00e4llo %.txt", b"hello"), ("empty", b"")):
        files.put_bytes(job, f"artifacts/{path}", data)
    before = world.take("--dry-run")
    assert before["counts"]["runs"] == {"new": 4}
    assert not Job.objects.filter(user=alice).exists()

    report = world.take()
    assert report["complete"], report
    points = 3 * 2 * 3 + 2 * 1500
    assert {row["what"]: row["here"] for row in report["verified"]} == {
        "runs": 4, "metric points": points, "parameters": 8, "datasets of runs": 4, "artifacts": 3,
        "bytes of artifacts": 7,
    }  # fmt: skip
    mine, theirs = Mlflow(accounts.token_of(alice)), world.bob
    project = Project.objects.get(user=alice, name="vision/digits")
    assert project.tags == {"team": "red"}
    for mlflow, experiments in ((mine, [str(project.pk), "0"]), (theirs, [digits, "0"])):
        runs = mlflow.call("post", "runs/search", experiment_ids=experiments)["runs"]
        mlflow.found = sorted(map(without_ids, runs), key=lambda run: run["info"]["run_name"])
    assert mine.found == theirs.found
    child, mother = Job.objects.get(user=alice, title="child"), Job.objects.get(user=alice, title="parent")
    assert child.parent == mother
    assert child.system_tags["mlflow.parentRunId"] == mother.run_id.hex
    assert child.state == "error"
    taken = storage.job_dir("alice", mother.name) / "artifacts"
    assert {path: (taken / path).read_bytes() for path, _info in storage.files(taken)} == {
        "conf.json": b"{}", "notes/h\u00e4llo %.txt": b"hello", "empty": b"",
    }  # fmt: skip
    long = Job.objects.get(user=alice, title="alone")
    assert long.project.default
    history = mine.call("get", "metrics/get-history", run_id=long.run_id.hex, metric_key="loss")["metrics"]
    assert [point["step"] for point in history] == list(range(1500))
    assert math.isnan(RunMetric.objects.get(job=long, name="acc").last)
    assert not Notice.objects.filter(user=alice).exists()  # what ended elsewhere is no news

    # again: only what is new or changed
    alone = theirs.call("post", "runs/search", experiment_ids=["0"])["runs"][0]["info"]["run_id"]
    theirs.call("post", "runs/log-metric", run_id=alone, key="loss", value=7, timestamp=START, step=1500)
    theirs.call("post", "runs/set-tag", run_id=parent, key="late", value="yes")
    world.run(digits, "another")
    trash.trash_one(child, "alice")
    report = world.take()
    assert report["counts"]["runs"] == {"new": 1, "changed": 2, "unchanged": 1, "left out": 1}, report
    assert Job.objects.filter(user=alice).count() == 5
    mother.refresh_from_db()
    assert mother.tags["late"] == "yes"
    assert RunMetric.objects.get(job=long, name="loss").count == 1501
    assert Job.objects.get(pk=child.pk).trashed is not None


def locks() -> int:
    """Return the number of advisory locks that are held in this test's database."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database"
            " WHERE locktype = 'advisory' AND datname = current_database()"
        )
        return cursor.fetchone()[0]


@pytest.mark.long
def test_an_import_that_is_killed_is_continued_and_nothing_is_there_twice(world, alice):
    wide = world.experiment("wide")
    for number in range(30):
        world.run(wide, f"run{number}", points=20)
    importing = world.start()
    end = time.monotonic() + LIMIT_S
    while Imported.objects.filter(user=alice, kind="run").exclude(mark="").count() < 5 and time.monotonic() < end:
        assert importing.poll() is None, importing.stderr.read()
        threading.Event().wait(0.01)
    importing.send_signal(signal.SIGKILL)
    importing.communicate()
    until(lambda: not locks(), LIMIT_S)  # the database ends the connection of the killed process
    begun = Job.objects.filter(user=alice).count()
    assert 5 <= begun < 30
    report = world.take()
    assert report["complete"], report
    assert Job.objects.filter(user=alice).count() == Imported.objects.filter(user=alice, kind="run").count() == 30
    assert {row["what"]: row["here"] for row in report["verified"]}["metric points"] == 30 * 40
    assert set(RunMetric.objects.filter(job__user=alice).values_list("count", flat=True)) == {20}
    assert report["counts"]["runs"]["unchanged"] >= 5


def test_the_registry_arrives_with_its_numbers_stages_aliases_and_tags(world, alice):
    call = world.bob.call
    run = world.run("0", "fit")
    call("post", "registered-models/create", name="churn", description="Who leaves", tags=tags(team="red"))
    for number in range(4):
        call("post", "model-versions/create", name="churn", source=f"s3://bucket/{number}", run_id=run,
             tags=tags(n=str(number)))  # fmt: skip
    call("delete", "model-versions/delete", name="churn", version="2")
    call("post", "model-versions/transition-stage", name="churn", version="3", stage="Production",
         archive_existing_versions=False)  # fmt: skip
    call("post", "registered-models/alias", name="churn", alias="champion", version="4")
    prompt = tags(**{"mlflow.prompt.is_prompt": "true"})
    call("post", "registered-models/create", name="greet", tags=prompt)
    call("post", "model-versions/create", name="greet", source="prompt", tags=prompt)
    report = world.take()
    assert report["complete"], report
    model = RegisteredModel.objects.get(user=alice, name="churn")
    assert (model.description, model.tags) == ("Who leaves", {"team": "red"})
    assert list(model.versions.order_by("number").values_list("number", flat=True)) == [1, 3, 4]
    assert model.versions.get(number=3).stage == "Production"
    fourth = model.versions.get(number=4)
    assert [alias.name for alias in fourth.aliases.all()] == ["champion"]
    assert (fourth.source, fourth.tags, fourth.job) == ("s3://bucket/3", {"n": "3"}, Job.objects.get(user=alice))
    assert RegisteredModel.objects.get(user=alice, name="greet").versions.count() == 1

    call("post", "registered-models/alias", name="churn", alias="champion", version="3")
    call("post", "model-versions/create", name="churn", source="s3://bucket/5")
    report = world.take()
    assert report["complete"], report
    assert report["counts"]["model versions"]["new"] == 1
    assert ModelVersion.objects.filter(registered=model).count() == 4
    assert model.aliases.get().version.number == 3


def test_what_cannot_be_taken_is_reported(world, alice, settings, tmp_path):
    digits = world.experiment("digits")
    world.run(digits, "small")
    world.run(digits, "large", points=400)
    world.run(world.experiment("other"), "other")
    settings.JOB_VALUES = 100
    report = world.take("--experiments", "dig*")
    assert not report["complete"]
    assert [problem["why"] for problem in report["not_copied"]] == [str(too_many())]
    assert Job.objects.filter(user=alice).count() == 2
    missing = {row["what"]: row["there"] - row["here"] for row in report["verified"]}
    assert missing == {"runs": 0, "metric points": 800, "parameters": 0, "datasets of runs": 0}
    settings.JOB_VALUES = 1000
    assert world.take("--experiments", "dig*")["complete"]


@pytest.mark.long
def test_artifacts_beyond_the_quota_are_named_and_come_with_the_next_call(world, alice, default_tenant):
    run = world.run("0", "large")
    world.bob.call("post", "registered-models/create", name="churn")  # its version is made before the files are there
    world.bob.call("post", "model-versions/create", name="churn", source=f"runs:/{run}/model", run_id=run)
    job = Job.objects.get(run_id=UUID(run))
    files.put_bytes(job, "artifacts/large.bin", b"x" * 300_000)
    files.put_bytes(job, "artifacts/model/small.bin", b"y" * 1000)
    Tenant.objects.update(rom=600_000)  # bob's files, and not all of alice's
    report = world.take("--no-models")
    assert not report["complete"]
    assert [problem["what"].partition(": ")[2] for problem in report["not_copied"]] == ["artifact large.bin"]
    assert "bytes" in report["not_copied"][0]["why"]
    assert {row["what"]: row["here"] for row in report["verified"]}["artifacts"] == 1
    Tenant.objects.update(rom=10 << 20)
    report = world.take()
    assert report["complete"], report
    assert report["counts"]["artifacts"] == {"new": 1, "unchanged": 1}
    version = ModelVersion.objects.get(registered__user=alice)
    assert version.model is not None
    assert version.model.src == f"jobs/{Job.objects.get(user=alice).name}/artifacts/model"


@pytest.mark.parametrize(
    ("url", "token", "says"),
    [
        ("http://127.0.0.1:9", "", "does not answer"),
        ("ftp://example", "", "must be the http"),
        ("{server}/mlflow", "", "asks for a login"),
        ("{server}/mlflow", "wrong", "asks for a login"),
        ("{server}", "", "does not answer as|Not Found|404|not an endpoint"),
    ],
)
def test_a_server_that_does_not_serve_us_is_named(live_server, alice, monkeypatch, url, token, says):
    monkeypatch.setattr("models_app.transfer.server.PAUSE_S", 0.001)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", token)
    with pytest.raises(CommandError, match=says):
        call_command("mlflow", "import", url.format(server=live_server.url), "--user", "alice", verbosity=0)


@pytest.mark.long
def test_an_export_that_is_cut_off_is_continued_and_nothing_is_there_twice(world, alice, bob, monkeypatch, tmp_path):
    """Exports what bob has to a server, which is the platform as alice."""
    digits = world.experiment("digits")
    parent = world.run(digits, "parent", points=1200)
    for number in range(6):
        world.run(digits, f"child{number}", status="FAILED", **{"mlflow.parentRunId": parent})
    call = world.bob.call
    call("post", "registered-models/create", name="churn", tags=tags(team="red"))
    for number in range(3):
        call("post", "model-versions/create", name="churn", source=f"s3://bucket/{number}", run_id=parent)
    call("delete", "model-versions/delete", name="churn", version="2")
    call("post", "registered-models/alias", name="churn", alias="champion", version="3")
    mine = Mlflow(accounts.token_of(alice))
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", mine.token)
    real, sent = Server.post, []

    def cut(self, route, **body):
        sent.append(route)
        if len(sent) == 25:
            raise Away("cut off")
        return real(self, route, **body)

    def export() -> dict:
        arguments = ["export", world.url, "--user", "bob", "--report", str(tmp_path / "out.json")]
        call_command("mlflow", *arguments, verbosity=0, stdout=io.StringIO())
        return json.loads((tmp_path / "out.json").read_text())

    with monkeypatch.context() as patch:
        patch.setattr(Server, "post", cut)
        with pytest.raises(CommandError, match="cut off"):
            export()
    assert 0 < Job.objects.filter(user=alice).count() < 7
    report = export()
    assert report["complete"], report
    assert {row["what"]: row["here"] for row in report["verified"]}["runs"] == 7
    jobs = Job.objects.filter(user=alice, project__name="digits")
    assert sorted(jobs.values_list("title", flat=True)) == [*(f"child{number}" for number in range(6)), "parent"]
    mother = jobs.get(title="parent")
    assert set(mother.summaries.values_list("name", "count")) == {("loss", 1200), ("acc", 1200)}
    assert {child.system_tags["mlflow.parentRunId"] for child in jobs.exclude(pk=mother.pk)} == {mother.run_id.hex}
    assert (mother.started.timestamp(), mother.ended.timestamp()) == (START / 1000, START / 1000 + 5)
    model = RegisteredModel.objects.get(user=alice, name="churn")
    assert list(model.versions.order_by("number").values_list("number", "job__title")) == [(1, "parent"), (3, "parent")]
    assert model.aliases.get().version.number == 3
    again = export()
    assert again["complete"], again
    assert again["counts"]["runs"] == {"unchanged": 7}
    assert again["counts"]["model versions"] == {"unchanged": 2}

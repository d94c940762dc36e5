"""What an import or export cannot copy is in its report, and its exit status says so; the rest is copied."""

from __future__ import annotations

import contextlib
import io
import json
from uuid import UUID

import pytest
from django.core.management import call_command

from accounts import lifecycle as accounts
from jobs.artifacts import files
from jobs.models import Job, LoggedModel
from kernel import storage
from models_app.transfer.server import Server
from models_app.transfer.source import Source
from tracking.mlflow.tests.conftest import Mlflow

from .test_mlflow_import import START, world  # noqa: F401 (a fixture)

pytestmark = pytest.mark.django_db(transaction=True)

HOOK = {
    "name": "hook",
    "url": "https://93.184.216.34/secret",
    "events": [{"entity": "MODEL_VERSION", "action": "CREATED"}],
}


def lost(report: dict) -> list[tuple[str, str]]:
    """Return what could not be copied, without the name of the run or experiment, and the reason."""
    assert report["complete"] is not bool(report["not_copied"])
    return [(loss["what"].partition(": ")[2] or loss["what"], loss["why"]) for loss in report["not_copied"]]


@pytest.fixture
def export(world, alice, monkeypatch, tmp_path):  # noqa: F811
    """Exports what bob has to a server, which is the platform as alice."""
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", accounts.token_of(alice))

    def call(*options: str) -> dict:
        with contextlib.suppress(SystemExit):
            call_command("mlflow", "export", world.url, "--user", "bob", "--report", str(tmp_path / "out.json"),
                         *options, verbosity=0, stdout=io.StringIO())  # fmt: skip
        return json.loads((tmp_path / "out.json").read_text())

    return call


@pytest.mark.long
def test_a_webhook_is_named_until_one_of_its_address_is_there(world, export, alice, monkeypatch):  # noqa: F811
    mine, secret = Mlflow(accounts.token_of(alice)), "a server does not give out its secret; create it again"
    world.bob.call("post", "webhooks", **HOOK, secret="s")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", world.bob.token)
    assert lost(world.take()) == [("webhook hook to 93.184.216.34", secret)]
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", mine.token)
    assert lost(export()) == [("webhook hook to 93.184.216.34", secret)]
    assert export("--no-models")["complete"]
    mine.call("post", "webhooks", **{**HOOK, "name": "other"}, secret="s")
    assert export()["complete"]
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", world.bob.token)
    assert world.take()["complete"]


@pytest.mark.long
def test_objects_of_an_experiment_that_are_not_kept_are_named(world, monkeypatch):  # noqa: F811
    digits, real = world.experiment("digits"), Server.ask_3

    def answer(self, method, route, **fields):
        if route == "review-queues/list":
            return {"review_queues": [{"name": "first"}] if fields.get("experiment_id") == digits else []}
        return real(self, method, route, **fields)

    monkeypatch.setattr(Server, "ask_3", answer)
    assert lost(world.take("--experiments", "digits")) == [
        ("review queues: 1 (first)", "the platform does not keep them")
    ]


@pytest.mark.long
def test_a_logged_model_whose_run_is_not_there_gets_a_run_of_its_own(world, alice, monkeypatch):  # noqa: F811
    digits = world.experiment("digits")
    logged = world.bob.call("post", "logged-models", experiment_id=digits, name="outside", params=[])
    key = logged["model"]["info"]["model_id"]
    files.put_bytes(LoggedModel.objects.get(key=key).job, f"models/{key}/MLmodel", b"flavors: {}")
    world.bob.call("patch", f"logged-models/{key}", status="LOGGED_MODEL_READY")
    report = world.take()
    assert report["complete"], report
    model = LoggedModel.objects.get(user=alice)
    assert (model.name, model.status, model.job.title, model.job.state) == ("outside", "LOGGED_MODEL_READY",
                                                                             "outside", "finished")  # fmt: skip
    assert (storage.job_dir("alice", model.job.name) / "models" / model.key / "MLmodel").read_bytes() == b"flavors: {}"
    number = Job.objects.filter(user=alice).count()
    again = world.take("--again")
    assert again["complete"], again
    assert again["counts"]["logged models"] == {"changed": 1}
    assert Job.objects.filter(user=alice).count() == number

    # what is deleted here is not brought back, and is no loss
    Mlflow(accounts.token_of(alice)).call("delete", f"logged-models/{model.key}")
    again = world.take("--again")
    assert again["complete"], again
    assert again["counts"]["logged models"] == {"left out": 1}
    assert not (storage.job_dir("alice", model.job.name) / "models" / model.key / "MLmodel").exists()


def test_a_logged_model_of_a_deleted_run_remembers_the_run(world, alice, monkeypatch):  # noqa: F811
    digits, gone = world.experiment("digits"), "c0" * 16
    info = {"model_id": "m-" + "d1" * 16, "name": "net", "source_run_id": gone, "creation_timestamp_ms": START,
            "status": "LOGGED_MODEL_READY", "artifact_uri": f"mlflow-artifacts:/{digits}/models/none"}  # fmt: skip
    logged_models = lambda self, key: iter([{"info": info, "data": {}}] if key == digits else [])  # noqa: E731
    monkeypatch.setattr("models_app.transfer.source.Source.logged_models", logged_models)
    monkeypatch.setattr("models_app.transfer.source.Source.model_files", lambda *given: iter(()))
    report = world.take("--since", "2024-01-01")  # it was logged before
    assert report["complete"], report
    assert report["counts"]["logged models"] == {"left out": 1}
    report = world.take()
    assert report["complete"], report
    job = LoggedModel.objects.get(key=info["model_id"]).job
    assert job.system_tags["mlflow.imported.run_id"] == gone
    assert int(job.started.timestamp() * 1000) == START


@pytest.mark.long
def test_one_folder_that_cannot_be_listed_does_not_hide_the_others(world, alice, monkeypatch):  # noqa: F811
    run = world.run("0", "deep")
    job = Job.objects.get(run_id=UUID(run))
    for path in ("a/b/c/deep.txt", "a/b.txt", "z.txt"):
        files.put_bytes(job, f"artifacts/{path}", b"x")
    with monkeypatch.context() as patch:
        patch.setattr("models_app.transfer.source.LEVELS", 1)
        assert lost(world.take()) == [("folder a/b", "its folders are nested more than 1 deep")]
    taken = storage.job_dir("alice", Job.objects.get(user=alice).name) / "artifacts"
    assert sorted(path for path, _info in storage.files(taken)) == ["a/b.txt", "z.txt"]
    report = world.take()
    assert report["complete"], report
    assert (taken / "a/b/c/deep.txt").read_bytes() == b"x"


def test_links_and_deep_folders_of_an_output_are_exported_or_named(world, export, monkeypatch):  # noqa: F811
    sent = {}

    def upload(self, address, opened, size):  # nginx takes files, which is not here
        sent[address.partition("/artifacts/")[2].partition("/artifacts/")[2]] = opened().read()

    monkeypatch.setattr(Server, "upload", upload)
    run = world.run("0", "linked")
    job = Job.objects.get(run_id=UUID(run))
    files.put_bytes(job, "ckpt/step9.pt", b"weights")
    top = storage.job_dir("bob", job.name)
    (top / "last.pt").symlink_to("ckpt/step9.pt")
    (top / "ckpt/newest.pt").symlink_to("../last.pt")
    (top / "folder").symlink_to("ckpt")
    (top / "outside").symlink_to("/etc/hostname")
    (top / "round").symlink_to("round")
    (top / "one/two/three").mkdir(parents=True)
    monkeypatch.setattr("kernel.storage.LEVELS", 2)
    link = "is a link that leads to no file of the output"
    assert sorted(lost(export())) == [
        ("artifact folder", link), ("artifact one/two/three", "is nested more than 2 folders deep"),
        ("artifact outside", link), ("artifact round", link),
    ]  # fmt: skip
    assert sent == dict.fromkeys(("ckpt/newest.pt", "ckpt/step9.pt", "last.pt"), b"weights")


@pytest.mark.long
def test_times_of_runs_are_those_of_the_server_or_named(world, alice, monkeypatch):  # noqa: F811
    digits, real = world.experiment("digits"), Source.runs
    given = {
        "epoch": {"start_time": 0, "end_time": 5000},
        "open end": {"end_time": None},
        "early": {"start_time": -1, "end_time": 5000},
        "micro": {"end_time": START * 1000},
    }
    for name in given:
        world.run(digits, name)

    def runs(self, *arguments):
        for row in real(self, *arguments):
            yield {**row, "info": {**row["info"], **given[row["info"]["run_name"]]}}

    monkeypatch.setattr(Source, "runs", runs)
    unfit = "cannot be stored: it is not within the years 1970 to 9999, in milliseconds"
    named = {("start time -1", unfit), (f"end time {START * 1000}", unfit)}
    assert set(lost(world.take("--experiments", "digits"))) == named
    times = {job.title: (job.started.timestamp() * 1000, job.ended.timestamp() * 1000) for job in
             Job.objects.filter(user=alice)}  # fmt: skip
    assert times == {"epoch": (0, 5000), "open end": (START, START), "early": (5000, 5000), "micro": (START, START)}
    assert set(lost(world.take("--experiments", "digits"))) == named  # not only the first time

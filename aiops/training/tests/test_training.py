"""From the watchlist to a serving version: a training as a run, on real NATS, database and runner.

The trainer is a stand-in of a few lines, which reports and writes what the real one does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

import runners
from aiops import lifecycle, logstore, reconcile
from aiops.conftest import js
from aiops.models import ModelVersion, TrainingRun
from aiops.services.gpu_controller import GpuController
from aiops.services.training_controller import TrainingController
from aiops.training import launching, requests
from aiops.wire import folders, kv, lease
from kernel import bus, keyvalue
from kernel.broker import broker
from kernel.errors import Fault
from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S
from resources.models import ResourceRequest, Tenant
from runners import gpus

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_run_left")]

ACTORS = broker().actors
WORKLOADS = {"c1": {"shop": ["web"]}}
WORKLOAD = {"cluster_id": "c1", "namespace_name": "shop", "deployment": "web", "log_type": "workload"}
WORDS = ("opened", "closed", "accepted", "moved", "renamed", "copied")


class Store:
    """A log store that returns the same few hundred lines for every query."""

    def __init__(self):
        self.lines = [
            {"_id": f"n{n}", "log": f"session {n} {WORDS[n % 6]} for user{n % 5} on 10.0.0.{n % 250}", **WORKLOAD}
            for n in range(400)
        ]

    def count(self, body):
        return len(self.lines)

    def scan(self, body):
        return iter(self.lines)


@pytest.fixture(autouse=True)
def store(monkeypatch):
    store = Store()
    monkeypatch.setattr(logstore, "get", lambda: store)
    return store


TRAINER = """
import json, pathlib, sys, time
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
lines = pathlib.Path(given["--lines"]).read_text().splitlines()
with open(given["--progress"], "a") as file:
    for epoch in (1, 2, 3):
        row = {"stage": "train", "epoch": epoch, "epochs": 3, "percent": 33 * epoch, "elapsed": epoch,
               "eta": 3 - epoch, "loss": 1 / epoch}
        file.write(json.dumps(row) + chr(10)); file.flush(); time.sleep(0.1)
out = pathlib.Path(given["--out"]); out.mkdir()
(out / "nulog_model_latest.pt").write_text("weights"); (out / "vocab.txt").write_text("words")
(out / "manifest.json").write_text(json.dumps({"lines": len(lines)}))
"""


def stand_in(make):
    def spec(run):
        run_spec = make(run)
        at = run_spec.command.index("--lines")
        object.__setattr__(run_spec, "command", [run_spec.command[0], "-c", TRAINER, *run_spec.command[at:]])
        return run_spec

    return spec


@pytest.fixture(autouse=True)
def quick_trainer(monkeypatch):
    monkeypatch.setattr(launching.RUNS, "spec", stand_in(launching.RUNS.spec))


@pytest.fixture(autouse=True)
def no_gpu(db):
    Tenant.objects.filter(name="default").update(gpu=0)


@pytest.fixture
def world(served, tasks, peer):
    """Yield `world(condition)`, which lets everything work until the condition is true."""
    for subject in ("gpu_trainingjob_status", "model_update", "model_workload_parameters"):
        peer.listen(subject)
    served(TrainingController(), GpuController())
    return working(tasks)


def working(tasks):
    """Run workers and the reconcile loop until the condition is true; return its value."""

    def work(true, words=str):
        def look():
            tasks.run()
            reconcile.run()
            return true()

        return until(look, LIMIT_S, lambda: f"{words()} {requests.state()}")

    return work


def settled() -> TrainingRun | None:
    return TrainingRun.objects.exclude(state="training").filter(announced=True, job_end_sent=True, run_name="").first()


def test_from_the_watchlist_to_a_serving_version(world, peer):
    assert requests.request_training(WORKLOADS) == "training job submitted"
    assert requests.state()["status"] == "training"
    seen = []

    def trained():
        seen.append((kv.model_status() or {}).get("statistics"))
        return settled()

    run = world(trained)
    assert run.state == "completed", run.reason
    assert any(status and status["stage"] == "train" for status in seen)
    assert (run.percent, run.workloads) == (100, WORKLOADS)
    assert peer.wait("gpu_trainingjob_status", 2) == [b"JobStart", b"JobEnd"]
    assert [js(data) for data in peer.wait("model_update", 2)] == [
        {"status": "training"},
        {"bucket": "opni-nulog-models",
         "bucket_files": {"model_file": "nulog_model_latest.pt", "vocab_file": "vocab.txt"}},
    ]  # fmt: skip
    last, _ = keyvalue.get_json("model-training-parameters", "lastModelTrained")
    assert (last["source"], last["model"]) == ("drain", "nulog-train")
    assert last["payload"]["parameters"] == {"uuid": str(run.uuid), "workloads": WORKLOADS}
    stored, _ = keyvalue.get_json("model-training-statistics", "modelTrainingStatus")
    assert stored["status"] == "completed"
    assert set(stored["statistics"]) <= {
        "timeElapsed", "percentageCompleted", "remainingTime", "currentEpoch", "modelAccuracy", "stage",
    }  # fmt: skip
    assert all(isinstance(stored["statistics"][name], str) for name in ("percentageCompleted",))
    assert ModelVersion.objects.get(serving=True).run == run
    assert not lease.is_live(lease.current())


def test_without_lines_the_training_fails_with_a_reason_and_can_be_retried(world, peer, store):
    """Bug 2: the original's page stayed in `training` for ever."""
    lines, store.lines = store.lines, []
    requests.request_training(WORKLOADS)
    run = world(settled)
    assert run.state == "error"
    assert "no log line" in run.reason
    assert kv.model_status()["status"] == "training failed"
    assert "no log line" in requests.state()["reason"]
    assert peer.wait("gpu_trainingjob_status", 2) == [b"JobStart", b"JobEnd"]
    store.lines = lines
    requests.request_training(WORKLOADS)
    assert world(lambda: TrainingRun.objects.filter(state="completed", announced=True).first())


def test_a_failed_training_has_a_reason_and_the_last_model_keeps_serving(world, peer, monkeypatch):
    requests.request_training(WORKLOADS)
    first = world(settled)
    serving = ModelVersion.objects.get(serving=True)
    monkeypatch.setattr(launching.RUNS, "spec", broken(launching.RUNS.spec))
    requests.request_training({"c1": {"shop": ["web", "cart"]}})
    world(lambda: TrainingRun.objects.filter(state="error", announced=True, run_name="").exclude(pk=first.pk).first())
    assert kv.model_status()["status"] == "training failed"
    assert "no such shape" in requests.state()["reason"]
    assert ModelVersion.objects.get(serving=True) == serving
    assert peer.wait("gpu_trainingjob_status", 4) == [b"JobStart", b"JobEnd"] * 2
    assert kv.last_trained().uuid == str(first.uuid)


def test_a_successful_exit_without_a_complete_model_is_a_failure(world, peer, monkeypatch):
    """Bug 9: the original said `completed` before anything was saved."""
    monkeypatch.setattr(launching.RUNS, "spec", empty(launching.RUNS.spec))
    requests.request_training(WORKLOADS)
    run = world(settled)
    assert run.state == "error"
    assert "nulog_model_latest.pt" in run.reason
    assert kv.model_status()["status"] == "training failed"
    assert not ModelVersion.objects.exists()
    assert [js(data) for data in peer.wait("model_update")] == [{"status": "training"}]


def empty(make):
    """A trainer that writes its manifest and exits with 0."""

    def spec(run):
        run_spec = make(run)
        out = run_spec.command[run_spec.command.index("--out") + 1]
        code = f"import pathlib; p = pathlib.Path({out!r}); p.mkdir(); (p / 'manifest.json').write_text('{{}}')"
        object.__setattr__(run_spec, "command", [run_spec.command[0], "-c", code])
        return run_spec

    return spec


def broken(make):
    """A trainer that reports an error and exits with 1."""

    def spec(run):
        run_spec = make(run)
        progress = run_spec.command[run_spec.command.index("--progress") + 1]
        line = json.dumps({"stage": "train", "error": "no such shape"})
        code = f"open({progress!r}, 'a').write({line!r} + chr(10)); raise SystemExit(1)"
        object.__setattr__(run_spec, "command", [run_spec.command[0], "-c", code])
        return run_spec

    return spec


def slow(make):
    """A trainer that starts and never ends."""

    def spec(run):
        run_spec = make(run)
        progress = run_spec.command[run_spec.command.index("--progress") + 1]
        line = json.dumps({"stage": "train", "percent": 5, "elapsed": 1, "eta": 99, "epoch": 1, "epochs": 3, "loss": 2})
        code = f"import time; open({progress!r}, 'a').write({line!r} + chr(10)); time.sleep(600)"
        object.__setattr__(run_spec, "command", [run_spec.command[0], "-c", code])
        return run_spec

    return spec


def begun(world) -> TrainingRun:
    world(lambda: TrainingRun.objects.filter(state="training", percent=5).first())
    return TrainingRun.objects.get(state="training")


def test_clearing_the_watchlist_ends_a_running_training(world, peer, monkeypatch):
    """Issues 1815 and 1825: stuck in a training, the watchlist could not be cleared."""
    monkeypatch.setattr(launching.RUNS, "spec", slow(launching.RUNS.spec))
    requests.request_training(WORKLOADS)
    run = begun(world)
    status = requests.state()
    assert (status["status"], status["statistics"]["currentEpoch"], status["loss"]) == ("training", 1, 2)
    assert requests.request_training({}) == "model reset"
    run = world(settled)
    assert (run.state, run.reason) == ("error", "cancelled: the watchlist was cleared")
    assert kv.model_status()["status"] == "no model trained"
    assert peer.wait("gpu_trainingjob_status", 2) == [b"JobStart", b"JobEnd"]
    world(lambda: runners.get().names() == [])


def test_a_trainer_killed_with_its_watcher_is_restarted(world, monkeypatch):
    spec = launching.RUNS.spec
    monkeypatch.setattr(launching.RUNS, "spec", slow(spec))
    requests.request_training(WORKLOADS)
    run = begun(world)
    monkeypatch.setattr(launching.RUNS, "spec", spec)
    kill_all_of(run.run_name)
    run = world(settled)
    assert (run.state, run.attempt) == ("completed", 2), run.reason


def kill_all_of(run_name: str) -> None:
    """Kill every process of the run with SIGKILL, until there is none."""
    while pids := processes_of(run_name):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def processes_of(run_name: str) -> list[int]:
    """Return the processes of the run, the one that watches it first."""
    marks = [run_name.encode(), str(runners.get().folder / run_name).encode()]
    pids = []
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            where = os.readlink(f"/proc/{pid}/cwd").encode()
            if pid != os.getpid() and any(mark in command or mark in where for mark in marks):
                pids.append(pid)
    return pids


def test_a_hanging_trainer_fails_when_its_lease_expires(world, peer, monkeypatch):
    monkeypatch.setattr(launching.RUNS, "spec", slow(launching.RUNS.spec))
    monkeypatch.setattr(lifecycle, "LEASE_S", 1)
    requests.request_training(WORKLOADS)
    run = world(settled)
    assert run.state == "error"
    assert "not reported" in run.reason
    assert kv.model_status()["status"] == "training failed"
    assert peer.wait("gpu_trainingjob_status", 2) == [b"JobStart", b"JobEnd"]


def test_a_lasting_outage_of_the_log_store_fails_the_training_with_a_reason(world, store, monkeypatch):
    monkeypatch.setattr(lifecycle, "LEASE_S", 1)
    monkeypatch.setattr(launching, "AGAIN_AFTER_S", 0.2)

    def away(body):
        raise Fault("the log store does not answer")

    monkeypatch.setattr(store, "scan", away)
    monkeypatch.setattr(store, "count", away)
    monkeypatch.setitem(ACTORS, "aiops.train", tolerant(ACTORS["aiops.train"]))
    requests.request_training(WORKLOADS)
    run = world(settled)
    assert run.state == "error"
    assert "the log store does not answer" in run.reason
    assert kv.model_status()["status"] == "training failed"


def tolerant(actor):
    """Handle errors as a worker does: a task that fails is retried, and does not affect other tasks."""

    def run(*arguments):
        with contextlib.suppress(Fault):
            actor.fn(*arguments)

    return SimpleNamespace(queue_name=actor.queue_name, fn=run)


def test_jobend_is_sent_once_however_often_the_end_is_settled(world, peer, store):
    store.lines = []
    requests.request_training(WORKLOADS)
    run = world(settled)
    for _ in range(3):
        launching.settle(run.pk)
        reconcile.run()
    bus.send([])
    assert peer.wait("gpu_trainingjob_status", 2) == [b"JobStart", b"JobEnd"]


def test_without_nats_the_end_is_announced_later(tasks, monkeypatch):
    order = {"source": "drain", "model": "nulog-train", "payload": {"parameters": {"uuid": str(uuid.uuid4())}}}
    run, _ = lifecycle.create_run(order=order, by="test")
    lifecycle.fail(run.pk, "for a test", by="test")

    def away(*_args, **_options):
        raise Fault("away")

    real = bus.send
    monkeypatch.setattr(bus, "send", away)
    reconcile.run()
    run.refresh_from_db()
    assert (run.job_end_sent, run.announced) == (False, False)
    monkeypatch.setattr(bus, "send", real)
    reconcile.run()
    run.refresh_from_db()
    assert (run.job_end_sent, run.announced) == (True, True)


def test_a_lease_that_could_not_be_ended_is_ended_later(tasks, monkeypatch):
    order = {"source": "drain", "model": "nulog-train", "payload": {"parameters": {"uuid": str(uuid.uuid4())}}}
    run, _ = lifecycle.create_run(order=order, by="test")
    assert lease.acquire(str(run.uuid), "test")
    lifecycle.fail(run.pk, "for a test", by="test")
    with monkeypatch.context() as patch:
        patch.setattr(lease, "end", lambda uuid: False)
        reconcile.run()
        assert lease.is_live(lease.current())
    reconcile.run()
    assert not lease.is_live(lease.current())


def test_a_free_gpu_is_reserved_and_released(world, store, monkeypatch):
    Tenant.objects.filter(name="default").update(gpu=1)
    monkeypatch.setattr(runners.get(), "devices", lambda: [gpus.Device("GPU-0", "a card", 1024, 0)])
    monkeypatch.setattr(launching.RUNS, "spec", slow(launching.RUNS.spec))
    requests.request_training(WORKLOADS)
    run = begun(world)
    row = ResourceRequest.objects.get(pk=f"aiops:{run.uuid}")
    assert (row.applier, row.gpu, row.state, run.gpu) == ("jm", 1, "confirmed", 1)
    lifecycle.fail(run.pk, "for a test", by="test")
    world(settled)
    assert Tenant.objects.get(name="default").gpu_inuse == 0


def test_without_a_free_gpu_it_trains_on_the_cpu(world, monkeypatch):
    Tenant.objects.filter(name="default").update(gpu=1, gpu_inuse=1)
    monkeypatch.setattr(launching.RUNS, "spec", slow(launching.RUNS.spec))
    requests.request_training(WORKLOADS)
    assert begun(world).gpu == 0


def test_training_lines_contain_their_workload(world, store, monkeypatch):
    monkeypatch.setattr(launching.RUNS, "spec", slow(launching.RUNS.spec))
    requests.request_training(WORKLOADS)
    run = begun(world)
    lines = [json.loads(line) for line in (folders.training(run.uuid) / "lines.jsonl").read_text().splitlines()]
    assert len(lines) == run.lines == len(store.lines)
    assert lines[0] == {"log": store.lines[0]["log"], "workload": "c1/shop/web"}

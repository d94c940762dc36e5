"""A training is a run like any other: isolated, in the books of the default tenant, waiting with a reason."""

from __future__ import annotations

import json
import os
import socket
import uuid
from decimal import Decimal

import pytest

import runners
from aiops import lifecycle, reconcile
from aiops.models import TrainingRun
from aiops.training import fetching, launching, requests
from aiops.wire import folders, kv, subjects
from kernel import storage
from kernel.tests.nats_tools import until
from mlp.tests.page_world import visible_text
from resources import admission_hooks
from resources.models import ResourceRequest, Tenant
from runners.tests.on_cluster import platform_on_cluster

from .test_training import Store

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_run_left")]

# What the training sees: of a file of the platform, of the network, and of its own folder.
LOOKS = """
import json, os, socket, sys
told = {"cwd": sorted(os.listdir(".")), "user": os.getuid()}
try:
    open(sys.argv[1]).close()
    told["secret"] = "readable"
except OSError as problem:
    told["secret"] = type(problem).__name__
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[2])), 5).close()
    told["network"] = "open"
except OSError as problem:
    told["network"] = "closed"
json.dump(told, open("told.json", "w"))
"""


@pytest.fixture(autouse=True)
def lines(monkeypatch):
    monkeypatch.setattr(fetching.logstore, "get", Store)


@pytest.fixture
def run(tasks, default_tenant) -> TrainingRun:
    Tenant.objects.filter(name="default").update(gpu=0)
    query = {"query": {"bool": {"filter": [{"range": {"time": {"gte": 0, "lte": 60000}}}]}}}
    payload = {"parameters": {"uuid": str(uuid.uuid4())}, "query": query}
    row, _ = lifecycle.create_run(order={"source": "drain", "model": "nulog-train", "payload": payload}, by="test")
    return row


@pytest.fixture
def program(monkeypatch):
    """Return a function that replaces the trainer by a program with arguments."""
    make = launching.RUNS.spec

    def replace(code: str, *arguments: str) -> None:
        def spec(row):
            run_spec = make(row)
            object.__setattr__(run_spec, "command", [run_spec.command[0], "-c", code, *arguments])
            return run_spec

        monkeypatch.setattr(launching.RUNS, "spec", spec)

    return replace


def settled(run: TrainingRun, tasks) -> TrainingRun:
    def over() -> bool:
        tasks.run()
        reconcile.run()
        run.refresh_from_db()
        return run.has_ended and not run.run_name

    until(over)
    return run


def in_use() -> tuple[float, int]:
    tenant = Tenant.objects.get(name="default")
    return float(tenant.cpu_inuse), tenant.ram_inuse


# --- isolation --------------------------------------------------------------------------------------------------
def test_it_sees_nothing_but_its_own_folder(run, tasks, program):
    if runners.get().confinement.isolation == "none":
        pytest.skip("runs cannot be isolated on this machine")
    secret = storage.root() / "secret-of-the-platform"
    secret.write_text("do not read")
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            program(LOOKS, str(secret), str(server.getsockname()[1]))
            settled(run, tasks)
    finally:
        secret.unlink()
    told = json.loads((folders.training(run.uuid) / "told.json").read_text())
    assert told["secret"] in {"FileNotFoundError", "PermissionError"}
    assert told["network"] == ("closed" if runners.get().confinement.network else "open")
    if os.geteuid() == 0:
        assert told["user"] != 0


def test_it_asks_for_little_and_no_network(run):
    lifecycle.order_run(run.pk, 1)
    spec = launching.RUNS.spec(TrainingRun.objects.get(pk=run.pk))
    assert (spec.cpu, spec.ram_mib, spec.network, spec.owner, spec.mounts) == (2, 4096, "none", 0, ())
    assert spec.cwd == folders.training(run.uuid)


def test_a_link_in_place_of_the_progress_is_not_followed(run, tasks, program, tmp_path):
    stolen = tmp_path / "rows.jsonl"
    stolen.write_text(json.dumps({"stage": "train", "percent": 77, "elapsed": 1}) + "\n")
    program("import os, sys; os.symlink(sys.argv[1], 'progress-1.jsonl'); sys.exit(3)", str(stolen))
    assert settled(run, tasks).percent == 0
    assert run.state == "error"


def test_a_model_with_links_is_not_taken(run, tasks, program):
    program("import os; os.mkdir('out-1'); os.symlink('/etc/hostname', 'out-1/manifest.json')")
    assert settled(run, tasks).reason == "the trained model is not valid: it has links"


# --- the books --------------------------------------------------------------------------------------------------
def test_it_is_in_the_books_until_it_is_gone(run, tasks, program):
    program("import os; os.mkfifo('go'); open('go').read()")

    def started() -> bool:
        tasks.run()
        reconcile.run()
        return (folders.training(run.uuid) / "go").exists()

    until(started)
    assert in_use() == (2, 4096)
    lifecycle.fail(run.pk, "for a test", by="test")
    settled(run, tasks)
    assert in_use() == (0, 0)
    assert ResourceRequest.objects.get().state == "released"


def test_it_waits_for_its_resources_and_says_so(run, tasks, program):
    program("import sys; sys.exit(3)")
    Tenant.objects.filter(name="default").update(cpu_inuse=Decimal("7.6"))
    tasks.run()
    run.refresh_from_db()
    assert run.reason == "waiting for resources: cpu: requested 2, but tenant default has 0.4 left"
    assert (run.attempt, run.run_name, in_use()[0]) == (0, "", 7.6)
    Tenant.objects.filter(name="default").update(cpu_inuse=0)
    admission_hooks.serve()  # as when a job ends
    assert in_use()[0] == 2
    assert settled(run, tasks).attempt == 1


def test_what_it_waits_for_is_in_the_status_and_on_the_page(run, tasks, as_staff, staff_client, monkeypatch):
    kv.put_parameters(run.uuid, {})
    requests.set_status(subjects.TRAINING, uuid=run.uuid)
    Tenant.objects.filter(name="default").update(ram_inuse=16_000)
    tasks.run()
    reason = as_staff.call("get", "aiops/model/status").json()["reason"]
    assert reason.startswith("waiting for resources: ram: requested ")
    monkeypatch.undo()  # the page counts the lines of the real store
    assert reason in visible_text(staff_client.get("/aiops/watchlist"))


def test_it_takes_all_of_a_tenant_that_has_less(run):
    Tenant.objects.filter(name="default").update(cpu=1, ram=1000)
    lifecycle.order_run(run.pk, 1)
    assert in_use() == (1, 1000)


@pytest.mark.parametrize("left", ["0.5", "1.8"])
def test_it_takes_what_applications_leave_of_the_cpus(run, tasks, program, left):
    """They run for ever, so it would wait for ever."""
    program("import sys; sys.exit(3)")
    Tenant.objects.filter(name="default").update(cpu_inuse=8 - Decimal(left))
    tasks.run()
    booked = ResourceRequest.objects.get(pk=f"aiops:{run.uuid}")
    assert (booked.cpu, in_use()[0]) == (Decimal(left), 8)
    assert settled(run, tasks).attempt == 1


def test_it_stops_waiting_when_it_is_cancelled(run, tasks):
    Tenant.objects.filter(name="default").update(cpu_inuse=8)
    tasks.run()
    lifecycle.fail(run.pk, "cancelled: the watchlist was cleared", by="test")
    assert settled(run, tasks).reason == "cancelled: the watchlist was cleared"
    assert in_use()[0] == 8


# --- on a cluster -----------------------------------------------------------------------------------------------
@pytest.fixture
def cluster(settings, tmp_path, default_tenant):
    placed = {"tolerations": {"training": ({"key": "spot", "operator": "Exists"},)}}
    with platform_on_cluster(settings, tmp_path, images={"torch": "registry.test/torch:1"}, **placed) as fake:
        yield fake


@pytest.mark.long
def test_its_pod_mounts_its_own_folder_only(cluster, run, tasks, program):
    program("import sys; sys.exit(3)")
    cluster.node.capacity["cpu"] = "0"

    def waits() -> bool:
        tasks.run()
        reconcile.run()
        run.refresh_from_db()
        return run.reason.startswith("waiting to start: no node has room for it")

    until(waits)
    (pod,) = cluster.store.list("pods")
    (container,) = pod["spec"]["containers"]
    stored = [mount for mount in container["volumeMounts"] if mount["name"] == "storage"]
    folder = str(folders.training(run.uuid).relative_to(storage.root()))
    assert [(mount["mountPath"], mount["subPath"]) for mount in stored] == [("/workspace", folder)]
    assert (
        container["resources"]["requests"] | {"cpu": "2000m", "memory": "4096Mi"} == container["resources"]["requests"]
    )
    assert pod["metadata"]["labels"]["mlp.platform/network"] == "none"
    assert pod["spec"]["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert pod["spec"]["securityContext"]["runAsUser"] != 0
    cluster.node.capacity["cpu"] = "8"
    assert settled(run, tasks).reason.startswith("exit code 3")

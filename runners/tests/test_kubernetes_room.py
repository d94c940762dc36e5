"""Room on the nodes of a cluster: what runs may use, and runs that wait for it."""

from __future__ import annotations

from decimal import Decimal

import pytest

from runners.kubernetes import KubernetesRunner, object_names

from .cluster.server import EVERYWHERE
from .cluster.store import now
from .helpers import end_of, eventually, spec
from .test_kubernetes_check import node

WAITS = "import os; os.mkfifo('go'); open('go').read()"
AN_HOUR = -3600


def aged(cluster) -> None:
    """Let all pods have been created an hour ago."""
    for (kind, _name), each in cluster.store.objects.items():
        if kind == "pods":
            each["metadata"]["creationTimestamp"] = now(AN_HOUR)


def pod(name: str, on: str, containers: list[dict], phase: str = "Running", **more) -> dict:
    named = [{"name": f"c{number}", "image": "i", **each} for number, each in enumerate(containers)]
    spec = {"nodeName": on, "containers": named, **more}
    return {"metadata": {"name": name, "namespace": "elsewhere"}, "spec": spec, "status": {"phase": phase}}


def asks(cpu: str, memory: str = "0", **more) -> dict:
    return {"resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


# --- capacity ---------------------------------------------------------------------------------------------------
def test_what_others_request_is_not_there_for_runs(cluster, configured):
    store = cluster.store
    store.create("nodes", node("a", "8", "16Gi", "2"))
    store.create("nodes", node("b", "4", "8Gi"))
    store.create("pods", pod("dns", "a", [asks("500m", "1Gi"), asks("1", "1Gi")]))
    store.create("pods", pod("huge", "b", [asks("64", "1Gi")]))  # of a node that was made smaller since
    store.create("pods", pod("over", "a", [asks("4")], phase="Succeeded"))
    store.create("pods", pod("nowhere", "", [asks("4")], phase="Pending"))
    runner = KubernetesRunner(configured())
    assert runner.capacity() == {"cpu": Decimal("6.500"), "ram": (14 + 7) << 10, "gpu": 2}


def test_a_run_may_have_what_a_single_node_has_for_it(cluster, configured):
    store, runner = cluster.store, KubernetesRunner(configured())
    assert runner.largest("training", 0) == {"cpu": 0, "ram": 0}
    store.create("nodes", node("a", "2", "16Gi"))
    store.create("nodes", node("b", "1930m", "4Gi", "1"))
    store.create("pods", pod("dns", "a", [asks("500m", "1Gi")]))
    assert runner.largest("training", 0) == runner.largest("training", 1) == {"cpu": Decimal("1.930"), "ram": 4096}
    assert runner.largest("training", 2) == {"cpu": 0, "ram": 0}
    store.create("nodes", {**node("c", "8", "64Gi"), "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}})
    assert runner.largest("training", 0)["cpu"] == Decimal("1.930")
    tolerating = {"training": ({"key": "gpu", "operator": "Exists"},)}
    assert KubernetesRunner(configured(tolerations=tolerating)).largest("training", 0)["cpu"] == 8


def test_what_runs_hold_now_is_left_to_them_unless_they_hold_all(cluster, configured):
    store, config = cluster.store, configured()
    store.create("nodes", node("a", "2", "16Gi"))
    run = {**pod("run", "a", [asks("1600m")])}
    run["metadata"] |= {"namespace": config.namespace, "labels": {object_names.RUN: "job-1-1"}}
    store.create("pods", run)
    assert KubernetesRunner(config).largest("training", 0)["cpu"] == 2  # less than half a core is free: it waits
    store.create("pods", pod("dns", "a", [asks("500m")]))
    assert KubernetesRunner(config).largest("training", 0)["cpu"] == Decimal("1.5")
    store.create("nodes", node("b", "900m", "16Gi"))
    assert KubernetesRunner(config).largest("training", 0)["cpu"] == Decimal("0.9")


def test_runs_of_the_platform_are_in_its_own_books(cluster, configured, kubernetes, tmp_path):
    cluster.store.create("nodes", node("node-1", "8", "16Gi"))
    kubernetes.start(spec(tmp_path, WAITS, cpu=2))
    eventually(lambda: not kubernetes.poll("job-1-1").waits)
    assert kubernetes.capacity()["cpu"] == 8


def test_the_capacity_follows_nodes_and_pods_as_they_come_and_go(cluster, configured):
    runner, store = KubernetesRunner(configured()), cluster.store
    assert runner.capacity() == {"cpu": 0, "ram": 0, "gpu": 0}
    store.create("nodes", node("a", "8", "16Gi"))
    store.create("pods", pod("dns", "a", [asks("3")]))
    assert runner.capacity()["cpu"] == 5
    store.remove("pods", "dns")
    store.create("nodes", node("b", "2", "16Gi"))
    assert runner.capacity()["cpu"] == 10
    store.remove("nodes", "a")
    assert runner.capacity()["cpu"] == 2


@pytest.mark.parametrize(
    ("first", "cpu"),
    [
        ([asks("3")], 3),  # it has ended before the others start
        ([asks("500m")], 2),
        ([asks("1", restartPolicy="Always")], 3),  # it stays beside them
        ([asks("1", restartPolicy="Always"), asks("3")], 4),
    ],
)
def test_a_pod_holds_what_the_scheduler_reserves_for_it(cluster, configured, first, cpu):
    cluster.store.create("nodes", node("a", "8", "16Gi"))
    named = [{"name": f"i{number}", "image": "i", **each} for number, each in enumerate(first)]
    cluster.store.create("pods", pod("x", "a", [asks("2")], initContainers=named, overhead={"cpu": "250m"}))
    assert KubernetesRunner(configured()).capacity()["cpu"] == 8 - cpu - Decimal("0.25")


def test_without_the_right_to_see_the_pods_of_others_the_nodes_count(cluster, configured):
    cluster.store.create("nodes", node("a", "8", "16Gi"))
    cluster.store.create("pods", pod("dns", "a", [asks("3")]))
    cluster.denied = {("list", EVERYWHERE)}
    assert KubernetesRunner(configured()).capacity()["cpu"] == 8


# --- waiting ----------------------------------------------------------------------------------------------------
def test_a_run_waits_its_turn_however_long_others_have_the_room(cluster, configured, tmp_path):
    cluster.store.create("nodes", node("node-1", "8", "64Gi"))
    runner = KubernetesRunner(configured(start_timeout_s=1))
    runner.start(spec(tmp_path, WAITS, cpu=6))
    eventually(lambda: not runner.poll("job-1-1").waits)
    runner.start(spec(tmp_path, "print('mine')", name="job-2-1", cpu=6))
    waiting = eventually(lambda: (now := runner.poll("job-2-1")).reason and now)
    assert (waiting.state, waiting.waits, waiting.started) == ("running", True, None)
    assert waiting.reason == "no node has room for it: 0/1 nodes are available: 1 Insufficient cpu."
    aged(cluster)
    assert runner.poll("job-2-1").state == "running"
    runner.stop("job-1-1", 0)
    assert end_of(runner, "job-2-1").succeeded
    end_of(runner)


def test_a_run_that_fits_on_no_node_fails(cluster, configured, tmp_path):
    cluster.store.create("nodes", node("node-1", "4", "64Gi"))
    cluster.node.capacity["cpu"] = "4"
    runner = KubernetesRunner(configured(start_timeout_s=1))
    runner.start(spec(tmp_path, "", cpu=6))
    eventually(lambda: runner.poll("job-1-1").reason)
    aged(cluster)
    assert end_of(runner).reason.startswith("could not start: no node has room for it: 0/1 nodes are available")


def test_a_slow_start_says_what_it_waits_for(cluster, kubernetes, tmp_path):
    cluster.node.held = True
    kubernetes.start(spec(tmp_path, "print(1)"))
    eventually(lambda: cluster.store.list("pods"))
    assert kubernetes.poll("job-1-1").reason == ""
    (job,) = [each for (kind, _name), each in cluster.store.objects.items() if kind == "jobs"]
    job["metadata"]["creationTimestamp"] = now(AN_HOUR)
    assert kubernetes.poll("job-1-1").reason == "no pod of it is on a node yet"
    (only,) = cluster.store.list("pods")
    cluster.store.bind(only["metadata"]["name"], "node-7")
    cluster.store.set_status(
        "pods", only["metadata"]["name"], conditions=[{"type": "PodScheduled", "status": "True"}]
    )  # the node pulls its image now
    assert kubernetes.poll("job-1-1").reason.endswith("on node node-7")
    cluster.node.held = False
    assert end_of(kubernetes).succeeded

"""Runs that wait in a queue of Kueue; the cluster's Kueue is a stand-in (cluster/kueue.py)."""

from __future__ import annotations

import pytest

from runners.kubernetes import KubernetesRunner, check, kueue, object_names
from runners.kubernetes.trouble import QUIET_S

from .helpers import end_of, eventually, spec
from .test_kubernetes_room import AN_HOUR, WAITS

TENANT = {"tenant": "default", "user": "alice"}
SHORT = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 3 more needed"


@pytest.fixture
def kueues(cluster):
    """The stand-in, with the queue `lab`."""
    cluster.store.create("localqueues", {"metadata": {"name": "lab"}, "spec": {"clusterQueue": "all"}})
    return cluster.controllers.kueue


@pytest.fixture
def runner(configured):
    runner = KubernetesRunner(configured(kueue_queue="lab"))
    yield runner
    assert runner.stop_all(0) == []


def job_of(cluster) -> dict:
    [job] = cluster.store.list("jobs")
    return job


def test_a_run_waits_until_its_queue_admits_it_and_says_why(cluster, kueues, runner, tmp_path, monkeypatch):
    monkeypatch.setattr(kueue, "ASK_AGAIN_S", -1)
    kueues.closed = SHORT
    runner.start(spec(tmp_path, "print('ran')", labels=TENANT))
    eventually(lambda: SHORT in str(runner.poll("job-1-1").reason))
    status = runner.poll("job-1-1")
    assert str(status.reason) == f"queued by Kueue in lab: {SHORT}"
    assert (status.state, status.waits, status.started, status.displaced) == ("running", True, None, None)
    assert cluster.store.list("pods") == []
    runner.start(spec(tmp_path, "print('ran')", labels=TENANT))  # a message that comes twice
    assert job_of(cluster)["spec"]["suspend"]
    kueues.closed = ""
    assert end_of(runner).succeeded


def test_it_waits_however_long(cluster, kueues, configured, tmp_path):
    kueues.closed = SHORT
    runner = KubernetesRunner(configured(kueue_queue="lab", start_timeout_s=1))
    runner.start(spec(tmp_path, "print('ran')", labels=TENANT))
    for (kind, _name), each in cluster.store.objects.items():
        if kind == "jobs":
            each["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    assert AN_HOUR < -QUIET_S
    assert runner.poll("job-1-1").state == "running"
    runner.stop("job-1-1", 0)
    end_of(runner)


def test_kueue_sees_the_job_once_all_that_its_pods_need_is_there(cluster, kueues, runner, tmp_path, monkeypatch):
    labels = []
    create = runner.cluster.create

    def noted(function, body):
        labels.extend(object_names.queue_of(job) for job in cluster.store.list("jobs"))
        return create(function, body)

    monkeypatch.setattr(runner.cluster, "create", noted)
    runner.start(spec(tmp_path, "print('ran')", labels=TENANT, workers=2))
    assert labels
    assert set(labels) == {""}
    assert object_names.queue_of(job_of(cluster)) == "lab"
    assert end_of(runner).succeeded


def test_all_workers_are_admitted_as_one(cluster, kueues, runner, tmp_path):
    kueues.closed = SHORT
    runner.start(spec(tmp_path, "print('ran')", labels=TENANT, workers=3))
    [workload] = eventually(lambda: cluster.store.list("workloads"))
    assert workload["spec"] == {"queueName": "lab", "podSets": [{"name": "main", "count": 3}]}
    assert cluster.store.list("pods") == []


def test_a_run_is_stopped_while_it_waits_and_kueue_leaves_it_alone(cluster, kueues, runner, tmp_path):
    kueues.closed = SHORT
    runner.start(spec(tmp_path, "print('ran')", labels=TENANT))
    eventually(lambda: cluster.store.list("workloads"))
    runner.stop("job-1-1", 0)
    assert str(end_of(runner).reason) == "stopped before it started"
    kueues.closed = ""
    eventually(lambda: not cluster.store.list("workloads"))
    assert job_of(cluster)["spec"]["suspend"]
    assert cluster.store.list("pods") == []
    runner.forget("job-1-1")
    assert cluster.store.list("jobs") == []


def test_a_run_that_kueue_suspends_again_is_displaced(cluster, kueues, runner, tmp_path):
    runner.start(spec(tmp_path, WAITS, labels=TENANT))
    eventually(lambda: runner.poll("job-1-1").started)
    kueues.closed = "Preempted to accommodate a workload of higher priority"
    eventually(lambda: runner.poll("job-1-1").displaced)
    assert runner.poll("job-1-1").state == "running"
    assert KubernetesRunner(runner.config).poll("job-1-1").displaced  # another process of the platform
    runner.stop("job-1-1", 0)
    assert end_of(runner).state == "exited"


@pytest.mark.parametrize(
    ("fields", "config", "queue"),
    [
        ({"labels": TENANT}, {"kueue_queue": "lab"}, "lab"),
        ({"labels": TENANT}, {"kueue_queue": "lab", "kueue_queues": {"default": "own"}}, "own"),
        ({"labels": TENANT}, {"kueue_queues": {"other": "own"}}, ""),
        ({"labels": {"user": "alice"}}, {"kueue_queue": "lab"}, ""),  # a check, a training
        ({"labels": TENANT, "kind": "service", "port": 8000}, {"kueue_queue": "lab"}, ""),
    ],
)
def test_the_queue_is_that_of_the_tenant(configured, tmp_path, fields, config, queue):
    assert kueue.queue_for(spec(tmp_path, "pass", **fields), configured(**config)) == queue


def test_without_kueue_a_run_says_what_is_missing(cluster, kueues, runner, tmp_path):
    kueues.version = ""
    runner.start(spec(tmp_path, "print('ran')", labels=TENANT))
    words = "queued by Kueue in lab (the cluster has no Kueue: it does not serve kueue.x-k8s.io)"
    assert str(runner.poll("job-1-1").reason) == words


def test_the_older_version_of_its_api_is_enough(cluster, kueues, runner, tmp_path):
    kueues.version, kueues.closed = "v1beta1", SHORT
    runner.start(spec(tmp_path, "print('ran')", labels=TENANT))
    eventually(lambda: cluster.store.list("workloads"))
    assert "queued by Kueue in lab" in str(runner.poll("job-1-1").reason)
    assert [line.kind for line in check.queues(runner.cluster)] == ["ok"]


def test_a_queue_that_is_not_there_is_named(cluster, configured, tmp_path):
    runner = KubernetesRunner(configured(kueue_queue="lab", kueue_queues={"b": "other"}))
    runner.start(spec(tmp_path, "print('ran')", labels=TENANT))
    eventually(lambda: cluster.store.list("workloads"))
    eventually(lambda: KubernetesRunner(runner.config).poll("job-1-1").reason.endswith("LocalQueue lab doesn't exist"))
    cluster.store.create("localqueues", {"metadata": {"name": "other"}, "spec": {"clusterQueue": "all"}})
    assert [f"{line.kind} {line.text}" for line in check.queues(runner.cluster)] == [
        "missing LocalQueue lab not found in namespace mlp",
        "ok LocalQueue other of ClusterQueue all",
    ]
    cluster.controllers.kueue.version = ""
    [line] = check.queues(KubernetesRunner(runner.config).cluster)
    assert (line.kind, line.text) == ("missing", "the cluster has no Kueue: it does not serve kueue.x-k8s.io")
    assert runner.stop_all(0) == []


def test_without_a_setting_nothing_is_different(cluster, kueues, kubernetes, tmp_path):
    kueues.closed = SHORT
    kubernetes.start(spec(tmp_path, "print('ran')", labels=TENANT))
    assert end_of(kubernetes).succeeded
    assert object_names.queue_of(job_of(cluster)) == ""
    assert list(check.queues(kubernetes.cluster)) == []

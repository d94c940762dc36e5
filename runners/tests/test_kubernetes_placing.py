"""Tolerations and priority classes of pods, by what their run is for, and the nodes that runs are counted on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.core.exceptions import ImproperlyConfigured

from mlp import cluster_settings
from runners.base import PURPOSES
from runners.kubernetes import KubernetesRunner, check, inventory, objects

from .helpers import end_of, eventually, spec
from .test_kubernetes_check import at_once, node

SPOT = {"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
TEAM = {"key": "team", "operator": "Exists"}
TAINT = {"key": "spot", "value": "true", "effect": "NoSchedule"}
PLACED = {
    "tolerations": {"all": (TEAM,), "job": (SPOT,)},
    "priority_classes": {"all": "low", "application": "high"},
}


def pod_of(config, tmp_path, **fields) -> dict:
    return objects.pod_template(spec(tmp_path, "pass", **fields), config, [])["spec"]


def test_pods_have_what_is_set_for_the_purpose_of_their_run(configured, tmp_path):
    config = configured(**PLACED)
    found = {purpose: pod_of(config, tmp_path, purpose=purpose) for purpose in PURPOSES}
    assert {purpose: pod["priorityClassName"] for purpose, pod in found.items()} == {
        purpose: "high" if purpose == "application" else "low" for purpose in PURPOSES
    }
    assert {purpose: pod["tolerations"] for purpose, pod in found.items()} == {
        purpose: [TEAM, SPOT] if purpose == "job" else [TEAM] for purpose in PURPOSES
    }
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists"}
    assert pod_of(config, tmp_path, gpu=1)["tolerations"] == [gpu, TEAM, SPOT]
    assert pod_of(config, tmp_path)["tolerations"] == [TEAM, SPOT]  # nothing is left of the pod before


def test_without_settings_pods_are_as_before(configured, tmp_path):
    assert not {"tolerations", "priorityClassName"} & pod_of(configured(), tmp_path).keys()


def test_a_run_starts_on_a_tainted_node_only_where_it_tolerates_that(cluster, configured, tmp_path):
    cluster.store.create("nodes", node("node-1", "8", "64Gi", taints=[TAINT]))
    plain, placed = KubernetesRunner(configured()), KubernetesRunner(configured(tolerations={"job": (SPOT,)}))
    plain.start(spec(tmp_path, "print('ran')", name="plain"))
    eventually(lambda: "had untolerated taint" in str(plain.poll("plain").reason))
    placed.start(spec(tmp_path, "print('ran')", name="placed"))
    assert end_of(placed, "placed").succeeded
    placed.start(spec(tmp_path, "print('ran')", name="check", purpose="check"))
    eventually(lambda: "had untolerated taint" in str(placed.poll("check").reason))
    assert placed.stop_all(0) == []


def test_without_its_class_a_run_says_why_it_has_no_pod(cluster, configured, tmp_path, monkeypatch):
    at_once(monkeypatch)
    runner = KubernetesRunner(configured(priority_classes={"job": "batch"}))
    runner.start(spec(tmp_path, "print('ran')"))
    words = "no PriorityClass with name batch was found"
    eventually(lambda: words in str(runner.poll("job-1-1").reason))
    assert str(runner.poll("job-1-1").reason).startswith("its pod is refused: ")
    cluster.store.create("priorityclasses", {"metadata": {"name": "batch"}, "value": 1000})
    assert end_of(runner).succeeded


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (SPOT, True),
        ({"key": "spot", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "spot", "operator": "Equal", "value": "false"}, False),
        ({"key": "spot", "operator": "Equal", "value": ""}, False),
        ({"key": "spot", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "spots", "operator": "Exists"}, False),
    ],
)
def test_a_toleration_counts_as_the_scheduler_counts_it(configured, toleration, tolerated):
    there = node("a", "8", "64Gi", taints=[TAINT, {"key": "x", "effect": "PreferNoSchedule"}])
    assert inventory.is_tolerated(there, [toleration], configured()) == tolerated
    bare = node("a", "8", "64Gi", taints=[{"key": "spot", "effect": "NoSchedule"}])
    assert inventory.is_tolerated(bare, [{"key": "spot", "operator": "Equal", "value": ""}], configured())


def test_nodes_that_some_runs_tolerate_count_to_the_capacity(cluster, configured):
    cluster.store.create("nodes", node("a", "8", "64Gi", "2", taints=[TAINT]))
    cluster.store.create("nodes", node("b", "4", "64Gi"))
    assert KubernetesRunner(configured()).capacity()["cpu"] == 4
    serving = KubernetesRunner(configured(tolerations={"application": (SPOT,)}))
    assert serving.capacity()["cpu"] == 12
    assert serving.gpu_products() == {}  # jobs, which alone name a type, do not get there
    assert KubernetesRunner(configured(**PLACED)).gpu_products() == {"": 2}


def test_a_run_waits_its_turn_only_for_a_node_that_it_tolerates(cluster, configured, tmp_path):
    cluster.store.create("nodes", node("a", "64", "64Gi", taints=[TAINT]))
    record = {"spec": {"template": objects.pod_template(spec(tmp_path, "pass", cpu=32), configured(), [])}}
    assert not inventory.Nodes(KubernetesRunner(configured()).cluster, configured()).fit(record)
    placed = configured(**PLACED)
    record = {"spec": {"template": objects.pod_template(spec(tmp_path, "pass", cpu=32), placed, [])}}
    assert inventory.Nodes(KubernetesRunner(placed).cluster, placed).fit(record)


def test_the_check_reads_each_class(cluster, configured):
    cluster.store.create("priorityclasses", {"metadata": {"name": "low"}, "value": -5})
    runner = KubernetesRunner(configured(**PLACED))
    lines = [f"{line.kind} {line.about}: {line.text}" for line in check.priorities(runner.cluster)]
    assert lines == [
        "ok priority: low (-5) for all",
        "missing priority: PriorityClass high not found, which MLP_K8S_PRIORITY_CLASSES names for application",
    ]
    assert list(check.priorities(KubernetesRunner(replace(runner.config, priority_classes={})).cluster)) == []


@pytest.mark.parametrize(
    ("setting", "value", "read"),
    [
        ("TOLERATIONS", "spot=true:NoSchedule", None),
        ("TOLERATIONS", "jobs:spot", None),
        ("TOLERATIONS", "job:", None),
        ("TOLERATIONS", "job:spot=true:Never", None),
        ("TOLERATIONS", "job:spot=true false", None),
        ("PRIORITY_CLASSES", "low", None),
        ("PRIORITY_CLASSES", "jobs=low", None),
        ("PRIORITY_CLASSES", "job=Low", None),
        ("PRIORITY_CLASSES", "job=", None),
        ("PRIORITY_CLASSES", "job=a,job=b", None),
        ("TOLERATIONS", "", {}),
        ("TOLERATIONS", "job:spot=true:NoSchedule, all:team", {"job": (SPOT,), "all": (TEAM,)}),
        (
            "TOLERATIONS",
            "job:example.org/pool=:NoExecute,job:b",
            {
                "job": (
                    {"key": "example.org/pool", "operator": "Equal", "value": "", "effect": "NoExecute"},
                    {"key": "b", "operator": "Exists"},
                )
            },
        ),
        ("PRIORITY_CLASSES", "all=low,application=high", {"all": "low", "application": "high"}),
    ],
)
def test_the_settings_are_read_or_refused_at_the_start(monkeypatch, setting, value, read):
    monkeypatch.setenv(f"MLP_K8S_{setting}", value)
    function = getattr(cluster_settings, setting.lower())
    if read is not None:
        assert function() == read
        return
    with pytest.raises(ImproperlyConfigured) as refused:
        function()
    assert f"MLP_K8S_{setting}" in str(refused.value)


def test_settings_and_runs_know_the_same_purposes():
    assert (*PURPOSES, "all") == cluster_settings.PURPOSES

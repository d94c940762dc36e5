"""What the runner tests share that needs a cluster: a small one, and how the runner finds it."""

from __future__ import annotations

import sys

import pytest

from mlp.runners.kubernetes import ClusterConfig, KubernetesRunner

from .cluster import FakeCluster

IMAGE = "registry.test/image:1"


@pytest.fixture
def cluster(tmp_path):
    cluster = FakeCluster(tmp_path)
    yield cluster
    cluster.stop()


@pytest.fixture
def configured(cluster, tmp_path):
    """A ClusterConfig for the small cluster, with some fields of the test's choice."""

    def make(**more) -> ClusterConfig:
        images = dict.fromkeys(("python", "torch", "tf", "serve"), IMAGE)
        values = {"kubeconfig": cluster.kubeconfig(tmp_path / "kubeconfig"), "images": images, "claim": "mlp"}
        return ClusterConfig(storage_root=tmp_path, python=sys.executable, **values | more)

    return make


@pytest.fixture
def kubernetes(configured):
    runner = KubernetesRunner(configured())
    yield runner
    assert runner.stop_all(0) == []

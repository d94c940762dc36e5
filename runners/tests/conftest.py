"""Fixtures of the runner tests: the fake cluster, and storage roots for every level of confinement."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from runners.kubernetes import ClusterConfig, KubernetesRunner

from .cluster import FakeCluster
from .confined import World, ordinary_user

IMAGE = "registry.test/image:1"


@pytest.fixture
def cluster(tmp_path):
    cluster = FakeCluster(tmp_path)
    yield cluster
    cluster.stop()


@pytest.fixture
def configured(cluster, tmp_path):
    """Return a function that builds a ClusterConfig for the fake cluster, with some fields of the test's choice."""

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


@pytest.fixture(scope="session")
def users_process():
    """End the process of the ordinary user after the last test."""
    yield
    ordinary_user.end()


@pytest.fixture
def world(request, users_process):
    root = Path(tempfile.mkdtemp(prefix="world-"))  # pytest's own folders are closed to other users
    made = World(request.param, root)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()
    assert made.runner.stop_all(0) == []
    for name in made.runner.names():
        made.runner.forget(name)
    shutil.rmtree(root)

"""Fixtures of the runner tests: the fake cluster, and storage roots for every level of confinement."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from runners.base import Endpoint
from runners.kubernetes import ClusterConfig, KubernetesRunner

from .cluster import FakeCluster
from .confined import World, ordinary_user
from .networking import PAGES, PORTS, Echo

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
    world = World(request.param, root)
    yield world
    for process in world.processes:
        process.kill()
        process.wait()
    assert world.runner.stop_all(0) == []
    for name in world.runner.names():
        world.runner.forget(name)
    shutil.rmtree(root)


@pytest.fixture
def echo():
    echo = Echo()
    yield echo
    echo.close()


@pytest.fixture
def networked(world, echo):
    """The world, whose runs have an endpoint to the echo server and a proxy."""
    world.runner.endpoints = (
        Endpoint("gateway", PORTS["gateway"], "127.0.0.1", echo.port),
        Endpoint("proxy", PORTS["proxy"], "", 0),
    )
    if hasattr(world.runner, "options"):
        world.runner.options["endpoints"] = world.runner.endpoints
    return world


@pytest.fixture(scope="session")
def internet():
    """The address of servers that are not on this machine: in a network namespace behind a pair of interfaces."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("only root with iproute2 can build a network")
    name = f"mlp{os.getpid() % 100000}"
    network = f"198.18.{7 + int(os.environ.get('PYTEST_XDIST_WORKER', 'gw0')[2:])}"
    for command in (
        f"netns add {name}",
        f"link add {name}a type veth peer name {name}b netns {name}",
        f"addr add {network}.1/30 dev {name}a",
        f"link set {name}a up",
        f"-n {name} addr add {network}.2/30 dev {name}b",
        f"-n {name} link set {name}b up",
    ):
        subprocess.run(["ip", *command.split()], check=True)
    command = ["ip", "netns", "exec", name, sys.executable, "-c", PAGES, f"{network}.2"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"up\n"
    yield f"{network}.2:8080"
    server.kill()
    server.communicate()
    subprocess.run(["ip", "link", "del", f"{name}a"], check=True)
    subprocess.run(["ip", "netns", "del", name], check=True)

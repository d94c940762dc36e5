"""A node that is lost: the pods of the platform's parts there leave their Services before the cluster has noticed."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading

import pytest

from mlp.tests.servers import free_port
from runners.kubernetes import KubernetesRunner, lost_nodes
from runners.kubernetes.cluster import Cluster
from runners.kubernetes.lost_nodes import LOOK_S, SILENT_S, LostNodes

from .helpers import eventually

LOOKS = int(SILENT_S / LOOK_S) + 2  # after so many without a renewal a node is silent
HERE, THERE, THIRD = "127.0.0.1", "127.0.0.2", "127.0.0.3"


class World:
    """Two nodes of the fake cluster with a pod of `web` each, and a clock that each look moves on."""

    def __init__(self, cluster, config, stack: contextlib.ExitStack):
        self.store, self.stack, self.now, self.renewals = cluster.store, stack, 0.0, itertools.count()
        self.port = free_port()
        self.nodes = LostNodes(Cluster(config), lambda: self.now)

    def renew(self, *nodes: str) -> None:
        for node in nodes:
            spec = {"holderIdentity": node, "renewTime": f"2026-01-01T00:00:00.{next(self.renewals):06}Z"}
            meta = {"name": node, "namespace": "kube-node-lease", "uid": node}
            self.store.objects["leases", node] = {"metadata": meta, "spec": spec}

    def pod(self, name: str, node: str, host: str, answers=True, ready: str = "True", ports=True, ended=False):
        """Make the pod of a part. One that does not answer has a port at which nothing is accepted any more."""
        server = self.stack.enter_context(socket.create_server((host, self.port), backlog=16 if answers else 0))
        with contextlib.suppress(TimeoutError):
            while not answers:
                self.stack.enter_context(socket.create_connection(server.getsockname(), timeout=0.2))
        if ended:
            server.close()
        listed = {"ports": [{"containerPort": self.port}]} if ports else {}
        labels = {"app": "mlp-platform", "mlp-part": "web"}
        conditions = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": ready}]
        body = {
            "metadata": {"name": name, "namespace": "mlp", "labels": labels},
            "spec": {"nodeName": node, "containers": [{"name": "web", "image": "i", **listed}]},
            "status": {"phase": "Running", "podIP": host, "conditions": conditions},
        }
        self.store.create("pods", body)

    def look(self, *renewing: str, times: int = LOOKS) -> list[str]:
        """Look again and again while only these nodes renew their leases; return the pods that were deleted."""
        deleted = []
        for _ in range(times):
            self.renew(*renewing)
            deleted += self.nodes.look()
            self.now += LOOK_S
        return deleted


@pytest.fixture
def world(cluster, configured, monkeypatch):
    monkeypatch.setattr(lost_nodes, "CONNECT_S", 0.2)
    cluster.node.silent = True  # pods are what the test makes them
    with contextlib.ExitStack() as stack:
        world = World(cluster, configured(), stack)
        world.renew("a", "b")
        yield world


def test_a_pod_on_a_lost_node_gets_no_more_requests(world):
    world.pod("web-a", "a", HERE)
    world.pod("web-b", "b", THERE, answers=False)
    assert world.look("a", "b") == []
    assert world.look("a", times=2) == []  # a renewal that is late is no lost node
    assert world.look("a") == ["web-b"]
    assert world.store.get("pods", "web-b")["metadata"]["deletionTimestamp"]
    assert not world.store.get("pods", "web-a")["metadata"].get("deletionTimestamp")
    assert world.look("a") == []  # an ending pod is left alone


def test_so_does_one_whose_container_was_left_without_its_kubelet_and_has_ended(world):
    world.pod("web-a", "a", HERE)
    world.pod("web-b", "b", THERE, ended=True)
    assert world.look("a") == ["web-b"]


@pytest.mark.parametrize("spec", [{}, None, {"holderIdentity": "b"}])
def test_a_lease_that_was_never_renewed_says_nothing_of_its_node(world, spec):
    world.pod("web-a", "a", HERE)
    world.pod("web-b", "b", THERE, ended=True)
    world.store.objects["leases", "b"]["spec"] = spec
    assert world.look("a") == []


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ({"answers": True}, "the kubelet alone has stopped"),
        ({"answers": False, "ready": "False"}, "the cluster has noticed"),
        ({"answers": False, "ports": False}, "no Service sends it anything"),
    ],
)
def test_other_pods_are_kept(world, there, why):
    world.pod("web-a", "a", HERE)
    world.pod("web-b", "b", THERE, **there)
    assert world.look("a") == [], why


def test_the_last_pod_of_a_part_is_kept(world):
    world.renew("c")
    world.pod("web-a", "a", HERE, answers=False)
    world.pod("web-b", "b", THERE, answers=False)
    world.pod("web-c", "c", THIRD, ready="False")
    assert world.look("c") == []  # most nodes are silent
    world.renew("d", "e")
    assert world.look("c", "d", "e") == []  # no other pod works


def test_an_api_server_that_was_away_makes_no_node_lost(world):
    world.pod("web-a", "a", HERE)
    world.pod("web-b", "b", THERE, answers=False)
    assert world.look("a", "b") == []
    world.now += 10 * SILENT_S
    assert world.look("a", times=2) == []  # b may renew its lease a little later than a
    assert world.look("a", "b") == []


def test_the_leader_and_who_stands_by_look_until_they_end(world, cluster, configured, monkeypatch):
    monkeypatch.setattr(lost_nodes, "LOOK_S", 0.01)
    monkeypatch.setattr(lost_nodes, "SILENT_S", 0.1)
    monkeypatch.setattr(lost_nodes, "GAP_S", 60.0)
    world.pod("web-a", "a", HERE)
    world.pod("web-b", "b", THERE, answers=False)
    stopped = threading.Event()

    def renew() -> None:
        while not stopped.wait(0.01):
            world.renew("a")

    renewing = threading.Thread(target=renew)
    renewing.start()
    with KubernetesRunner(configured()).watch_nodes(), KubernetesRunner(configured()).watch_nodes():
        eventually(lambda: world.store.get("pods", "web-b")["metadata"].get("deletionTimestamp"))
    stopped.set()
    renewing.join()
    assert not world.store.get("pods", "web-a")["metadata"].get("deletionTimestamp")


def test_without_the_right_nothing_is_looked_at(world, cluster):
    cluster.denied.add(("list", "leases"))
    world.pod("web-a", "a", HERE)
    world.nodes.run(threading.Event())  # returns
    assert ("list", "leases") in cluster.used or ("leases", "list") in cluster.used

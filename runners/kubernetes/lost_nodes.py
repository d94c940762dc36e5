"""Takes the pods of the platform's parts on a node that does not answer out of their Services.

The cluster notices a lost node after 40 to 50 seconds, by the lease that its kubelet renews every ten; meanwhile the
Services send it their share of the requests. Here two things together say so earlier: the lease has not been renewed
for SILENT_S, and the pod does not answer. Such a pod is deleted, as the cluster itself does it later: an ending pod
gets no requests, and its Deployment makes another. A pod is kept while no other of its part works elsewhere.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from kubernetes import client

from runners.errors import RunnerError

from .access import LEASES
from .cluster import Cluster, Forbidden

log = logging.getLogger(__name__)

PARTS = "app=mlp-platform,mlp-part"  # the label selector of the chart's pods
LOOK_S = 4.0  # between two looks
PARTS_S = 60.0  # the same, while there are no pods of parts
SILENT_S = 18.0  # without a renewal; a kubelet renews every 10 s
GAP_S = 3 * LOOK_S  # after a longer one between two looks nothing is concluded from what was seen before
CONNECT_S = 1.0
MOST_AT_ONCE = 16  # pods that are asked for an answer


class LostNodes:
    """What has been seen of the nodes' leases. Every replica of a part may look: a pod is deleted once."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic):
        self.cluster, self.clock = cluster, clock
        self.renewed: dict[str, tuple[str, float]] = {}  # by node: the renewal, and when it was first seen
        self.looked = clock()

    def run(self, stopped: threading.Event) -> None:
        """Watch the nodes until stopped, or until the roles of the platform turn out not to allow it."""
        parts, pause = False, 0.0
        while not stopped.wait(pause):
            try:
                parts = parts or bool(self._pods())
                pause = LOOK_S if parts else PARTS_S
                if parts:
                    self.look()
            except Forbidden as error:
                log.info("lost nodes are noticed by the cluster alone: %s", error)
                return
            except RunnerError as error:
                log.info("nodes cannot be looked at: %s", error)
            except Exception:  # a bug must not end the watch for good
                log.exception("nodes cannot be looked at")

    def look(self) -> list[str]:
        """Return the names of the pods that were deleted. Raises RunnerError."""
        silent = self._silent()
        pods = self._pods() if silent else []
        if not pods:
            return []
        with ThreadPoolExecutor(MOST_AT_ONCE) as threads:  # each may wait for CONNECT_S
            lost = list(threads.map(lambda pod: self._is_lost(pod, pods, silent), pods))
        return [self._delete(pod) for pod, is_lost in zip(pods, lost, strict=True) if is_lost]

    def _pods(self) -> list[dict]:
        return self.cluster.list(self.cluster.core.list_namespaced_pod, PARTS)["items"]

    def _silent(self) -> set[str]:
        """Return the nodes whose lease has not been renewed for long; none where that is said of most of them: then it
        is the API server that was away.
        """
        api = client.CoordinationV1Api(self.cluster.client)
        leases = self.cluster.call(api.list_namespaced_lease, LEASES).get("items") or []
        now = self.clock()
        before = self.renewed if now - self.looked <= GAP_S else {}
        self.looked, self.renewed = now, {}
        for lease in leases:
            node, renewal = lease["metadata"]["name"], (lease.get("spec") or {}).get("renewTime")
            if not renewal:  # nobody has renewed it yet
                continue
            known = before.get(node)
            self.renewed[node] = known if known and known[0] == renewal else (renewal, now)
        silent = {node for node, (_renewal, since) in self.renewed.items() if now - since >= SILENT_S}
        return silent if 2 * len(silent) <= len(leases) else set()

    @staticmethod
    def _is_lost(pod: dict, pods: list[dict], silent: set[str]) -> bool:
        """Return whether the pod counts as ready, its node is silent, it does not answer and another can."""
        if not (_serves(pod) and pod["spec"].get("nodeName") in silent and _ports(pod)):
            return False
        others = [other for other in pods if _part(other) == _part(pod) and other["spec"].get("nodeName") not in silent]
        return any(map(_serves, others)) and not _answers(pod)

    def _delete(self, pod: dict) -> str:
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        log.warning("node %s does not answer: pod %s there is replaced", node, name)
        same = {"preconditions": {"uid": pod["metadata"]["uid"]}}
        self.cluster.delete(self.cluster.core.delete_namespaced_pod, name, **same)
        return name


def _part(pod: dict) -> str:
    return pod["metadata"]["labels"]["mlp-part"]


def _serves(pod: dict) -> bool:
    """Return whether a Service sends requests to the pod."""
    ready = [each["status"] for each in (pod.get("status") or {}).get("conditions") or [] if each["type"] == "Ready"]
    return ready == ["True"] and not pod["metadata"].get("deletionTimestamp")


def _ports(pod: dict) -> list[int]:
    return [port["containerPort"] for each in pod["spec"]["containers"] for port in each.get("ports") or []]


def _answers(pod: dict) -> bool:
    """Return whether anything listens at a port of the pod."""
    for port in _ports(pod):
        try:
            socket.create_connection((pod["status"]["podIP"], port), timeout=CONNECT_S).close()
            return True
        except (OSError, KeyError):
            continue
    return False

"""The capacity of the cluster: what its nodes have for runs, and the GPUs of each node.

That is the sum of their allocatable resources without what pods request that are not runs of the platform, node by
node: what others hold too much on one node is nothing that another node would lack.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal

from kubernetes.utils.quantity import parse_quantity

from . import object_names
from .cluster import Cluster, Forbidden
from .config import ClusterConfig

GPU = "nvidia.com/gpu"
MIB = 1 << 20
FRESH_S = 60
# The pods that hold something of a node: those that have one, and have not ended.
ON_NODES = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


def capacity(cluster: Cluster, config: ClusterConfig) -> dict[str, int | Decimal]:
    """Return {"cpu": cores, "ram": MiB, "gpu": count} of the nodes that take runs. Raises RunnerError."""
    total = dict.fromkeys(("cpu", "memory", config.gpu_resource), Decimal(0))
    taken = held_by_others(cluster, config)
    for node in nodes(cluster):
        if takes_runs(node, config):
            allocatable, held = allocatable_of(node), taken[node["metadata"]["name"]]
            for kind in total:
                total[kind] += max(allocatable.get(kind, Decimal(0)) - held[kind], Decimal(0))
    cpu, ram = total["cpu"].quantize(Decimal("0.001")), int(total["memory"] / MIB)
    return {"cpu": cpu, "ram": ram, "gpu": int(total[config.gpu_resource])}


def allocatable_of(node: dict) -> dict[str, Decimal]:
    """Return the allocatable resources of a node by name: cores, bytes, devices, pods."""
    return {kind: parse_quantity(value) for kind, value in (node["status"].get("allocatable") or {}).items()}


def held_by_others(cluster: Cluster, config: ClusterConfig) -> dict[str, dict[str, Decimal]]:
    """Return by node what the pods there request that are not our runs. Nothing where pods may not be listed: the roles
    of an earlier release, or an administrator who does not want that. Raises RunnerError.
    """
    held: dict[str, dict[str, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    try:
        pods = paged(cluster, cluster.core.list_pod_for_all_namespaces, field_selector=ON_NODES)
    except Forbidden:
        return held
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        is_run = pod["metadata"]["namespace"] == config.namespace and object_names.RUN in labels
        if not is_run:
            for kind, amount in requested(pod["spec"]).items():
                held[pod["spec"]["nodeName"]][kind] += amount
    return held


def requested(pod: dict) -> dict[str, Decimal]:
    """Return what a node reserves for a pod, by its spec: the sum of its containers, or the most that an init container
    needs before they start; those that stay beside them count with both.
    """
    total: dict[str, Decimal] = defaultdict(Decimal)
    first: dict[str, Decimal] = defaultdict(Decimal)
    beside: dict[str, Decimal] = defaultdict(Decimal)
    for container in pod.get("initContainers") or []:
        stays = container.get("restartPolicy") == "Always"
        for kind, amount in _requests(container).items():
            first[kind] = max(first[kind], beside[kind] + amount)
            if stays:
                beside[kind] += amount
    for container in pod["containers"]:
        for kind, amount in _requests(container).items():
            total[kind] += amount
    for kind in {*total, *first, *beside}:
        total[kind] = max(total[kind] + beside[kind], first[kind])
    for kind, value in (pod.get("overhead") or {}).items():
        total[kind] += parse_quantity(value)
    return dict(total)


def _requests(container: dict) -> dict[str, Decimal]:
    given = (container.get("resources") or {}).get("requests") or {}
    return {kind: parse_quantity(value) for kind, value in given.items()}


class Nodes:
    """The nodes as of the last minute, for the question whether a run could ever start on one."""

    def __init__(self, cluster: Cluster, config: ClusterConfig):
        self.cluster, self.config = cluster, config
        self.asked, self.known = float("-inf"), []

    def fit(self, record: dict) -> bool:
        """Return whether a node that takes runs is large enough for a pod of this Job or Deployment, were it empty."""
        if time.monotonic() - self.asked > FRESH_S:
            try:
                self.known = [node for node in nodes(self.cluster) if takes_runs(node, self.config)]
            except Forbidden:  # may not be listed: what is not known is not waited for
                self.known = []
            self.asked = time.monotonic()
        wanted = requested(record["spec"]["template"]["spec"])
        sizes = [allocatable_of(node) for node in self.known]
        return any(all(size.get(kind, 0) >= amount for kind, amount in wanted.items()) for size in sizes)


def gpus(cluster: Cluster) -> list[dict[str, str]]:
    """Return {"node", "name", "capacity", "allocatable"} for each resource of a node whose name begins with
    nvidia.com/gpu (a shared GPU is nvidia.com/gpu.shared), with the quantities as the node reports them.
    """
    rows = []
    for node in nodes(cluster):
        has, free = node["status"].get("capacity") or {}, node["status"].get("allocatable") or {}
        for name in sorted(has.keys() | free.keys()):
            if name.startswith(GPU):
                quantities = {"capacity": has.get(name, "0"), "allocatable": free.get(name, "0")}
                rows.append({"node": node["metadata"]["name"], "name": name} | quantities)
    return rows


def nodes(cluster: Cluster) -> list[dict]:
    """Return all nodes of the cluster. Raises RunnerError."""
    return paged(cluster, cluster.core.list_node)


def paged(cluster: Cluster, listing: Callable, **options) -> list[dict]:
    """Return the items of a list of the whole cluster. Raises RunnerError."""
    items, token = [], None
    while True:
        page = cluster.call(listing, limit=500, **options, **({"_continue": token} if token else {}))
        items += page.get("items") or []
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return items


def takes_runs(node: dict, config: ClusterConfig) -> bool:
    """Return whether the node is ready, schedulable, has the labels of the node selector and no taint that our pods do
    not tolerate (pods with a GPU tolerate the taint of GPU nodes).
    """
    spec, labels = node.get("spec") or {}, node["metadata"].get("labels") or {}
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions") or [])
    taints = [taint for taint in spec.get("taints") or [] if taint["key"] != config.gpu_resource]
    closed = any(taint["effect"] in {"NoSchedule", "NoExecute"} for taint in taints)
    wanted = config.node_selector.items() <= labels.items()
    return ready and wanted and not closed and not spec.get("unschedulable")

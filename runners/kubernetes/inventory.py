"""The capacity of the cluster: the sum of its nodes' allocatable resources, and the GPUs of each node."""

from __future__ import annotations

from decimal import Decimal

from kubernetes.utils.quantity import parse_quantity

from .cluster import Cluster
from .config import ClusterConfig

GPU = "nvidia.com/gpu"


def capacity(cluster: Cluster, config: ClusterConfig) -> dict[str, int | Decimal]:
    """Return {"cpu": cores, "ram": MiB, "gpu": count} of the nodes that take runs. Raises RunnerError."""
    total = {"cpu": Decimal(0), "ram": Decimal(0), "gpu": Decimal(0)}
    for node in nodes(cluster):
        if not takes_runs(node, config):
            continue
        allocatable = node["status"].get("allocatable") or {}
        total["cpu"] += parse_quantity(allocatable.get("cpu", "0"))
        total["ram"] += parse_quantity(allocatable.get("memory", "0")) / (1 << 20)
        total["gpu"] += parse_quantity(allocatable.get(config.gpu_resource, "0"))
    return {"cpu": total["cpu"].quantize(Decimal("0.001")), "ram": int(total["ram"]), "gpu": int(total["gpu"])}


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
    items, token = [], None
    while True:
        page = cluster.call(cluster.core.list_node, limit=500, **({"_continue": token} if token else {}))
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

"""What the cluster has: the sum of its nodes' allocatable, and the GPUs of each node. Called by `runner`."""

from __future__ import annotations

from decimal import Decimal

from kubernetes.utils.quantity import parse_quantity

from .cluster import Cluster
from .config import ClusterConfig

GPU = "nvidia.com/gpu"


def capacity(cluster: Cluster, config: ClusterConfig) -> dict[str, int | Decimal]:
    """{"cpu": cores, "ram": MiB, "gpu": count} over the nodes on which runs may be placed. Raises RunnerError."""
    total = {"cpu": Decimal(0), "ram": Decimal(0), "gpu": Decimal(0)}
    for node in nodes(cluster):
        if not takes_runs(node, config):
            continue
        found = node["status"].get("allocatable") or {}
        total["cpu"] += parse_quantity(found.get("cpu", "0"))
        total["ram"] += parse_quantity(found.get("memory", "0")) / (1 << 20)
        total["gpu"] += parse_quantity(found.get(config.gpu_resource, "0"))
    return {"cpu": total["cpu"].quantize(Decimal("0.001")), "ram": int(total["ram"]), "gpu": int(total["gpu"])}


def gpus(cluster: Cluster) -> list[dict[str, str]]:
    """{"node", "name", "capacity", "allocatable"} for each resource of a node whose name begins with nvidia.com/gpu
    (a shared GPU has a name of its own: nvidia.com/gpu.shared), as the node says them.
    """
    found = []
    for node in nodes(cluster):
        has, free = node["status"].get("capacity") or {}, node["status"].get("allocatable") or {}
        for name in sorted(has.keys() | free.keys()):
            if name.startswith(GPU):
                told = {"capacity": has.get(name, "0"), "allocatable": free.get(name, "0")}
                found.append({"node": node["metadata"]["name"], "name": name} | told)
    return found


def nodes(cluster: Cluster) -> list[dict]:
    found, token = [], None
    while True:
        page = cluster.call(cluster.core.list_node, limit=500, **({"_continue": token} if token else {}))
        found += page.get("items") or []
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return found


def takes_runs(node: dict, config: ClusterConfig) -> bool:
    """Ready, open, without a taint that keeps pods like ours away (that of GPUs does not keep away who asks for one),
    and with the labels that are asked for.
    """
    spec, labels = node.get("spec") or {}, node["metadata"].get("labels") or {}
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions") or [])
    taints = [taint for taint in spec.get("taints") or [] if taint["key"] != config.gpu_resource]
    closed = any(taint["effect"] in {"NoSchedule", "NoExecute"} for taint in taints)
    wanted = config.node_selector.items() <= labels.items()
    return ready and wanted and not closed and not spec.get("unschedulable")

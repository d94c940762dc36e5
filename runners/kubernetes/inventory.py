"""The capacity of the cluster: what its nodes have for runs, and the GPUs of each node.

That is the sum of their allocatable resources without what pods request that are not runs of the platform, node by
node: what others hold too much on one node is nothing that another node would lack.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from decimal import ROUND_DOWN, Decimal

from kubernetes.utils.quantity import parse_quantity

from runners import gpu_types
from runners.base import PURPOSES
from runners.errors import NoGpus

from . import object_names
from .cluster import Cluster, Forbidden
from .config import ClusterConfig

GPU = "nvidia.com/gpu"
MIB = 1 << 20
FRESH_S = 60
LEAST_CPU = Decimal("0.5")  # with less a run waits for others to end instead
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


def largest(cluster: Cluster, config: ClusterConfig, purpose: str, gpu: int) -> dict[str, int | Decimal] | None:
    """Return {"cpu": cores, "ram": MiB} of the node with most CPUs for a run with that purpose and that many GPUs: what
    is free there now, or all that it has for runs where no node has LEAST_CPU free. Zeros where no node takes it,
    None where nodes may not be listed. Raises RunnerError.
    """
    try:
        fitting = [node for node in nodes(cluster) if takes_runs(node, config, [purpose])]
    except Forbidden:
        return None
    for runs, least in ((True, LEAST_CPU), (False, Decimal(0))):
        held = held_by_others(cluster, config, runs=runs)
        sizes = [_left(node, held[node["metadata"]["name"]], config) for node in fitting]
        cpu, memory, _gpus = max((size for size in sizes if size[2] >= gpu), default=(Decimal(0),) * 3)
        if memory > 0 and cpu >= least:
            return {"cpu": cpu.quantize(Decimal("0.001"), ROUND_DOWN), "ram": int(memory / MIB)}
    return {"cpu": Decimal(0), "ram": 0}


def _left(node: dict, held: dict[str, Decimal], config: ClusterConfig) -> tuple[Decimal, ...]:
    has = allocatable_of(node)
    return tuple(has.get(kind, Decimal(0)) - held[kind] for kind in ("cpu", "memory", config.gpu_resource))


def products(cluster: Cluster, config: ClusterConfig) -> dict[str, int]:
    """Return how many GPUs the nodes that take runs have for them, by product; under "" those of nodes without a label.

    Raises RunnerError.
    """
    total: Counter[str] = Counter()
    taken = held_by_others(cluster, config)
    for node in nodes(cluster):
        held = taken[node["metadata"]["name"]][config.gpu_resource]
        count = int(allocatable_of(node).get(config.gpu_resource, Decimal(0)) - held)
        if takes_runs(node, config, ["job"]) and count > 0:
            total[label_of(node, config)[1]] += count
    return dict(total)


def label_of(node: dict, config: ClusterConfig) -> tuple[str, str]:
    """Return the label of the node that has the product of its GPUs, and the product; two empty ones without any."""
    labels = node["metadata"].get("labels") or {}
    return next(((key, labels[key]) for key in config.gpu_labels if labels.get(key)), ("", ""))


def affinity(cluster: Cluster, config: ClusterConfig, kind: str) -> list[dict]:
    """Return the terms of a node affinity by which pods get GPUs of that type: by the labels of the nodes that are
    there, and by the products that an administrator has named; no terms without a type. Raises NoGpus without any;
    RunnerError.
    """
    if not kind:
        return []
    by_label: dict[str, set[str]] = defaultdict(set)
    with contextlib.suppress(Forbidden):  # may not be listed: what is named counts
        for key, value in {label_of(node, config) for node in nodes(cluster)}:
            if value and gpu_types.is_meant(kind, value, config.gpu_types):
                by_label[key].add(value)
    named = next((values for name, values in config.gpu_types.items() if name.casefold() == kind.casefold()), ())
    for key in config.gpu_labels if named else ():
        by_label[key].update(named)
    if not by_label:
        raise NoGpus("no node has a GPU of the type %(type)s now", type=kind)
    return [
        {"matchExpressions": [{"key": key, "operator": "In", "values": sorted(by_label[key])}]}
        for key in config.gpu_labels
        if by_label[key]
    ]


def has_affinity(node: dict, pod: dict) -> bool:
    """Return whether a node has the labels that the pod's spec requires by `affinity`."""
    required = (pod.get("affinity") or {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    labels = node["metadata"].get("labels") or {}
    return required is None or any(
        all(labels.get(each["key"]) in each["values"] for each in term["matchExpressions"])
        for term in required["nodeSelectorTerms"]
    )


def allocatable_of(node: dict) -> dict[str, Decimal]:
    """Return the allocatable resources of a node by name: cores, bytes, devices, pods."""
    return {kind: parse_quantity(value) for kind, value in (node["status"].get("allocatable") or {}).items()}


def held_by_others(cluster: Cluster, config: ClusterConfig, *, runs: bool = False) -> dict[str, dict[str, Decimal]]:
    """Return by node what the pods there request that are not our runs; with `runs` these count too. Nothing where pods
    may not be listed: the roles of an earlier release, or an administrator who does not want that. Raises RunnerError.
    """
    held: dict[str, dict[str, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    try:
        pods = paged(cluster, cluster.core.list_pod_for_all_namespaces, field_selector=ON_NODES)
    except Forbidden:
        return held
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        is_run = pod["metadata"]["namespace"] == config.namespace and object_names.RUN in labels
        if runs or not is_run:
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
                self.known = [node for node in nodes(self.cluster) if is_open(node, self.config)]
            except Forbidden:  # may not be listed: what is not known is not waited for
                self.known = []
            self.asked = time.monotonic()
        pod = record["spec"]["template"]["spec"]
        wanted = requested(pod)
        tolerations = pod.get("tolerations") or []
        usable = [node for node in self.known if is_tolerated(node, tolerations, self.config)]
        sizes = [allocatable_of(node) for node in usable if has_affinity(node, pod)]
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


def takes_runs(node: dict, config: ClusterConfig, purposes: Collection[str] = PURPOSES) -> bool:
    """Return whether the node takes runs for one of the purposes: it is open, and their pods tolerate its taints."""
    return is_open(node, config) and any(
        is_tolerated(node, config.tolerations_of(purpose), config) for purpose in purposes
    )


def is_tolerated(node: dict, tolerations: list[dict], config: ClusterConfig) -> bool:
    """Return whether the tolerations are enough for a node's taints, but for that of GPU nodes, which pods with a GPU
    always tolerate.
    """
    taints = [taint for taint in (node.get("spec") or {}).get("taints") or [] if taint["key"] != config.gpu_resource]
    closing = [taint for taint in taints if taint["effect"] in {"NoSchedule", "NoExecute"}]
    return all(any(_tolerates(each, taint) for each in tolerations) for taint in closing)


def _tolerates(toleration: dict, taint: dict) -> bool:
    """Return whether the toleration matches the taint, as the scheduler does."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and toleration.get("value", "") == (taint.get("value") or "")


def is_open(node: dict, config: ClusterConfig) -> bool:
    """Return whether the node is ready, schedulable, and has the labels of the node selector."""
    spec, labels = node.get("spec") or {}, node["metadata"].get("labels") or {}
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions") or [])
    wanted = config.node_selector.items() <= labels.items()
    return ready and wanted and not spec.get("unschedulable")

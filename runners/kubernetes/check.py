"""The checks of `manage.py kubernetes check`: what the cluster lacks to run jobs."""

from __future__ import annotations

import ipaddress
import re
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from kubernetes import client

from runners import gpu_types
from runners.base import RunSpec
from runners.errors import RunnerError

from . import access, inventory, kueue, usage
from .cluster import Cluster, Forbidden, NotFound
from .config import RUNTIMES, ClusterConfig
from .runner import KubernetesRunner

OLDEST = (1, 29)
PROBE_S = 300
NEEDED_BY_A_RUN = {"namespace", "RBAC", "storage"}
PROBE = """
import os, sys, urllib.request
print('user', os.getuid(), 'in', os.getcwd())
open('written', 'w').write('here')
print('gateway', urllib.request.urlopen(sys.argv[1], timeout=20).status)
"""


@dataclass(frozen=True)
class Line:
    """One result. `kind`: ok; note: works with restrictions; missing: jobs cannot run."""

    kind: Literal["ok", "note", "missing"]
    about: str
    text: str


def run(config: ClusterConfig, probe: bool = False) -> Iterator[Line]:
    """Yield the results, the API server first: without it nothing else can be checked."""
    cluster = Cluster(config)
    try:
        yield version(cluster)
    except RunnerError as error:
        yield Line("missing", "cluster", str(error))
        return
    before = [
        line
        for part in (namespace, rbac, storage, buckets, nodes, priorities, metrics, services, ingress, queues)
        for line in attempt(part, cluster)
    ]
    yield from before
    yield from images(config)
    yield from gateway(config)
    if probe and not any(line.kind == "missing" and line.about in NEEDED_BY_A_RUN for line in before):
        for image in ("", *config.job_images):
            yield run_probe(config, image)


def attempt(part, cluster: Cluster) -> list[Line]:
    """Return the results of one part; a part that cannot be checked is a result too."""
    try:
        return list(part(cluster))
    except RunnerError as error:
        return [Line("note", part.__name__, f"cannot be checked: {error}")]


def version(cluster: Cluster) -> Line:
    """Check the version of the API server."""
    info = cluster.version()
    number = tuple(int(re.sub(r"\D.*", "", info.get(part) or "") or 0) for part in ("major", "minor"))
    server = f"{info.get('gitVersion')} at {cluster.client.configuration.host}"
    if number < OLDEST:
        return Line("missing", "cluster", f"{server} is too old; version {OLDEST[0]}.{OLDEST[1]} or later is required")
    return Line("ok", "cluster", server)


def namespace(cluster: Cluster) -> Iterator[Line]:
    """Check the namespace. Few accounts may read namespaces, so a refusal is not an error."""
    try:
        obj = cluster.call(cluster.core.read_namespace, cluster.namespace)
        if (obj.get("status") or {}).get("phase") == "Terminating":
            yield Line("missing", "namespace", f"{cluster.namespace} is terminating")
            return
    except NotFound:
        yield Line("missing", "namespace", f"{cluster.namespace} not found; see `manage.py kubernetes manifests`")
        return
    except Forbidden:
        yield Line("ok", "namespace", f"{cluster.namespace} (not checked: no permission to read namespaces)")
        return
    yield Line("ok", "namespace", cluster.namespace)


def rbac(cluster: Cluster) -> Iterator[Line]:
    """Check each permission by a SelfSubjectAccessReview."""
    api = client.AuthorizationV1Api(cluster.client)
    total, refused = 0, []
    places = {cluster.namespace: access.IN_NAMESPACE, "": access.IN_CLUSTER, access.LEASES: access.IN_LEASES}
    for where, rules in places.items():
        for group, resource, verbs in rules:
            for verb in verbs:
                name, _, sub = resource.partition("/")
                wanted = {"verb": verb, "group": group, "resource": name}
                wanted |= ({"namespace": where} if where else {}) | ({"subresource": sub} if sub else {})
                body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
                review = cluster.call(
                    api.create_self_subject_access_review, body | {"spec": {"resourceAttributes": wanted}}
                )
                total += 1
                if not (review.get("status") or {}).get("allowed"):
                    refused.append((verb, f"{resource}.{group}" if group == usage.GROUP else resource, where))
    for verb, resource, where in refused:
        scope = f"in namespace {where}" if where else "in the cluster, needed to see nodes and classes"
        needed = where == cluster.namespace and not resource.endswith(usage.GROUP)
        yield Line("missing" if needed else "note", "RBAC", f"cannot {verb} {resource} {scope}")
    if not refused:
        yield Line("ok", "RBAC", f"all {total} permissions granted")


def storage(cluster: Cluster) -> Iterator[Line]:
    """Check the claim, or name the NFS export, that pods share with the platform."""
    config = cluster.settings
    if config.nfs:
        server, path = config.nfs_parts
        yield Line("ok", "storage", f"NFS {server}:{path}, to be mounted here at {config.storage_root}")
        return
    if not config.claim:
        yield Line("missing", "storage", "not configured; set MLP_K8S_PVC or MLP_K8S_NFS")
        return
    name = f"PersistentVolumeClaim {config.claim}"
    claim = cluster.get(cluster.core.read_namespaced_persistent_volume_claim, config.claim)
    if claim is None:
        yield Line("missing", "storage", f"{name} not found")
        return
    phase, modes = (claim.get("status") or {}).get("phase"), claim["spec"].get("accessModes") or []
    if phase == "Pending":  # some storage classes bind a claim when its first pod is scheduled
        yield Line("note", "storage", f"{name} is pending")
    elif phase != "Bound":
        yield Line("missing", "storage", f"{name} is {phase}")
    if "ReadWriteMany" not in modes:
        yield Line("note", "storage", f"{name} is {', '.join(modes)}: pods must share a node")
    elif phase == "Bound":
        size = (claim["status"].get("capacity") or {}).get("storage", "?")
        yield Line("ok", "storage", f"{name}, {size}, to be mounted here at {config.storage_root}")


def buckets(cluster: Cluster) -> Iterator[Line]:
    """Check the claims through which pods read buckets: without its claim no pod that reads one starts."""
    for bucket, name in cluster.settings.bucket_claims.items():
        claim = cluster.get(cluster.core.read_namespaced_persistent_volume_claim, name)
        phase = (claim.get("status") or {}).get("phase") if claim else "not found"
        kind = {"Bound": "ok", "Pending": "note"}.get(phase, "missing")
        yield Line(kind, "buckets", f"{bucket}: PersistentVolumeClaim {name} is {phase.lower()}")


def nodes(cluster: Cluster) -> Iterator[Line]:
    """Check that there are nodes for runs, and GPUs on them."""
    config = cluster.settings
    total = inventory.capacity(cluster, config)
    usable = sum(inventory.takes_runs(node, config) for node in inventory.nodes(cluster))
    if not usable:
        yield Line("missing", "nodes", "no node is ready for runs")
        return
    yield Line("ok", "nodes", f"{usable} ready for runs, {total['cpu']} CPUs and {total['ram']} MiB in total")
    gpus = f"{total['gpu']} {config.gpu_resource}"
    text = gpus if total["gpu"] else f"{gpus}: no GPU, or its device plugin is not installed"
    yield Line("ok" if total["gpu"] else "note", "GPUs", text)
    yield from types_of_gpus(inventory.products(cluster, config), config)


def types_of_gpus(products: dict[str, int], config: ClusterConfig) -> Iterator[Line]:
    """Report which types of GPUs jobs can name, and what is not known of them."""
    known = [f"{name} ({count})" for name, count in sorted(products.items()) if name]
    if known:
        yield Line("ok", "GPU types", ", ".join(known))
    if products.get(""):
        text = f"{products['']} of nodes without a label of MLP_K8S_GPU_LABELS ({', '.join(config.gpu_labels)}): jobs "
        yield Line("note", "GPU types", text + "that name a type do not get them")
    for name in config.gpu_types:
        if not config.autoscales and not gpu_types.meant(name, products, config.gpu_types):
            yield Line("note", "GPU types", f"{name} of MLP_GPU_TYPES: no node has one of its products")


def priorities(cluster: Cluster) -> Iterator[Line]:
    """Check that the priority classes of runs are there: without its class no pod of a run is accepted."""
    by_class: dict[str, list[str]] = {}
    for purpose, name in cluster.settings.priority_classes.items():
        by_class.setdefault(name, []).append(purpose)
    for name, purposes in by_class.items():
        try:
            found = cluster.call(cluster.scheduling.read_priority_class, name)
        except NotFound:
            text = f"PriorityClass {name} not found, which MLP_K8S_PRIORITY_CLASSES names for {', '.join(purposes)}"
            yield Line("missing", "priority", text)
            continue
        yield Line("ok", "priority", f"{name} ({found['value']}) for {', '.join(purposes)}")


def queues(cluster: Cluster) -> Iterator[Line]:
    """Check that Kueue is there, with the queues that are named, where jobs wait in some."""
    config, workloads = cluster.settings, kueue.Workloads(cluster)
    named = dict.fromkeys(filter(None, [config.kueue_queue, *config.kueue_queues.values()]))
    if not named:
        return
    try:
        workloads.list()
    except RunnerError as error:
        yield Line("missing", "Kueue", str(error))
        return
    for name in named:
        found = workloads.queue(name)
        if found is None:
            yield Line("missing", "Kueue", f"LocalQueue {name} not found in namespace {cluster.namespace}")
        else:
            yield Line("ok", "Kueue", f"LocalQueue {name} of ClusterQueue {found['spec'].get('clusterQueue')}")


def metrics(cluster: Cluster) -> Iterator[Line]:
    """Check that the metrics API answers."""
    try:
        usage.of_pods(cluster)
    except RunnerError as error:
        yield Line("note", "metrics", f"{usage.GROUP} not available; no resource usage of jobs: {error}")
        return
    yield Line("ok", "metrics", usage.GROUP)


def services(cluster: Cluster) -> Iterator[Line]:
    """Check that this process finds Services as it will find applications: by the cluster's DNS, or by address."""
    if cluster.settings.service_address == "ip":
        yield Line("ok", "services", "applications are reached at the addresses of their Services (tested by none)")
        return
    name = f"kubernetes.default.svc.{cluster.settings.cluster_domain}"
    try:
        socket.getaddrinfo(name, 443, type=socket.SOCK_STREAM)
    except OSError as problem:
        text = f"{name} does not resolve here ({problem}), so applications would not answer: run the platform in the "
        text += "cluster, give this machine the cluster's DNS, or set MLP_K8S_SERVICE_ADDRESS=ip on one of its nodes"
        yield Line("note", "services", text)
        return
    yield Line("ok", "services", f"{name} resolves")


def ingress(cluster: Cluster) -> Iterator[Line]:
    """Check the Ingress class of applications and the gateway to which their Ingress leads."""
    config = cluster.settings
    if not config.ingress_class:
        yield Line("note", "ingress", "MLP_K8S_INGRESS_CLASS is not set; applications have no Ingress")
        return
    call = cluster.networking.read_ingress_class
    try:
        ingress_class = cluster.call(call, config.ingress_class)
    except NotFound:
        yield Line("missing", "ingress", f"IngressClass {config.ingress_class} not found")
        return
    controller = (ingress_class.get("spec") or {}).get("controller") or ""
    yield Line("ok", "ingress", f"{config.ingress_class} ({controller})")
    if not config.ingress_gateway:
        yield Line("note", "ingress", "MLP_K8S_INGRESS_GATEWAY is not set; applications have no Ingress")


def images(config: ClusterConfig) -> Iterator[Line]:
    """Check that each runtime has an image, and that those of jobs have digests."""
    for runtime in RUNTIMES:
        image = config.images.get(runtime, "")
        setting = f"MLP_K8S_IMAGE_{runtime.upper()}"
        if image:
            yield Line("ok", "images", f"{runtime}: {image}")
        else:
            kind = "missing" if runtime == "python" else "note"
            yield Line(kind, "images", f"{runtime}: {setting} is not set; runs with this runtime fail")
    for name, image in config.job_images.items():
        if "@" in image:
            yield Line("ok", "images", f"{name}: {image}")
        else:
            yield Line("note", "images", f"{name}: {image} has no digest; what jobs run changes when its tag moves")


def gateway(config: ClusterConfig) -> Iterator[Line]:
    """Check that the address to which jobs report is no loopback address."""
    host = urlsplit(config.gateway_url).hostname or ""
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost" or host.endswith(".localhost")
    if is_loopback:
        yield Line("missing", "gateway", f"unreachable from pods: {config.gateway_url}; set MLP_RUN_URL or MLP_URL")
    else:
        yield Line("ok", "gateway", f"pods report to {config.gateway_url} (tested by --run)")


def run_probe(config: ClusterConfig, image: str = "") -> Line:
    """Run a small job from start to end, which needs image, storage, user, gateway and log to work together; in the
    image that jobs give this name, by default in that of the runtime `python`.
    """
    about = f"run {image}".rstrip()
    runner = KubernetesRunner(config)
    name = f"check-{secrets.token_hex(4)}"
    folder = config.storage_root / "run" / "check" / name
    folder.mkdir(parents=True)
    spec = RunSpec(
        name=name,
        command=[runner.python, "-c", PROBE, f"{config.gateway_url}/healthz/live"],
        cwd=folder,
        environment={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"},
        log=folder.with_suffix(".log"),
        cpu=0.1,
        ram_mib=128,
        owner=0,
        disk_mib=64,
        image=image,
    )
    try:
        runner.start(spec)
        end = time.monotonic() + PROBE_S
        while (status := runner.poll(name)).state == "running" and time.monotonic() < end:
            time.sleep(1)
        output = spec.log.read_text(errors="replace").split("\n") if spec.log.exists() else []
        if status.succeeded and not (folder / "written").exists():
            text = f"the file it wrote is not in {folder}; check that pods and platform mount the same storage"
            return Line("missing", about, text)
        last_lines = "; ".join(line for line in output[-4:] if line)
        text = f"{status.reason}; log: {last_lines or 'empty'}"
        return Line("ok" if status.succeeded else "missing", about, text)
    except (RunnerError, ValueError) as error:
        return Line("missing", about, str(error))
    finally:
        clear(runner, name)
        shutil.rmtree(folder, ignore_errors=True)
        spec.log.unlink(missing_ok=True)


def clear(runner: KubernetesRunner, name: str) -> None:
    """Stop and forget the run of the check."""
    try:
        runner.stop(name, 1)
        for _ in range(60):
            if runner.poll(name).state != "running":
                break
            time.sleep(0.5)
        runner.forget(name)
    except RunnerError as error:
        print(f"the run {name} was not removed: {error}", file=sys.stderr)

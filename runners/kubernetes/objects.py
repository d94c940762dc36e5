"""The objects of a run: Job or Deployment, Secret, Service, Ingress, as dictionaries for the API. Pure.

Made from a RunSpec and the configuration. The Job or Deployment owns the others (ownerReferences), so its removal
removes them all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from pathlib import Path

from kernel.messages import Message, under
from runners.base import RunSpec, omp_environment

from . import object_names, policies
from .config import ClusterConfig

WORKSPACE = "/workspace"
CONTAINER = "run"
STORAGE = "storage"
MASTER_PORT = 29500
VARIABLE = re.compile(r"[A-Za-z_.-][A-Za-z0-9_.-]*")
COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
SECRET_LIMIT = 1 << 20
# No image knows the user's id: without a name here `getpass.getuser()` fails, and with it torch.compile and others.
NAMED = {"USER": "mlp", "LOGNAME": "mlp"}
NODE = {"name": "MLP_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}


def metadata(spec: RunSpec, annotations: dict | None = None, owner: dict | None = None) -> dict:
    """Return the metadata of an object of the run."""
    values = {
        "name": object_names.object_name(spec.name),
        "labels": object_names.labels(spec.name, spec.kind, spec.owner, spec.labels),
        "annotations": {object_names.NAME: spec.name} | (annotations or {}),
    }
    return values | ({"ownerReferences": [reference(owner)]} if owner else {})


def reference(owner: dict) -> dict:
    """Return an owner reference to the Job or Deployment that the server has just created."""
    identity = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], **identity, "controller": False}


def summary(spec: RunSpec) -> dict[str, str]:
    """Return the annotation with those fields of the spec that any process needs later, for the log and the reason."""
    fields = {"log": str(Path(spec.log).absolute()), "log_limit": spec.log_limit, "ram_mib": spec.ram_mib}
    fields |= {"kind": spec.kind, "workers": spec.workers, "port": spec.port, "disk_mib": spec.disk_mib}
    fields |= {"usage": str(Path(spec.usage).absolute())} if spec.usage else {}
    return {object_names.SPEC: json.dumps(fields, separators=(",", ":"))}


def job(spec: RunSpec, config: ClusterConfig, mounts: list[dict], products: list[dict] | None = None) -> dict:
    """Return the Job, suspended: its pods may start once its Secret and Service exist."""
    template = pod_template(spec, config, mounts, products)
    template["spec"]["restartPolicy"] = "Never"
    body = {
        "suspend": True,
        "backoffLimit": 0,  # the platform decides about another attempt, which has another name
        "parallelism": spec.workers,
        "completions": spec.workers,
        "completionMode": "Indexed" if spec.workers > 1 else "NonIndexed",
        "podReplacementPolicy": "Failed",  # never two pods at once that write into one workspace
        "template": template,
    }
    if config.deadline_s:
        body["activeDeadlineSeconds"] = config.deadline_s
    if spec.workers > 1:
        template["spec"]["subdomain"] = object_names.object_name(spec.name)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata(spec, summary(spec)), "spec": body}


def deployment(spec: RunSpec, config: ClusterConfig, mounts: list[dict], products: list[dict] | None = None) -> dict:
    """Return the Deployment, with no replica for the same reason. On a drained node or a manual restart the new pod
    starts before the old one ends.
    """
    body = {
        "replicas": 0,
        "revisionHistoryLimit": 1,
        "progressDeadlineSeconds": max(60, config.start_timeout_s),
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "selector": {"matchLabels": {object_names.RUN: object_names.object_name(spec.name)}},
        "template": pod_template(spec, config, mounts, products),
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(spec, summary(spec)), "spec": body}


# --- the pod ----------------------------------------------------------------------------------------------
def pod_template(spec: RunSpec, config: ClusterConfig, mounts: list[dict], products: list[dict] | None = None) -> dict:
    """Return the pod template: user, volumes and one container. `products`: see `inventory.affinity`."""
    uid, gid = config.user_of(spec.owner)
    memory = {"sizeLimit": f"{config.shm_mib or max(64, spec.ram_mib // 2)}Mi"}
    volumes = [
        {"name": STORAGE, **storage(config)},
        {"name": "tmp", "emptyDir": {}},
        {
            "name": "shm",
            "emptyDir": {"medium": "Memory"} | memory,
        },  # data loaders need more than 64 MiB
        *bucket_volumes(config, mounts),
    ]
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # The script is not process 1 then, so SIGTERM ends it also where it has no handler.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": max(1, math.ceil(spec.grace_s)),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": uid,
            "runAsGroup": gid,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container(spec, config, mounts)],
        "volumes": volumes,
    }
    if config.pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in config.pull_secrets]
    tolerations = config.tolerations_of(spec.purpose)
    if spec.gpu:  # GPU nodes often have a taint against other pods
        tolerations.insert(0, {"key": config.gpu_resource, "operator": "Exists"})
    if tolerations:
        pod["tolerations"] = tolerations
    if name := config.priority_class_of(spec.purpose):
        pod["priorityClassName"] = name
    if config.node_selector:
        pod["nodeSelector"] = dict(config.node_selector)
    if products:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": products}}
        pod["affinity"] = {"nodeAffinity": required}
    labels = object_names.labels(spec.name, spec.kind, spec.owner, spec.labels) | {object_names.NETWORK: spec.network}
    return {"metadata": {"labels": labels, "annotations": {object_names.NAME: spec.name}}, "spec": pod}


def container(spec: RunSpec, config: ClusterConfig, mounts: list[dict]) -> dict:
    """Return the container of the run."""
    body = {
        "name": CONTAINER,
        "image": config.image(spec.runtime, spec.image),
        "imagePullPolicy": config.pull_policy,
        # The kubelet replaces `$$` by `$` and expands `$(NAME)` here, but not in the values of a Secret.
        "command": [word.replace("$", "$$") for word in spec.command],
        "workingDir": str(spec.cwd) if spec.owner is None else WORKSPACE,
        "envFrom": [{"secretRef": {"name": object_names.object_name(spec.name)}}],
        "resources": resources(spec, config),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            *mounts,
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    body["env"] = [NODE, *(ranks(spec, config) if spec.workers > 1 else [])]
    if spec.kind == "service":
        checked = starts(spec.port) if spec.purpose == "workspace" else probes(spec.port)
        body |= checked | {"ports": [{"name": "http", "containerPort": spec.port}]}
    return body


def resources(spec: RunSpec, config: ClusterConfig) -> dict:
    """Return requests and limits, which are equal, so that a node reserves what the platform has accounted."""
    amounts = {"cpu": f"{max(1, round(spec.cpu * 1000))}m", "memory": f"{spec.ram_mib}Mi"}
    if spec.gpu:
        amounts[config.gpu_resource] = str(spec.gpu)
    # Files outside the workspace are on the node's own disk.
    bounded = {"ephemeral-storage": f"{spec.disk_mib}Mi"} if spec.disk_mib else {}
    asked = {"ephemeral-storage": f"{min(64, spec.disk_mib)}Mi"} if spec.disk_mib else {}
    return {"requests": amounts | asked, "limits": amounts | bounded}


def starts(port: int) -> dict:
    """Return the probe of a workspace: it has started once it listens. A kernel that computes may keep it from
    answering for a while, and a restart would end all its kernels, so it is not probed later.
    """
    return {"startupProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1, "failureThreshold": 600}}


def probes(port: int) -> dict:
    """Return the probes of an application, by the Open Inference Protocol. Loading a model may take minutes."""

    def probe(path: str, **times: int) -> dict:
        return {"httpGet": {"path": path, "port": port}, **times}

    live, ready = "/v2/health/live", "/v2/health/ready"
    return {
        "startupProbe": probe(live, periodSeconds=2, timeoutSeconds=2, failureThreshold=300),
        "livenessProbe": probe(live, periodSeconds=10, timeoutSeconds=5, failureThreshold=3),
        "readinessProbe": probe(ready, periodSeconds=3, timeoutSeconds=3, failureThreshold=2),
    }


def ranks(spec: RunSpec, config: ClusterConfig) -> list[dict]:
    """Return torchrun's variables. Pod 0 of an Indexed Job has its own host name in the headless Service."""
    name = object_names.object_name(spec.name)
    index = {"valueFrom": {"fieldRef": {"fieldPath": COMPLETION_INDEX}}}
    plain = {
        "MASTER_ADDR": f"{name}-0.{name}.{config.namespace}.svc.{config.cluster_domain}",
        "MASTER_PORT": str(MASTER_PORT),
        "WORLD_SIZE": str(spec.workers),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }
    return [{"name": key, "value": value} for key, value in plain.items()] + [{"name": "RANK"} | index]


def storage(config: ClusterConfig) -> dict:
    """Return the volume that pods share with the platform. Raises ValueError when none is configured."""
    if config.claim:
        return {"persistentVolumeClaim": {"claimName": config.claim}}
    server, path = config.nfs_parts
    if not config.nfs or not server:
        raise ValueError(under("storage", Message("none for the cluster; set MLP_K8S_PVC or MLP_K8S_NFS")))
    return {"nfs": {"server": server, "path": path}}


def volume_name(claim: str) -> str:
    """Return the name that a claim of a bucket has in a pod: of at most 63 characters, without dots."""
    return f"bucket-{hashlib.sha256(claim.encode()).hexdigest()[:12]}"


def bucket_volumes(config: ClusterConfig, mounts: list[dict]) -> list[dict]:
    """Return the volumes of the buckets that these mounts are of."""
    mounted = {each["name"] for each in mounts}
    claims = {volume_name(claim): claim for claim in config.bucket_claims.values()}
    return [
        {"name": name, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
        for name, claim in claims.items()
        if name in mounted
    ]


def mount(source: Path, target: str, read_only: bool, config: ClusterConfig) -> dict:
    """Return the mount of a path in the shared storage. Raises ValueError for any other."""
    try:
        claim, sub_path = config.volume_of(Path(source))
    except ValueError:
        problem = Message(
            "%(path)s is not below %(root)s, which the cluster shares", path=source, root=config.storage_root
        )
        raise ValueError(under("mount", problem)) from None
    body = {"name": volume_name(claim) if claim else STORAGE, "mountPath": target, "readOnly": read_only}
    return body | ({"subPath": str(sub_path)} if sub_path.parts else {})


# --- owned objects ----------------------------------------------------------------------------------------
def secret(spec: RunSpec, owner: dict) -> dict:
    """Return the environment as a Secret, since it has the job's token. Raises ValueError for a variable that cannot be
    in one.
    """
    # Some images request all GPUs of the node from the driver; a run without a GPU must see none.
    hidden = {} if spec.gpu else {"NVIDIA_VISIBLE_DEVICES": "void"}
    values = omp_environment(spec.cpu) | NAMED | dict(spec.environment) | hidden
    for key in values:
        if not VARIABLE.fullmatch(key) or key in {".", ".."}:
            problem = Message(
                "%(name)s cannot be a variable's name in a cluster (letters, digits, '_', '.', '-')", name=repr(key)
            )
            raise ValueError(under("env", problem))
    if sum(len(value.encode()) for value in values.values()) > SECRET_LIMIT - (64 << 10):
        raise ValueError(under("env", Message("all variables together may have just under 1 MiB in a cluster")))
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    body = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": True, "data": data}
    return body | {"metadata": metadata(spec, owner=owner)}


def service(spec: RunSpec, owner: dict) -> dict | None:
    """Return the Service of an application or of several workers (headless); None for any other run."""
    chosen = {"selector": {object_names.RUN: object_names.object_name(spec.name)}}
    if spec.kind == "service":
        body = chosen | {"ports": [{"name": "http", "port": spec.port, "targetPort": spec.port}]}
    elif spec.workers > 1:
        # Host names before readiness: the workers connect to each other at once.
        ports = [{"name": "master", "port": MASTER_PORT}]
        body = chosen | {"clusterIP": "None", "publishNotReadyAddresses": True, "ports": ports}
    else:
        return None
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata(spec, owner=owner), "spec": body}


def policy(spec: RunSpec, owner: dict) -> dict | None:
    """Return the NetworkPolicy by which several workers find each other; None for any other run."""
    if spec.workers == 1:
        return None
    head = {"apiVersion": policies.API, "kind": "NetworkPolicy"}
    return head | {"metadata": metadata(spec, owner=owner), "spec": policies.workers(spec.name)}


def ingress(spec: RunSpec, config: ClusterConfig, owner: dict) -> dict | None:
    """Return the Ingress for /{user}/{app}/…, shared by the runs of an application (routes); None where there is none.

    It leads to the platform's application gateway, which checks the token and strips the prefix: the application itself
    answers nobody else.
    """
    user, app = spec.labels.get("user"), spec.labels.get("app")
    if spec.kind != "service" or not (config.ingress_class and config.ingress_gateway and user and app):
        return None
    name, _, port = config.ingress_gateway.partition(":")
    backend = {"service": {"name": name, "port": {"number": int(port)}}}
    path = {"path": f"/{user}/{app}", "pathType": "Prefix", "backend": backend}
    rule = {"http": {"paths": [path]}} | ({"host": config.ingress_host} if config.ingress_host else {})
    body = {"ingressClassName": config.ingress_class, "rules": [rule]}
    head = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress"}
    return head | {"metadata": metadata(spec, owner=owner) | {"name": object_names.route_name(user, app)}, "spec": body}

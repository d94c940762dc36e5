"""What a run is made of in the cluster: Job or Deployment, Secret, Services, Ingress, as the API takes them. Pure:
from a RunSpec and the configuration to dictionaries. Called by `runner`.

Everything but the Job or Deployment itself is owned by it (ownerReferences), so removing that removes all.
"""

from __future__ import annotations

import base64
import json
import math
import re
from pathlib import Path

from runners.base import RunSpec

from . import object_names
from .config import ClusterConfig

WORKSPACE = "/workspace"
CONTAINER = "run"
STORAGE = "storage"
MASTER_PORT = 29500
VARIABLE = re.compile(r"[A-Za-z_.-][A-Za-z0-9_.-]*")
COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
SECRET_LIMIT = 1 << 20
REWRITING = {
    "use-regex": "true",
    "rewrite-target": "/$2",
    "proxy-body-size": "0",
    "proxy-read-timeout": "3600",
    "proxy-buffering": "off",
}


def metadata(spec: RunSpec, annotations: dict | None = None, owner: dict | None = None) -> dict:
    found = {
        "name": object_names.object_name(spec.name),
        "labels": object_names.labels(spec.name, spec.kind, spec.owner, spec.labels),
        "annotations": {object_names.NAME: spec.name} | (annotations or {}),
    }
    return found | ({"ownerReferences": [reference(owner)]} if owner else {})


def reference(owner: dict) -> dict:
    """To the Job or Deployment that the server has just made."""
    told = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], **told, "controller": False}


def summary(spec: RunSpec) -> dict[str, str]:
    """What must be known of the spec later, by any process: for the log and for the words of its end."""
    told = {"log": str(Path(spec.log).absolute()), "log_limit": spec.log_limit, "ram_mib": spec.ram_mib}
    told |= {"kind": spec.kind, "workers": spec.workers, "port": spec.port, "disk_mib": spec.disk_mib}
    told |= {"usage": str(Path(spec.usage).absolute())} if spec.usage else {}
    return {object_names.SPEC: json.dumps(told, separators=(",", ":"))}


def job(spec: RunSpec, config: ClusterConfig, mounts: list[dict]) -> dict:
    """Made suspended: its pods may begin when its Secret and Service are there too."""
    template = pod_template(spec, config, mounts)
    template["spec"]["restartPolicy"] = "Never"
    body = {
        "suspend": True,
        "backoffLimit": 0,  # another attempt is the platform's to decide, under another name
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


def deployment(spec: RunSpec, config: ClusterConfig, mounts: list[dict]) -> dict:
    """Made with no replica, for the same reason. A change of the cluster (a drained node, a restart by hand) starts
    the new pod before it ends the old one.
    """
    body = {
        "replicas": 0,
        "revisionHistoryLimit": 1,
        "progressDeadlineSeconds": max(60, config.start_timeout_s),
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "selector": {"matchLabels": {object_names.RUN: object_names.object_name(spec.name)}},
        "template": pod_template(spec, config, mounts),
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(spec, summary(spec)), "spec": body}


# --- the pod ----------------------------------------------------------------------------------------------
def pod_template(spec: RunSpec, config: ClusterConfig, mounts: list[dict]) -> dict:
    uid, gid = config.user_of(spec.owner)
    memory = {"sizeLimit": f"{config.shm_mib or max(64, spec.ram_mib // 2)}Mi"}
    volumes = [
        {"name": STORAGE, **storage(config)},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"} | memory},  # data loaders' workers need more than 64 MiB
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
    if spec.gpu:  # nodes with GPUs are often closed to whoever asks for none
        pod["tolerations"] = [{"key": config.gpu_resource, "operator": "Exists"}]
    if config.node_selector:
        pod["nodeSelector"] = dict(config.node_selector)
    labels = object_names.labels(spec.name, spec.kind, spec.owner, spec.labels)
    return {"metadata": {"labels": labels, "annotations": {object_names.NAME: spec.name}}, "spec": pod}


def container(spec: RunSpec, config: ClusterConfig, mounts: list[dict]) -> dict:
    found = {
        "name": CONTAINER,
        "image": config.image(spec.runtime),
        "imagePullPolicy": config.pull_policy,
        # The kubelet makes `$` of `$$` and puts variables in for `$(NAME)`; a Secret's values it leaves as they are.
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
    if spec.workers > 1:
        found["env"] = ranks(spec, config)
    if spec.kind == "service":
        found |= probes(spec.port) | {"ports": [{"name": "http", "containerPort": spec.port}]}
    return found


def resources(spec: RunSpec, config: ClusterConfig) -> dict:
    """Asked for and bounded alike, so that what the platform has counted is what the node sets aside."""
    found = {"cpu": f"{max(1, round(spec.cpu * 1000))}m", "memory": f"{spec.ram_mib}Mi"}
    if spec.gpu:
        found[config.gpu_resource] = str(spec.gpu)
    # What is written outside the workspace lies on the node's own disk.
    bounded = {"ephemeral-storage": f"{spec.disk_mib}Mi"} if spec.disk_mib else {}
    asked = {"ephemeral-storage": f"{min(64, spec.disk_mib)}Mi"} if spec.disk_mib else {}
    return {"requests": found | asked, "limits": found | bounded}


def probes(port: int) -> dict:
    """Of the Open Inference Protocol. A model may take minutes to load before it is alive."""

    def probe(path: str, **times: int) -> dict:
        return {"httpGet": {"path": path, "port": port}, **times}

    live, ready = "/v2/health/live", "/v2/health/ready"
    return {
        "startupProbe": probe(live, periodSeconds=2, timeoutSeconds=2, failureThreshold=300),
        "livenessProbe": probe(live, periodSeconds=10, timeoutSeconds=5, failureThreshold=3),
        "readinessProbe": probe(ready, periodSeconds=3, timeoutSeconds=3, failureThreshold=2),
    }


def ranks(spec: RunSpec, config: ClusterConfig) -> list[dict]:
    """torchrun's variables. Pod 0 of an Indexed Job has a name of its own in the headless Service."""
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
    if config.claim:
        return {"persistentVolumeClaim": {"claimName": config.claim}}
    server, path = config.nfs_parts
    if not config.nfs or not server:
        raise ValueError("storage: none for the cluster; set MLP_K8S_PVC or MLP_K8S_NFS")
    return {"nfs": {"server": server, "path": path}}


def mount(source: Path, target: str, read_only: bool, config: ClusterConfig) -> dict:
    """`source` must lie in the storage that pods share with this process. Raises ValueError."""
    try:
        sub_path = Path(source).relative_to(config.storage_root)
    except ValueError:
        raise ValueError(f"mount: {source} is not below {config.storage_root}, which the cluster shares") from None
    found = {"name": STORAGE, "mountPath": target, "readOnly": read_only}
    return found | ({"subPath": str(sub_path)} if sub_path.parts else {})


# --- what belongs to it -----------------------------------------------------------------------------------
def secret(spec: RunSpec, owner: dict) -> dict:
    """The environment: it holds the job's token. Raises ValueError for a variable that no Secret can carry."""
    threads = {"OMP_NUM_THREADS": str(max(1, int(spec.cpu)))}
    # Some images ask the driver for all GPUs of the node; a run without any must see none.
    hidden = {} if spec.gpu else {"NVIDIA_VISIBLE_DEVICES": "void"}
    values = threads | dict(spec.environment) | hidden
    for key in values:
        if not VARIABLE.fullmatch(key) or key in {".", ".."}:
            raise ValueError(f"env: {key!r} cannot be a variable's name in a cluster (letters, digits, '_', '.', '-')")
    if sum(len(value.encode()) for value in values.values()) > SECRET_LIMIT - (64 << 10):
        raise ValueError("env: all variables together may have just under 1 MiB in a cluster")
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    body = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": True, "data": data}
    return body | {"metadata": metadata(spec, owner=owner)}


def service(spec: RunSpec, owner: dict) -> dict | None:
    """For an application: its address. For several workers: their names. For anything else: none."""
    chosen = {"selector": {object_names.RUN: object_names.object_name(spec.name)}}
    if spec.kind == "service":
        body = chosen | {"ports": [{"name": "http", "port": spec.port, "targetPort": spec.port}]}
    elif spec.workers > 1:
        # Names before readiness: the workers look for each other at once.
        ports = [{"name": "master", "port": MASTER_PORT}]
        body = chosen | {"clusterIP": "None", "publishNotReadyAddresses": True, "ports": ports}
    else:
        return None
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata(spec, owner=owner), "spec": body}


def ingress(spec: RunSpec, config: ClusterConfig, owner: dict) -> dict | None:
    """/{user}/{app}/… by an Ingress of the configured class. With `ingress_gateway` every class can: it leads to the
    platform's own gateway, which asks for the token and takes the prefix off. Without, ingress-nginx (or who reads its
    annotations) does both; and where nobody could ask for the token of an application that is not public, there is no
    Ingress: it must not be open by mistake.
    """
    user, app = spec.labels.get("user"), spec.labels.get("app")
    public = spec.labels.get("public") == "true"
    if spec.kind != "service" or not (config.ingress_class and user and app):
        return None
    if config.ingress_gateway:
        name, _, port = config.ingress_gateway.partition(":")
        backend = {"service": {"name": name, "port": {"number": int(port)}}}
        path = {"path": f"/{user}/{app}", "pathType": "Prefix", "backend": backend}
        annotations = {}
    elif public or config.ingress_auth_url:
        backend = {"service": {"name": object_names.object_name(spec.name), "port": {"number": spec.port}}}
        path = {"path": f"/{user}/{app}(/|$)(.*)", "pathType": "ImplementationSpecific", "backend": backend}
        asked = {} if public else {"auth-url": config.ingress_auth_url.format(user=user, app=app)}
        annotations = {f"nginx.ingress.kubernetes.io/{key}": value for key, value in (REWRITING | asked).items()}
    else:
        return None
    rule = {"http": {"paths": [path]}} | ({"host": config.ingress_host} if config.ingress_host else {})
    body = {"ingressClassName": config.ingress_class, "rules": [rule]}
    told = metadata(spec, annotations, owner)
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": told, "spec": body}

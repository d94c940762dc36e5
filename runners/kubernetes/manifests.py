"""What an operator applies once: namespace, account, roles, the claim, and who may talk to whom. Called by
`manage.py kubernetes manifests`; deploy/kubernetes.yaml is its output for the default settings.
"""

from __future__ import annotations

import json

import yaml

from . import access, object_names
from .config import ClusterConfig

ACCOUNT = "mlp-platform"
CLAIM_SIZE = "100Gi"


def manifests(config: ClusterConfig, size: str = CLAIM_SIZE, storage_class: str = "") -> list[dict]:
    return [
        namespace(config),
        meta("v1", "ServiceAccount", ACCOUNT, config.namespace),
        role("Role", ACCOUNT, access.IN_NAMESPACE, config.namespace),
        binding("RoleBinding", "Role", ACCOUNT, config.namespace, config.namespace),
        role("ClusterRole", f"{ACCOUNT}-{config.namespace}", access.IN_CLUSTER),
        binding("ClusterRoleBinding", "ClusterRole", f"{ACCOUNT}-{config.namespace}", config.namespace),
        *([] if config.nfs else [claim(config, size, storage_class)]),
        *policies(config),
    ]


def text(config: ClusterConfig, size: str = CLAIM_SIZE, storage_class: str = "") -> str:
    """As `kubectl apply -f -` takes it."""
    plain = json.loads(json.dumps(manifests(config, size, storage_class)))  # else what is meant twice is a reference
    return yaml.safe_dump_all(plain, sort_keys=False)


def meta(version: str, kind: str, name: str, namespace: str = "") -> dict:
    told = {"name": name, "labels": {object_names.MANAGED_BY: object_names.PLATFORM}}
    return {"apiVersion": version, "kind": kind, "metadata": told | ({"namespace": namespace} if namespace else {})}


def namespace(config: ClusterConfig) -> dict:
    """Pods that ask for more than ours do are refused. A volume of the kind nfs is not in the strictest profile."""
    body = meta("v1", "Namespace", config.namespace)
    level = "baseline" if config.nfs else "restricted"
    body["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = level
    return body


def role(kind: str, name: str, rights: tuple, namespace: str = "") -> dict:
    rules = [{"apiGroups": [group], "resources": [what], "verbs": list(verbs)} for group, what, verbs in rights]
    return meta("rbac.authorization.k8s.io/v1", kind, name, namespace) | {"rules": rules}


def binding(kind: str, role: str, name: str, account_in: str, namespace: str = "") -> dict:
    return meta("rbac.authorization.k8s.io/v1", kind, name, namespace) | {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": account_in}],
    }


def claim(config: ClusterConfig, size: str, storage_class: str) -> dict:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": size}}}
    if storage_class:
        spec["storageClassName"] = storage_class
    return meta("v1", "PersistentVolumeClaim", config.claim or "mlp", config.namespace) | {"spec": spec}


def policies(config: ClusterConfig) -> list[dict]:
    """Nobody calls a job but a job (the workers of one); what is in the namespace, and an Ingress's controller from
    anywhere in the cluster, may call an application.
    """
    version, spec = "networking.k8s.io/v1", {"policyTypes": ["Ingress"]}
    jobs = {object_names.MANAGED_BY: object_names.PLATFORM, object_names.KIND: "job"}
    services = {object_names.MANAGED_BY: object_names.PLATFORM, object_names.KIND: "service"}
    among_jobs = {"podSelector": {"matchLabels": jobs}, "ingress": [{"from": [{"podSelector": {"matchLabels": jobs}}]}]}
    outsiders = [
        {"podSelector": {"matchExpressions": [{"key": object_names.KIND, "operator": "NotIn", "values": ["job"]}]}}
    ]
    elsewhere = [{"namespaceSelector": {"matchExpressions": [other_than(config.namespace)]}}]
    to_services = {"podSelector": {"matchLabels": services}, "ingress": [{"from": outsiders + elsewhere}]}
    return [
        meta(version, "NetworkPolicy", "mlp-jobs", config.namespace) | {"spec": spec | among_jobs},
        meta(version, "NetworkPolicy", "mlp-services", config.namespace) | {"spec": spec | to_services},
    ]


def other_than(namespace: str) -> dict:
    return {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [namespace]}

"""The manifests that an administrator applies once: namespace, account, roles, claim and network policies.

Called by `manage.py kubernetes manifests`; deploy/kubernetes.yaml is its output for the default settings.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import yaml

from . import access, object_names
from .config import ClusterConfig

ACCOUNT = "mlp-platform"
CLAIM_SIZE = "100Gi"
PLATFORM_PODS = {"app": "mlp-platform"}  # as in deploy/platform.yaml


def manifests(
    config: ClusterConfig, size: str = CLAIM_SIZE, storage_class: str = "", platform: Sequence[str] = ()
) -> list[dict]:
    """Return all objects. `size` and `storage_class` are those of the claim, `platform` the addresses (CIDR) of a
    platform that runs outside of the cluster.
    """
    return [
        namespace(config),
        meta("v1", "ServiceAccount", ACCOUNT, config.namespace),
        role("Role", ACCOUNT, access.IN_NAMESPACE, config.namespace),
        binding("RoleBinding", "Role", ACCOUNT, config.namespace, config.namespace),
        role("ClusterRole", f"{ACCOUNT}-{config.namespace}", access.IN_CLUSTER),
        binding("ClusterRoleBinding", "ClusterRole", f"{ACCOUNT}-{config.namespace}", config.namespace),
        *([] if config.nfs else [claim(config, size, storage_class)]),
        *policies(config, platform),
    ]


def text(config: ClusterConfig, size: str = CLAIM_SIZE, storage_class: str = "", platform: Sequence[str] = ()) -> str:
    """Return the objects as YAML for `kubectl apply -f -`."""
    plain = json.loads(
        json.dumps(manifests(config, size, storage_class, platform))
    )  # without shared objects, which YAML would write as references
    return yaml.safe_dump_all(plain, sort_keys=False)


def meta(version: str, kind: str, name: str, namespace: str = "") -> dict:
    """Return the head of an object: version, kind and metadata."""
    metadata = {"name": name, "labels": {object_names.MANAGED_BY: object_names.PLATFORM}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata | ({"namespace": namespace} if namespace else {})}


def namespace(config: ClusterConfig) -> dict:
    """Return the namespace; its Pod Security level refuses pods with more rights (`restricted` has no NFS)."""
    body = meta("v1", "Namespace", config.namespace)
    level = "baseline" if config.nfs else "restricted"
    body["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = level
    return body


def role(kind: str, name: str, rights: tuple, namespace: str = "") -> dict:
    """Return a Role or ClusterRole with these rights (see `access`)."""
    rules = [{"apiGroups": [group], "resources": [what], "verbs": list(verbs)} for group, what, verbs in rights]
    return meta("rbac.authorization.k8s.io/v1", kind, name, namespace) | {"rules": rules}


def binding(kind: str, role: str, name: str, account_in: str, namespace: str = "") -> dict:
    """Return the binding of the role to the platform's account in the namespace `account_in`."""
    return meta("rbac.authorization.k8s.io/v1", kind, name, namespace) | {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": account_in}],
    }


def claim(config: ClusterConfig, size: str, storage_class: str) -> dict:
    """Return the claim for the storage that pods share with the platform."""
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": size}}}
    if storage_class:
        spec["storageClassName"] = storage_class
    return meta("v1", "PersistentVolumeClaim", config.claim or "mlp", config.namespace) | {"spec": spec}


def policies(config: ClusterConfig, platform: Sequence[str] = ()) -> list[dict]:
    """Return the network policies: jobs accept connections from jobs only (their workers), applications from the
    platform only, whose application gateway is the one way to them.
    """
    version, spec = "networking.k8s.io/v1", {"policyTypes": ["Ingress"]}
    jobs = {object_names.MANAGED_BY: object_names.PLATFORM, object_names.KIND: "job"}
    services = {object_names.MANAGED_BY: object_names.PLATFORM, object_names.KIND: "service"}
    among_jobs = {"podSelector": {"matchLabels": jobs}, "ingress": [{"from": [{"podSelector": {"matchLabels": jobs}}]}]}
    the_platform = [{"podSelector": {"matchLabels": PLATFORM_PODS}}, *({"ipBlock": {"cidr": one}} for one in platform)]
    to_services = {"podSelector": {"matchLabels": services}, "ingress": [{"from": the_platform}]}
    return [
        meta(version, "NetworkPolicy", "mlp-jobs", config.namespace) | {"spec": spec | among_jobs},
        meta(version, "NetworkPolicy", "mlp-services", config.namespace) | {"spec": spec | to_services},
    ]

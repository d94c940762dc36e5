"""The manifests that an administrator applies once: namespace, account, roles, claim and network policies.

Called by `manage.py kubernetes manifests`; deploy/kubernetes.yaml is its output for the default settings.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import yaml

from . import access, object_names, policies
from .config import ClusterConfig

ACCOUNT = "mlp-platform"
CLAIM_SIZE = "100Gi"


def manifests(
    config: ClusterConfig,
    size: str = CLAIM_SIZE,
    storage_class: str = "",
    platform: Sequence[str] = (),
    inside: Sequence[str] = policies.INSIDE,
) -> list[dict]:
    """Return all objects. `size` and `storage_class` are those of the claim; `platform` and `inside` are addresses
    (CIDR), see `policies.static`.
    """
    network = policies.static(config, platform, inside)
    return [
        namespace(config),
        meta("v1", "ServiceAccount", ACCOUNT, config.namespace),
        role("Role", ACCOUNT, access.IN_NAMESPACE, config.namespace),
        binding("RoleBinding", "Role", ACCOUNT, config.namespace, config.namespace),
        role("ClusterRole", f"{ACCOUNT}-{config.namespace}", access.IN_CLUSTER),
        binding("ClusterRoleBinding", "ClusterRole", f"{ACCOUNT}-{config.namespace}", config.namespace),
        role("Role", f"{ACCOUNT}-{config.namespace}", access.IN_LEASES, access.LEASES),
        binding("RoleBinding", "Role", f"{ACCOUNT}-{config.namespace}", config.namespace, access.LEASES),
        *([] if config.nfs else [claim(config, size, storage_class)]),
        *(meta(policies.API, "NetworkPolicy", name, config.namespace) | {"spec": network[name]} for name in network),
    ]


def text(config: ClusterConfig, **options) -> str:
    """Return the objects as YAML for `kubectl apply -f -`; the options are those of `manifests`."""
    plain = json.loads(
        json.dumps(manifests(config, **options))
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

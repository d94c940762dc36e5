"""MLP_K8S: how a platform with MLP_RUNNER=kubernetes uses its cluster. Read once by settings.py, taken by
`runners.kubernetes`; docs/kubernetes.md explains each variable.
"""

from __future__ import annotations

import re

from django.core.exceptions import ImproperlyConfigured

from kernel.environment import env, env_int, env_list


def images() -> dict[str, str]:
    """By runtime. An unset one fails the runs that need it, with a reason that names the variable."""
    named = {
        "python": env("MLP_K8S_IMAGE_PYTHON"),
        "torch": env("MLP_K8S_IMAGE_TORCH"),
        "tf": env("MLP_K8S_IMAGE_TF"),
        "serve": env("MLP_K8S_IMAGE_SERVE"),
    }
    return {runtime: image for runtime, image in named.items() if image}


def pairs(name: str, values: list[str]) -> dict[str, str]:
    """`key=value` parts."""
    if bad := [value for value in values if not re.fullmatch(r"[^=\s]+=[^=\s]*", value)]:
        raise ImproperlyConfigured(f"{name} must be like key=value,key=value, not {bad[0]!r}")
    return dict(value.split("=", 1) for value in values)


def nfs(value: str) -> str:
    if value and not re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[^:/\s]+):/\S*", value):
        raise ImproperlyConfigured(f"MLP_K8S_NFS must be like server:/path, not {value!r}")
    return value


def service(value: str) -> str:
    if value and not re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?:[1-9]\d{0,4}", value):
        raise ImproperlyConfigured(f"MLP_K8S_INGRESS_GATEWAY must be like service:port, not {value!r}")
    return value


def read() -> dict:
    """The fields of ClusterConfig that come from the environment."""
    storage = {"claim": env("MLP_K8S_PVC"), "nfs": nfs(env("MLP_K8S_NFS"))}
    if all(storage.values()):
        raise ImproperlyConfigured("MLP_K8S_PVC and MLP_K8S_NFS: the storage is one of them, not both")
    return storage | {
        "namespace": env("MLP_K8S_NAMESPACE", "mlp"),
        "kubeconfig": env("MLP_K8S_KUBECONFIG"),
        "context": env("MLP_K8S_CONTEXT"),
        "images": images(),
        "pull_policy": env("MLP_K8S_PULL_POLICY", "IfNotPresent"),
        "pull_secrets": tuple(env_list("MLP_K8S_PULL_SECRETS")),
        "python": env("MLP_K8S_PYTHON", "python3"),
        "uid_base": env_int("MLP_K8S_UID_BASE", 100_000, 1, 2**31 - 1 - 10**8),
        "gpu_resource": env("MLP_K8S_GPU_RESOURCE", "nvidia.com/gpu"),
        "ingress_class": env("MLP_K8S_INGRESS_CLASS"),
        "ingress_host": env("MLP_K8S_INGRESS_HOST"),
        "ingress_gateway": service(env("MLP_K8S_INGRESS_GATEWAY")),
        "ingress_auth_url": env("MLP_K8S_INGRESS_AUTH_URL"),
        "cluster_domain": env("MLP_K8S_CLUSTER_DOMAIN", "cluster.local"),
        "node_selector": pairs("MLP_K8S_NODE_SELECTOR", env_list("MLP_K8S_NODE_SELECTOR")),
        "start_timeout_s": env_int("MLP_K8S_START_TIMEOUT_S", 600, 10),
        "deadline_s": env_int("MLP_K8S_DEADLINE_S", 0),
        "shm_mib": env_int("MLP_K8S_SHM_MIB", 0),
    }

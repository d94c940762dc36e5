"""Runs in a Kubernetes cluster; docs/kubernetes.md explains it. `runners.get` makes the runner."""

from . import check, manifests
from .config import ClusterConfig, from_settings
from .runner import KubernetesRunner

__all__ = ["ClusterConfig", "KubernetesRunner", "check", "from_settings", "manifests"]

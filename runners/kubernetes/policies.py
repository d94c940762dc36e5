"""Network policies: what the pods of runs may connect to, and who to them. Pure.

Static ones select pods by the labels of their kind and of their network policy (`open`, `platform`, `none`), and are
part of the manifests. The workers of one run find each other by a policy of their own, which the run owns. A cluster
enforces them only with a network plugin that does.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from . import object_names
from .config import ClusterConfig

API = "networking.k8s.io/v1"
PLATFORM_PODS = {"app": "mlp-platform"}  # as in deploy/platform.yaml
# The usual networks of pods and services (kubeadm, flannel, k3s); the option `--inside` of the command names others.
INSIDE = ("10.96.0.0/12", "10.244.0.0/16", "10.42.0.0/15")
# Addresses with which a node, or its cloud, answers about itself.
OWN_V4 = ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "224.0.0.0/4")
OWN_V6 = ("::1/128", "fe80::/10", "fd00:ec2::254/128", "ff00::/8")
DNS = [
    {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
]
TO_DNS = {"to": DNS, "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}


def static(config: ClusterConfig, platform: Sequence[str] = (), inside: Sequence[str] = INSIDE) -> dict[str, dict]:
    """Return the specs of the policies by name. `platform` are the addresses of a platform outside of the cluster,
    `inside` those of the cluster's own pods, services and nodes.
    """
    the_platform = [
        {"podSelector": {"matchLabels": PLATFORM_PODS}},
        *({"ipBlock": {"cidr": address}} for address in platform),
    ]
    to_platform = {"to": the_platform, "ports": [{"protocol": "TCP", "port": port} for port in ports(config)]}
    v4, v6 = (
        [*OWN_V4, *(network for network in inside if ":" not in network)],
        [*OWN_V6, *(network for network in inside if ":" in network)],
    )
    internet = {
        "to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": v4}}, {"ipBlock": {"cidr": "::/0", "except": v6}}],
    }
    old_jobs = runs(object_names.KIND, "job")
    old_jobs["matchExpressions"] = [{"key": object_names.NETWORK, "operator": "DoesNotExist"}]
    new_jobs = runs(object_names.KIND, "job")
    new_jobs["matchExpressions"] = [{"key": object_names.NETWORK, "operator": "Exists"}]
    among_jobs = [{"from": [{"podSelector": runs(object_names.KIND, "job")}]}]
    return {
        # Nobody connects to a job; `workers` opens the runs that have several.
        "mlp-jobs": ingress(new_jobs, []),
        # The jobs of a release whose pods have no network label yet.
        "mlp-jobs-before": ingress(old_jobs, among_jobs),
        "mlp-services": ingress(runs(object_names.KIND, "service"), [{"from": the_platform}]),
        "mlp-network-none": egress(runs(object_names.NETWORK, "none"), []),
        "mlp-network-platform": egress(runs(object_names.NETWORK, "platform"), [TO_DNS, to_platform]),
        "mlp-network-open": egress(runs(object_names.NETWORK, "open"), [TO_DNS, to_platform, internet]),
    }


def workers(run: str) -> dict:
    """Return the spec of the policy by which the workers of one run, and nobody else, find each other."""
    mine = {"matchLabels": {object_names.RUN: object_names.object_name(run)}}
    return {
        "podSelector": mine,
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [{"podSelector": mine}]}],
        "egress": [{"to": [{"podSelector": mine}]}, TO_DNS],  # the first worker is found by its host name
    }


def ports(config: ClusterConfig) -> list[int]:
    """Return the platform's ports that runs may reach."""
    url = urlsplit(config.gateway_url)
    return sorted({*config.ports, *([url.port or (443 if url.scheme == "https" else 80)] if url.hostname else [])})


def runs(label: str, value: str) -> dict:
    """Return the selector of the pods of runs with a label."""
    return {"matchLabels": {object_names.MANAGED_BY: object_names.PLATFORM, label: value}}


def ingress(pods: dict, rules: list) -> dict:
    """Return a policy about who may connect to the pods."""
    return {"policyTypes": ["Ingress"], "podSelector": pods, "ingress": rules}


def egress(pods: dict, rules: list) -> dict:
    """Return a policy about what the pods may connect to."""
    return {"policyTypes": ["Egress"], "podSelector": pods, "egress": rules}

"""The network policies, read as an engine reads them: may this pod connect to that one?

The rules are those of https://kubernetes.io/docs/concepts/services-networking/network-policies/: a pod that no policy
selects for a direction may do everything in it, else what any rule of those policies allows; a connection needs both
directions. An ipBlock counts for pods too, by their address, as with most engines.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from django.core.management import call_command
from kubernetes import client

from runners.base import RunSpec
from runners.kubernetes import ClusterConfig, manifests, objects, policies

from .helpers import end_of, spec

CONFIG = ClusterConfig(Path("/mlp"), claim="mlp", images={"python": "image", "serve": "image"})
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x", "uid": "u"}}


@dataclass(frozen=True)
class End:
    """A pod, or (without labels) an address outside of the cluster."""

    ip: str
    labels: dict = field(default_factory=dict, hash=False)
    namespace: str = ""


def labels_match(selector: dict, labels: dict) -> bool:
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for want in selector.get("matchExpressions") or []:
        has, value = want["key"] in labels, labels.get(want["key"])
        answer = {
            "In": has and value in (want.get("values") or []),
            "NotIn": not has or value not in (want.get("values") or []),
            "Exists": has,
            "DoesNotExist": not has,
        }[want["operator"]]
        if not answer:
            return False
    return True


def is_peer(peer: dict, end: End, home: str) -> bool:
    if block := peer.get("ipBlock"):
        address = ipaddress.ip_address(end.ip)

        def within(cidr: str) -> bool:
            network = ipaddress.ip_network(cidr)
            return network.version == address.version and address in network

        return within(block["cidr"]) and not any(map(within, block.get("except") or []))
    if not end.namespace:
        return False
    if "namespaceSelector" in peer:
        if not labels_match(peer["namespaceSelector"], {"kubernetes.io/metadata.name": end.namespace}):
            return False
    elif end.namespace != home:
        return False
    return labels_match(peer.get("podSelector") or {}, end.labels)


def allows(policy: dict, direction: str, other: End, port: int, protocol: str) -> bool:
    spec, home = policy["spec"], policy["metadata"]["namespace"]
    for rule in spec.get(direction) or []:
        peers, ports = rule.get("to" if direction == "egress" else "from"), rule.get("ports")
        there = not peers or any(is_peer(peer, other, home) for peer in peers)
        fits = not ports or any(
            entry.get("protocol", "TCP") == protocol and entry.get("port") in (None, port) for entry in ports
        )
        if there and fits:
            return True
    return False


def may(network_policies: list[dict], source: End, target: End, port: int, protocol: str = "TCP") -> bool:
    for direction, here, other in (("egress", source, target), ("ingress", target, source)):
        selecting = [
            policy
            for policy in network_policies
            if here.namespace == policy["metadata"]["namespace"]
            and direction.title() in policy["spec"]["policyTypes"]
            and labels_match(policy["spec"]["podSelector"], here.labels)
        ]
        if selecting and not any(allows(policy, direction, other, port, protocol) for policy in selecting):
            return False
    return True


# --- the cluster of the test --------------------------------------------------------------------------------------
def run(name: str, **fields) -> RunSpec:
    values = {"command": ["x"], "cwd": Path("/mlp/jobs/a"), "environment": {}, "log": Path("/mlp/jobs/a/log")}
    return RunSpec(name=name, **values | {"owner": 7} | fields)


def pod(ip: str, spec: RunSpec) -> End:
    return End(ip, objects.pod_template(spec, CONFIG, [])["metadata"]["labels"], "mlp")


TEAM = run("job-4-1", workers=2)
LONELY = run("job-5-1", workers=2, network="none", owner=8)
PODS = {
    "open": pod("10.244.1.1", run("job-1-1")),
    "platform only": pod("10.244.1.2", run("job-2-1", network="platform")),
    "none": pod("10.244.1.3", run("job-3-1", network="none")),
    "worker 0": pod("10.244.1.4", TEAM),
    "worker 1": pod("10.244.2.4", TEAM),
    "lonely worker": pod("10.244.2.5", LONELY),
    "app": pod("10.244.2.6", run("app-1-1", kind="service", port=31000, runtime="serve", owner=8)),
    "of an older release": End(
        "10.244.2.7", {"app.kubernetes.io/managed-by": "mlp-platform", "mlp.platform/kind": "job"}, "mlp"
    ),
}
OTHERS = {
    "the platform": End("10.244.1.9", {"app": "mlp-platform"}, "mlp"),
    "dns": End("10.244.0.2", {"k8s-app": "kube-dns"}, "kube-system"),
    "another namespace": End("10.244.1.8", {"app": "database"}, "default"),
    "the API server": End("10.96.0.1"),
    "cloud metadata": End("169.254.169.254"),
    "the internet": End("93.184.216.34"),
    "the internet, IPv6": End("2606:2800:220:1::1"),
    "a file server": End("192.168.7.7"),
}
EVERYBODY = PODS | OTHERS


def applied(**options) -> list[dict]:
    network_policies = [
        manifest for manifest in manifests.manifests(CONFIG, **options) if manifest["kind"] == "NetworkPolicy"
    ]
    for team in (TEAM, LONELY):
        own = objects.policy(team, OWNER)
        network_policies.append(own | {"metadata": own["metadata"] | {"namespace": "mlp"}})
    return network_policies


def reached(source: str, port: int, protocol: str = "TCP", **options) -> set[str]:
    policies_there = applied(**options)
    return {
        name
        for name, end in EVERYBODY.items()
        if name != source and may(policies_there, EVERYBODY[source], end, port, protocol)
    }


INTERNET = {"the internet", "the internet, IPv6", "a file server"}
OLD = {"of an older release"}  # whose ingress is open to other jobs until it has ended


@pytest.mark.parametrize(
    ("source", "port", "protocol", "targets"),
    [
        ("open", 443, "TCP", INTERNET),
        ("open", 30001, "TCP", INTERNET | {"the platform"}),
        ("open", 30010, "TCP", INTERNET | {"the platform"}),
        ("open", 53, "UDP", INTERNET | {"dns"}),
        ("open", 31000, "TCP", INTERNET),  # no application
        ("open", 10250, "TCP", INTERNET),  # no kubelet, no other pod
        ("platform only", 443, "TCP", set()),
        ("platform only", 30001, "TCP", {"the platform"}),
        ("platform only", 8000, "TCP", set()),
        ("platform only", 53, "UDP", {"dns"}),
        ("none", 443, "TCP", set()),
        ("none", 30001, "TCP", set()),
        ("none", 53, "UDP", set()),
        ("worker 0", 29500, "TCP", INTERNET | {"worker 1"}),
        ("worker 1", 41234, "TCP", INTERNET | {"worker 0"}),
        ("lonely worker", 29500, "TCP", set()),
        ("lonely worker", 53, "UDP", {"dns"}),
        ("app", 443, "TCP", INTERNET),
        ("the platform", 31000, "TCP", {"app"} | set(OTHERS) - {"the platform"}),
        ("another namespace", 31000, "TCP", set(OTHERS) - {"another namespace"}),
        ("of an older release", 443, "TCP", set(OTHERS)),
    ],
)
def test_who_reaches_whom(source, port, protocol, targets):
    assert reached(source, port, protocol) == targets


def test_a_platform_outside_of_the_cluster_is_reached_and_reaches_applications():
    outside = applied(platform=["192.0.2.7/32"])
    there = End("192.0.2.7")
    assert may(outside, PODS["platform only"], there, 30001)
    assert not may(outside, PODS["platform only"], there, 22)
    assert not may(outside, PODS["none"], there, 30001)
    assert may(outside, there, PODS["app"], 31000)
    assert not may(outside, there, PODS["open"], 31000)


def test_the_clusters_own_networks_can_be_named():
    network_policies = applied(inside=["192.168.0.0/16", "fd12::/16"])
    assert not may(network_policies, PODS["open"], End("192.168.7.7"), 443)
    assert not may(network_policies, PODS["open"], End("fd12::1"), 443)
    assert may(network_policies, PODS["open"], End("10.244.9.9"), 443)


def test_the_policies_are_valid_and_the_command_takes_the_networks(capsys):
    for policy in applied():
        client.V1NetworkPolicy.model_validate(policy)
        for direction in ("ingress", "egress"):
            for rule in policy["spec"].get(direction) or []:
                for peer in rule.get("to") or rule.get("from") or []:
                    block = peer.get("ipBlock") or {}
                    whole = ipaddress.ip_network(block.get("cidr", "::/0"))
                    assert all(ipaddress.ip_network(part).subnet_of(whole) for part in block.get("except") or [])
    call_command("kubernetes", "manifests", "--inside", "198.51.100.0/24", "--platform", "192.0.2.7/32")
    text = capsys.readouterr().out
    assert "198.51.100.0/24" in text
    assert "192.0.2.7/32" in text
    assert policies.INSIDE[0] not in text


def test_runs_with_several_workers_own_their_policy(kubernetes, cluster, tmp_path):
    kubernetes.start(spec(tmp_path, "pass", owner=7, workers=2, name="job-8-1"))
    kubernetes.start(spec(tmp_path, "pass", owner=7, name="job-9-1"))
    (own,) = cluster.store.list("networkpolicies")
    assert own["metadata"]["ownerReferences"][0]["kind"] == "Job"
    assert own["spec"] == policies.workers("job-8-1")


def test_a_cluster_with_the_roles_of_an_earlier_release_still_runs_jobs(kubernetes, cluster, tmp_path):
    cluster.denied.add(("networkpolicies", "create"))
    kubernetes.start(spec(tmp_path, "pass", owner=7, workers=2))
    assert end_of(kubernetes).succeeded

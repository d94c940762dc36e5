"""The permissions that the platform needs in its cluster, for the roles of `manifests` and for `check`."""

from __future__ import annotations

# (API group, resource, verbs); pods/log is how the API names a sub-resource.
IN_NAMESPACE = (
    ("batch", "jobs", ("create", "get", "list", "watch", "patch", "delete")),
    ("apps", "deployments", ("create", "get", "list", "watch", "patch", "delete")),
    ("apps", "replicasets", ("list",)),
    ("", "pods", ("list", "watch", "delete")),
    ("", "pods/log", ("get",)),
    ("", "pods/exec", ("create", "get")),  # which of the two a websocket needs depends on the version
    ("", "secrets", ("create", "get", "delete")),
    ("", "services", ("create", "get", "delete")),
    ("networking.k8s.io", "ingresses", ("create", "get", "list", "patch", "delete")),
    ("networking.k8s.io", "networkpolicies", ("create", "get", "delete")),
    ("", "events", ("list",)),
    ("", "persistentvolumeclaims", ("get",)),
    ("metrics.k8s.io", "pods", ("list",)),
    ("kueue.x-k8s.io", "workloads", ("list",)),
    ("kueue.x-k8s.io", "localqueues", ("get",)),
)
IN_CLUSTER = (
    ("", "nodes", ("list",)),
    ("", "pods", ("list",)),
    ("", "namespaces", ("get",)),
    ("networking.k8s.io", "ingressclasses", ("get",)),
    ("scheduling.k8s.io", "priorityclasses", ("get",)),
)
LEASES = "kube-node-lease"  # the namespace with a lease for each node, which the node renews
IN_LEASES = (("coordination.k8s.io", "leases", ("list",)),)

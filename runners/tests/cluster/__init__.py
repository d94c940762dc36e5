"""A small cluster for the tests: an API server over HTTP, the controllers of Jobs and Deployments, and one node that
really runs the command of a pod, as a process of this machine.

What it keeps of the real one: uids, resource versions (one count for all), 409 for a taken name and for a stale
version, 404, 403 for a used-up quota, 422 for what validation refuses, strict field validation (by the official
client's own models), label selectors, paged lists, merge patches, watches with bookmarks, time-outs and 410, deletion
with a grace and the garbage collection of what was owned, suspended Jobs, Indexed Jobs, back-off of crashing
containers, readiness by HTTP, output with times, access reviews, a token that is asked for, CPU and memory of pods as
metrics-server tells them (of a pod's first process), a node affinity and taints of the one node where a test has made
it, pods refused for a PriorityClass that is not there, a stand-in for Kueue (`kueue.py` says what the real one does),
and no more rights than the roles of the manifests give.

What it does not: no images, no isolation, no user ids, no limits, no read-only mounts (a mount's path is rewritten
to the folder behind it wherever a word of the command or a variable begins with it), no DNS (the first worker's name
becomes 127.0.0.1; a pod that listens on --host gets an address of its own), no service routing, no admission but one
Ingress for each path, as ingress-nginx has it, no liveness probes, no attach or exec, one namespace, no
protobuf, no server-side apply, no strategic merge patch, no field selectors but those of events and of a pod's node
and phase, no finalizers but a pod's short life after its end. That a real cluster accepts and does the same is to be
tried on one (docs/kubernetes.md says how).
"""

from .server import FakeCluster

__all__ = ["FakeCluster"]

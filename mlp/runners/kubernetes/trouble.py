"""What only the cluster's events tell: why a Job has no pod, or why a pod does not get its storage. Called by `runner`
for a run that has not begun after a while.
"""

from __future__ import annotations

from dataclasses import replace

from ..base import RunnerError
from . import status
from .cluster import Cluster
from .status import Finding

QUIET_S = 15
TELLING = {
    "FailedCreate": "its pod is refused",
    "FailedMount": "its storage cannot be mounted",
    "FailedAttachVolume": "its storage cannot be attached",
    "FailedCreatePodSandBox": "its pod cannot be made",
}


def find(cluster: Cluster, record: dict, pods: list[dict], finding: Finding, now: float) -> Finding:
    """The finding with the problem that the newest telling event names, if there is one."""
    alive = [pod for pod in pods if status.is_alive(pod)]
    since = status.seconds(record["metadata"].get("creationTimestamp")) or now
    if status.stop_of(record) or finding.started or now - since < QUIET_S:
        return finding
    subjects = alive or [record, *_replica_sets(cluster, record)]
    try:
        events = [event for subject in subjects for event in _events(cluster, subject)]
    except RunnerError:  # no right to read events: the run's state is known all the same
        return finding
    telling = [event for event in events if event.get("reason") in TELLING]
    if not telling:
        return finding
    last = max(telling, key=lambda event: _time(event))
    message = status.short(last.get("message") or "")
    words = "a quota is used up" if "exceeded quota" in message else TELLING[last["reason"]]
    return replace(finding, problem=f"{words}: {message}", since=since)


def _events(cluster: Cluster, subject: dict) -> list[dict]:
    selector = f"involvedObject.uid={subject['metadata']['uid']}"
    return cluster.list(cluster.core.list_namespaced_event, field_selector=selector)["items"]


def _replica_sets(cluster: Cluster, record: dict) -> list[dict]:
    """The makers of a Deployment's pods, to whom the refusal is told."""
    if record["kind"] != "Deployment":
        return []
    selector = ",".join(f"{key}={value}" for key, value in record["spec"]["selector"]["matchLabels"].items())
    try:
        return cluster.list(cluster.apps.list_namespaced_replica_set, selector)["items"]
    except RunnerError:
        return []


def _time(event: dict) -> str:
    told = event.get("series") or {}
    return told.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""

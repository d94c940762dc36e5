"""What only the cluster's events tell: why a Job has no pod, or why a pod does not get its storage. Called by `runner`
for a run that has not begun after a while.
"""

from __future__ import annotations

from dataclasses import replace

from kernel.messages import Message
from runners.base import RunnerError

from . import status
from .cluster import Cluster
from .status import Finding

QUIET_S = 15
ASK_AGAIN_S = 10
TELLING = {
    "FailedCreate": Message("its pod is refused"),
    "FailedMount": Message("its storage cannot be mounted"),
    "FailedAttachVolume": Message("its storage cannot be attached"),
    "FailedCreatePodSandBox": Message("its pod cannot be made"),
}


class Trouble:
    """Asks for the events of a run that has not begun, at most every ASK_AGAIN_S for each."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.known: dict[str, tuple[float, str]] = {}

    def find(self, record: dict, pods: list[dict], finding: Finding, now: float) -> Finding:
        """The finding with the problem that the newest telling event names, if there is one."""
        uid = record["metadata"]["uid"]
        since = status.seconds(record["metadata"].get("creationTimestamp")) or now
        if finding.started or now - since < QUIET_S:
            self.known.pop(uid, None)
            return finding
        asked, problem = self.known.get(uid, (0.0, ""))
        if now - asked > ASK_AGAIN_S:
            problem = self._ask(record, [pod for pod in pods if status.is_alive(pod)])
            self.known[uid] = (now, problem)
        return replace(finding, problem=problem, since=since) if problem else finding

    def _ask(self, record: dict, alive: list[dict]) -> str:
        subjects = alive or [record, *_replica_sets(self.cluster, record)]
        try:
            events = [event for subject in subjects for event in _events(self.cluster, subject)]
        except RunnerError:  # no right to read events: the run's state is known all the same
            return ""
        telling = [event for event in events if event.get("reason") in TELLING]
        if not telling:
            return ""
        last = max(telling, key=_time)
        message = status.short(last.get("message") or "")
        problem = Message("a quota is used up") if "exceeded quota" in message else TELLING[last["reason"]]
        return Message("%(problem)s: %(message)s", problem=problem, message=message)


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

"""The causes that only the cluster's events show: why a Job has no pod, or why a pod gets no storage.

Called by `runner` for a run that has not started after a while.
"""

from __future__ import annotations

from dataclasses import replace

from kernel.messages import Message
from runners.errors import RunnerError

from . import pod_status
from .cluster import Cluster
from .status import Assessment

QUIET_S = 15
ASK_AGAIN_S = 10
PROBLEMS = {
    "FailedCreate": Message("its pod is refused"),
    "FailedMount": Message("its storage cannot be mounted"),
    "FailedAttachVolume": Message("its storage cannot be attached"),
    "FailedCreatePodSandBox": Message("its pod cannot be created"),
}


class Trouble:
    """Reads the events of runs that have not started, at most every ASK_AGAIN_S seconds for each."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.known: dict[str, tuple[float, str]] = {}

    def find(self, record: dict, pods: list[dict], state: Assessment, now: float) -> Assessment:
        """Return the assessment with the problem that the newest relevant event names, if there is one."""
        uid = record["metadata"]["uid"]
        since = pod_status.seconds(record["metadata"].get("creationTimestamp")) or now
        if state.started or not is_slow(record, now):
            self.known.pop(uid, None)
            return state
        asked_at, problem = self.known.get(uid, (0.0, ""))
        if now - asked_at > ASK_AGAIN_S:
            problem = self._ask(record, [pod for pod in pods if pod_status.is_alive(pod)])
            self.known[uid] = (now, problem)
        return replace(state, problem=problem, since=since) if problem else state

    def _ask(self, record: dict, alive: list[dict]) -> str:
        subjects = alive or [record, *_replica_sets(self.cluster, record)]
        try:
            events = [event for subject in subjects for event in _events(self.cluster, subject)]
        except RunnerError:  # no permission to read events; the run's state is known without them
            return ""
        relevant = [event for event in events if event.get("reason") in PROBLEMS]
        if not relevant:
            return ""
        last = max(relevant, key=_time)
        message = pod_status.short(last.get("message") or "")
        problem = Message("a quota is exceeded") if "exceeded quota" in message else PROBLEMS[last["reason"]]
        return Message("%(problem)s: %(message)s", problem=problem, message=message)


def is_slow(record: dict, now: float) -> bool:
    """Return whether the run was created so long ago that it should have started."""
    return now - (pod_status.seconds(record["metadata"].get("creationTimestamp")) or now) >= QUIET_S


def _events(cluster: Cluster, subject: dict) -> list[dict]:
    selector = f"involvedObject.uid={subject['metadata']['uid']}"
    return cluster.list(cluster.core.list_namespaced_event, field_selector=selector)["items"]


def _replica_sets(cluster: Cluster, record: dict) -> list[dict]:
    """Return the ReplicaSets of a Deployment, which have the events about refused pods."""
    if record["kind"] != "Deployment":
        return []
    selector = ",".join(f"{key}={value}" for key, value in record["spec"]["selector"]["matchLabels"].items())
    try:
        return cluster.list(cluster.apps.list_namespaced_replica_set, selector)["items"]
    except RunnerError:
        return []


def _time(event: dict) -> str:
    series = event.get("series") or {}
    return series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""

"""The state of a run, derived from its Job or Deployment and its pods, with reasons for the run's owner. Pure.

Called by `runner`, which acts on it.
"""

from __future__ import annotations

import json
import re
import signal
from dataclasses import dataclass
from datetime import datetime

from kernel.messages import Message, read_stored
from runners.base import RunStatus

from . import object_names

NODE_SILENCE_S = 60
NOTICE_S = 60  # a controller has acted by then, even if its status does not show it
SIGNALS = range(129, 160)  # by convention 128 + the signal; a script may exit with such a code itself
NEVER_BEGAN = {"StartError", "ContainerCannotRun"}
HOPELESS = {"InvalidImageName"}  # waiting does not help
WAITING = {
    "ErrImagePull": Message("its image cannot be pulled"),
    "ImagePullBackOff": Message("its image cannot be pulled"),
    "InvalidImageName": Message("its image name is invalid"),
    "ErrImageNeverPull": Message("its image is not on the node, and pulling is off"),
    "ImageInspectError": Message("its image cannot be inspected"),
    "RegistryUnavailable": Message("the registry of its image does not answer"),
    "CreateContainerConfigError": Message("its container cannot be configured"),
    "CreateContainerError": Message("its container cannot be created"),
    "RunContainerError": Message("its container cannot be started"),
    "CreatePodSandboxError": Message("its pod cannot be created"),
}
PREEMPTION = re.compile(r" (?:no new claims to deallocate, ?)?preemption:| no new claims to deallocate")
SHORT = re.compile(r"Insufficient |Too many pods", re.IGNORECASE)
DISRUPTIONS = {
    "PreemptionByScheduler": Message("preempted by a pod of higher priority"),
    "DeletionByTaintManager": Message("removed from a node that was lost or closed"),
    "DeletionByPodGC": Message("its node is gone"),
    "EvictionByEvictionAPI": Message("evicted: its node is being drained"),
    "TerminationByKubelet": Message("ended by its node, which ran out of a resource or shut down"),
}


@dataclass(frozen=True)
class Assessment:
    """One of: ended (`ended`); prevented from starting by `problem` since `since`, for ever if `hopeless`; running
    since `started`, None while its pods start; not resumed yet (`begun` false). With `turn` the problem is that other
    pods have the room, which passes by itself where a node is large enough.
    """

    begun: bool = True
    started: float | None = None
    ended: RunStatus | None = None
    problem: str = ""
    hopeless: bool = False
    turn: bool = False
    since: float | None = None


def assess(record: dict, pods: list[dict], now: float) -> Assessment:
    """Return the state of the run of `record`, a Job or Deployment, with all its pods; `now` is Unix time."""
    stop = stop_of(record)
    if not (stop or is_begun(record)):
        return Assessment(begun=False)
    started = min((moment for pod in pods if (moment := started_at(pod))), default=None)
    if record["kind"] == "Job" and (condition := finished(record)):
        return Assessment(started=started, ended=_job_end(record, condition, pods, stop, started))
    alive = [pod for pod in pods if is_alive(pod)]
    silent = [pod for pod in alive if _is_silent(pod, now)]
    still = stop and (is_still(record) or now - stop.get("at", now) > NOTICE_S)
    if still and len(silent) == len(alive):
        return Assessment(started=started, ended=_stopped(stop, pods, silent, started, now))
    if stop:
        return Assessment(started=started)
    if silent:
        reason = Message("lost: %(node)s has not answered since it was asked to end the run", node=_node(silent[0]))
        return Assessment(started=started, ended=RunStatus("lost", reason=reason, started=started))
    if record["kind"] == "Deployment" and (crashed := _crash_loop(alive)):
        return Assessment(started=started, ended=crashed)
    for pod in alive:
        problem, hopeless = waiting(pod)
        if problem:
            turn = bool(SHORT.search(problem)) and scheduled(pod) is False
            return Assessment(started=started, problem=problem, hopeless=hopeless, turn=turn, since=created(pod))
    return Assessment(started=started)


# --- the record -------------------------------------------------------------------------------------------
def annotation(record: dict, key: str) -> dict:
    """Return the JSON object in an annotation, empty when there is none."""
    return json.loads(record["metadata"].get("annotations", {}).get(key) or "{}")


def stop_of(record: dict) -> dict:
    """Return the request to stop, empty when there is none."""
    return annotation(record, object_names.STOP)


def is_begun(record: dict) -> bool:
    """Return whether the record may have pods: it is not suspended, or has replicas."""
    spec = record["spec"]
    return not spec.get("suspend", False) if record["kind"] == "Job" else spec.get("replicas", 1) > 0


def is_still(record: dict) -> bool:
    """Return whether the controller has seen that the run must have no pods, so that it creates none."""
    status = record.get("status") or {}
    if record["kind"] == "Job":
        return any(each["type"] == "Suspended" and each["status"] == "True" for each in status.get("conditions") or [])
    return status.get("observedGeneration", 0) >= record["metadata"].get("generation", 0) and not status.get("replicas")


def finished(job: dict) -> dict | None:
    """Return the condition with which a Job has ended, None while it has not."""
    for condition in (job.get("status") or {}).get("conditions") or []:
        if condition["type"] in {"Complete", "Failed"} and condition["status"] == "True":
            return condition
    return None


def _job_end(job: dict, condition: dict, pods: list[dict], stop: dict, started: float | None) -> RunStatus:
    ends = sorted((end for pod in pods if (end := _end(pod))), key=lambda end: end.ended or 0)
    ended = seconds(condition.get("lastTransitionTime")) or (ends[-1].ended if ends else None)
    if condition["type"] == "Complete":
        last = max((end.ended or 0 for end in ends), default=0) or ended
        return RunStatus("exited", 0, None, _with_stop(stop, end_reason(0)), started, last)
    bad = [(pod, end) for pod in pods if (end := _end(pod)) and end.exit_code != 0]
    if bad:
        # The one that failed by itself, not one that was stopped because of it. Times are whole seconds.
        pod, first = min(bad, key=lambda each: ("deletionTimestamp" in each[0]["metadata"], each[1].ended or 0))
        worker = _index(pod)
        end = first.reason if worker is None else Message("worker %(rank)s: %(end)s", rank=worker, end=first.reason)
        why = _with_stop(stop, end)
        return RunStatus("exited", first.exit_code, first.signal, why, started, first.ended, worker or 0)
    if condition.get("reason") == "DeadlineExceeded":
        limit = job["spec"].get("activeDeadlineSeconds")
        late = Message("stopped because it ran longer than %(limit)s s", limit=limit)
        return RunStatus("exited", None, None, late, started, ended)
    removed = Message(
        "its pod was removed before its end was recorded (%(reason)s: %(message)s)",
        reason=condition.get("reason"), message=condition.get("message"),
    )  # fmt: skip
    return RunStatus("lost", reason=removed, started=started, ended=ended)


def _with_stop(stop: dict, end: str) -> str:
    return Message("%(why)s, %(end)s", why=read_stored(stop["why"]), end=end) if stop else end


def _stopped(stop: dict, pods: list[dict], silent: list[dict], started: float | None, now: float) -> RunStatus:
    if stop.get("failed"):
        return RunStatus("exited", None, None, read_stored(stop["why"]), started, now)
    ends = [end for pod in pods if (end := _end(pod))]
    if silent:
        reason = Message("%(why)s; %(node)s does not answer", why=read_stored(stop["why"]), node=_node(silent[0]))
        return RunStatus("exited", None, None, reason, started, now)
    if not (started or stop.get("seen")):
        return RunStatus("exited", None, None, Message("stopped before it started"), None, now)
    if not ends:
        return RunStatus("exited", None, None, read_stored(stop["why"]), started or stop.get("seen"), now)
    end = next((end for end in ends if end.exit_code != 0), ends[0])
    why = read_stored(stop["why"])
    if end.signal == signal.SIGKILL:
        why = Message("%(why)s, did not end within %(seconds)s s", why=why, seconds=f"{stop['grace_s']:g}")
    reason = Message("%(why)s, %(end)s", why=why, end=end.reason)
    return RunStatus("exited", end.exit_code, end.signal, reason, end.started or started, end.ended)


# --- a pod ------------------------------------------------------------------------------------------------
def is_alive(pod: dict) -> bool:
    """Return whether the pod has not ended."""
    return (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}


def created(pod: dict) -> float | None:
    """Return when the pod was created, in Unix time."""
    return seconds(pod["metadata"].get("creationTimestamp"))


def _container(pod: dict) -> dict:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return statuses[0] if statuses else {}


def started_at(pod: dict) -> float | None:
    """Return when the pod's container started, in Unix time, None while it has not."""
    state = _container(pod).get("state") or {}
    return seconds((state.get("running") or state.get("terminated") or {}).get("startedAt"))


def _index(pod: dict) -> int | None:
    value = pod["metadata"].get("annotations", {}).get("batch.kubernetes.io/job-completion-index")
    return None if value is None else int(value)


def _is_silent(pod: dict, now: float) -> bool:
    """Return whether the pod should have ended long ago and no end was reported: the node does not respond. (A pod's
    deletionTimestamp is the latest time at which it should be gone.)
    """
    due = seconds(pod["metadata"].get("deletionTimestamp"))
    return due is not None and now > due + NODE_SILENCE_S


def _node(pod: dict) -> str:
    return Message("node %(name)s", name=pod["spec"].get("nodeName") or "(none yet)")


def _end(pod: dict) -> RunStatus | None:
    """Return how the pod's container ended; None before that, or when the pod was removed before it reported."""
    status = pod.get("status") or {}
    terminated = (_container(pod).get("state") or {}).get("terminated")
    disruption = _disruption(status)
    if terminated is None:
        if status.get("phase") != "Failed" or status.get("removed"):
            return None  # not ended, or removed before it reported the end
        reason = disruption or Message("its pod failed before it started")
        return RunStatus("exited", None, None, reason, None, seconds(status.get("startTime")))
    times = (seconds(terminated.get("startedAt")), seconds(terminated.get("finishedAt")))
    reason, code = terminated.get("reason") or "", terminated.get("exitCode", 0)
    if reason in NEVER_BEGAN:
        problem = short(terminated.get("message") or reason)
        return RunStatus("exited", None, None, Message("could not start: %(problem)s", problem=problem), *times)
    number = terminated.get("signal") or (code - 128 if code in SIGNALS else None)
    end = end_reason(-number if number else code)
    if reason == "ContainerStatusUnknown":
        lost = disruption or Message("its node lost track of it")
        return RunStatus("exited", None, None, lost, *times)
    if reason == "OOMKilled":
        end = Message("out of memory (limit: %(memory)s), %(end)s", memory=memory(pod), end=end)
    elif disruption:
        end = Message("%(why)s, %(end)s", why=disruption, end=end)
    return RunStatus("exited", None if number else code, number, end, *times)


def memory(pod: dict) -> str:
    """Return the memory limit of the pod's container, for people."""
    limits = (pod["spec"]["containers"][0].get("resources") or {}).get("limits") or {}
    return str(limits.get("memory", "no limit")).replace("Mi", " MiB").replace("Gi", " GiB")


def _disruption(status: dict) -> str:
    """Return why the cluster or the node ended the pod; empty when the run ended by itself."""
    reason, message = status.get("reason") or "", short(status.get("message") or "")
    if reason == "Evicted":
        return Message("evicted by its node: %(message)s", message=message)
    if reason:
        ended = Message("ended by its node (%(reason)s)", reason=reason)
        return Message("%(ended)s: %(message)s", ended=ended, message=message) if message else ended
    for condition in status.get("conditions") or []:
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            named = condition.get("reason") or ""
            return DISRUPTIONS.get(named, Message("ended by the cluster (%(reason)s)", reason=named))
    return ""


def waiting(pod: dict) -> tuple[str, bool]:
    """Return (what prevents the pod from starting, whether for ever), ("", False) when nothing does."""
    state = (_container(pod).get("state") or {}).get("waiting") or {}
    reason = state.get("reason") or ""
    if reason in WAITING:
        image = pod["spec"]["containers"][0].get("image")
        problem, message = WAITING[reason], short(state.get("message") or reason)
        if "image" in problem:
            problem = Message("%(problem)s (%(image)s)", problem=problem, image=image)
        return Message("%(problem)s: %(message)s", problem=problem, message=message), reason in HOPELESS
    if scheduled(pod) is False:
        (condition,) = _of_scheduler(pod)
        message = short(condition.get("message") or condition.get("reason") or "")
        return Message("no node has room for it: %(message)s", message=message), False
    return "", False


def scheduled(pod: dict) -> bool | None:
    """Return whether the scheduler has found a node for the pod; None where it has not said so yet."""
    return next((condition["status"] == "True" for condition in _of_scheduler(pod)), None)


def _of_scheduler(pod: dict) -> list[dict]:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return [condition for condition in conditions if condition["type"] == "PodScheduled"][:1]


def stage(pods: list[dict]) -> Message:
    """Return what a run without a problem waits for while none of its containers has started."""
    node = next((pod["spec"].get("nodeName") for pod in pods if is_alive(pod) and scheduled(pod)), None)
    if node:
        return Message("its image is being pulled, or its storage mounted, on node %(name)s", name=node)
    return Message("no pod of it is on a node yet")


def _crash_loop(pods: list[dict]) -> RunStatus | None:
    """Return the end of a service that failed again right after a restart by the cluster, None for any other pods; the
    platform decides what comes next.
    """
    for pod in pods:
        container = _container(pod)
        state = (container.get("state") or {}).get("waiting") or {}
        last = (container.get("lastState") or {}).get("terminated")
        if state.get("reason") == "CrashLoopBackOff" and last:
            before = pod | {"status": {"containerStatuses": [{"state": {"terminated": last}}]}}
            return _end(before)
    return None


def restored_end(data: dict) -> RunStatus:
    """Return the end that is written down in an annotation."""
    return RunStatus(**data | {"reason": read_stored(data["reason"])})


def end_reason(code: int) -> Message:
    """Return the message of an exit code, or of a signal (below zero)."""
    if code >= 0:
        return Message("exit code %(code)s", code=code)
    return Message("killed by signal %(number)s (%(name)s)", number=-code, name=signal_name(-code))


# --- texts and numbers ------------------------------------------------------------------------------------
def short(message: str, limit: int = 300) -> str:
    """Return a message of the cluster on one line, at most `limit` characters, without what the scheduler says of
    preemption and of claims to devices.
    """
    text = " ".join(PREEMPTION.split(message)[0].split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def signal_name(number: int) -> str:
    """Return the name of a signal, for people."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "a real-time signal"


def seconds(time: str | None) -> float | None:
    """Return a timestamp of the API as Unix time."""
    return datetime.fromisoformat(time).timestamp() if time else None


# --- which pod --------------------------------------------------------------------------------------------
def belongs(pod: dict, record: dict) -> bool:
    """Return whether it is a pod of this very Job, not of an earlier one of the same name. A Deployment's pods are
    recognized by their label alone.
    """
    if record["kind"] != "Job":
        return True
    owners = pod["metadata"].get("ownerReferences") or []
    return any(owner["uid"] == record["metadata"]["uid"] for owner in owners)


def newest(pods: list[dict], worker: int = 0) -> dict | None:
    """Return the newest pod of a worker."""
    mine = [pod for pod in pods if (_index(pod) or 0) == worker]
    return max(mine, key=lambda pod: pod["metadata"].get("creationTimestamp") or "", default=None)


def worker_of(pod: dict) -> int:
    """Return the number of the pod's worker."""
    return _index(pod) or 0


def ran(pod: dict) -> bool:
    """Return whether its container has started, now or before a crash, so that there is output to read."""
    return started_at(pod) is not None or "terminated" in (_container(pod).get("lastState") or {})

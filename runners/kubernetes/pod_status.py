"""What the status of a pod says: whether it runs, how its container ended, what prevents it from starting. Pure.

Reasons are for the run's owner. `status` derives the state of a run from it.
"""

from __future__ import annotations

import re
import signal
from datetime import datetime

from kernel.messages import Message
from runners.base import RunStatus

NODE_SILENCE_S = 60
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
DISRUPTIONS = {
    "PreemptionByScheduler": Message("preempted by a pod of higher priority"),
    "DeletionByTaintManager": Message("removed from a node that was lost or closed"),
    "DeletionByPodGC": Message("its node is gone"),
    "EvictionByEvictionAPI": Message("evicted: its node is being drained"),
    "TerminationByKubelet": Message("ended by its node, which ran out of a resource or shut down"),
}
# As runc ('exec: "python3": executable file not found in $PATH') and crun ("executable file `python3` not found") say.
NO_PROGRAM = re.compile(
    r"""exec: "(?P<runc>[^"]+)": (?:executable file not found|stat [^:]*: no such file)"""
    r"""|executable file [`'"](?P<crun>[^`'"]+)[`'"] not found"""
)
SHORT = re.compile(r"Insufficient |Too many pods", re.IGNORECASE)


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


def index_of(pod: dict) -> int | None:
    value = pod["metadata"].get("annotations", {}).get("batch.kubernetes.io/job-completion-index")
    return None if value is None else int(value)


def is_silent(pod: dict, now: float) -> bool:
    """Return whether the pod should have ended long ago and no end was reported: the node does not respond. (A pod's
    deletionTimestamp is the latest time at which it should be gone.)
    """
    due = seconds(pod["metadata"].get("deletionTimestamp"))
    return due is not None and now > due + NODE_SILENCE_S


def node_of(pod: dict) -> str:
    return Message("node %(name)s", name=pod["spec"].get("nodeName") or "(none yet)")


def end_of(pod: dict) -> RunStatus | None:
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
        problem = _without_program(pod, terminated.get("message") or "") or short(terminated.get("message") or reason)
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
        if missing := _without_program(pod, state.get("message") or ""):
            return missing, True
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


def _without_program(pod: dict, message: str) -> str:
    """Return that the image has no such program, where the container's runtime says that; empty for anything else."""
    if (found := NO_PROGRAM.search(message)) is None:
        return ""
    image = pod["spec"]["containers"][0].get("image")
    return Message("its image has no %(program)s (%(image)s)", program=found["runc"] or found["crun"], image=image)


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


def crash_loop(pods: list[dict]) -> RunStatus | None:
    """Return the end of a service that failed again right after a restart by the cluster, None for any other pods; the
    platform decides what comes next.
    """
    for pod in pods:
        container = _container(pod)
        state = (container.get("state") or {}).get("waiting") or {}
        last = (container.get("lastState") or {}).get("terminated")
        if state.get("reason") == "CrashLoopBackOff" and last:
            before = pod | {"status": {"containerStatuses": [{"state": {"terminated": last}}]}}
            return end_of(before)
    return None


def end_reason(code: int) -> Message:
    """Return the message of an exit code, or of a signal (below zero)."""
    if code >= 0:
        return Message("exit code %(code)s", code=code)
    return Message("killed by signal %(number)s (%(name)s)", number=-code, name=signal_name(-code))


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
    mine = [pod for pod in pods if (index_of(pod) or 0) == worker]
    return max(mine, key=lambda pod: pod["metadata"].get("creationTimestamp") or "", default=None)


def worker_of(pod: dict) -> int:
    """Return the number of the pod's worker."""
    return index_of(pod) or 0


def ran(pod: dict) -> bool:
    """Return whether its container has started, now or before a crash, so that there is output to read."""
    return started_at(pod) is not None or "terminated" in (_container(pod).get("lastState") or {})

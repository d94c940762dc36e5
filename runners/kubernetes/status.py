"""The state of a run, derived from its Job or Deployment and its pods, with reasons for the run's owner. Pure.

Called by `runner`, which acts on it.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass

from kernel.messages import Message, read_stored
from runners.base import RunStatus

from . import object_names, pod_status

NOTICE_S = 60  # a controller has acted by then, even if its status does not show it


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
    started = min((moment for pod in pods if (moment := pod_status.started_at(pod))), default=None)
    if record["kind"] == "Job" and (condition := finished(record)):
        return Assessment(started=started, ended=_job_end(record, condition, pods, stop, started))
    alive = [pod for pod in pods if pod_status.is_alive(pod)]
    silent = [pod for pod in alive if pod_status.is_silent(pod, now)]
    still = stop and (is_still(record) or now - stop.get("at", now) > NOTICE_S)
    if still and len(silent) == len(alive):
        return Assessment(started=started, ended=_stopped(stop, pods, silent, started, now))
    if stop:
        return Assessment(started=started)
    if silent:
        reason = Message(
            "lost: %(node)s has not answered since it was asked to end the run", node=pod_status.node_of(silent[0])
        )
        return Assessment(started=started, ended=RunStatus("lost", reason=reason, started=started))
    if record["kind"] == "Deployment" and (crashed := pod_status.crash_loop(alive)):
        return Assessment(started=started, ended=crashed)
    for pod in alive:
        problem, hopeless = pod_status.waiting(pod)
        if problem:
            turn = bool(pod_status.SHORT.search(problem)) and pod_status.scheduled(pod) is False
            return Assessment(
                started=started, problem=problem, hopeless=hopeless, turn=turn, since=pod_status.created(pod)
            )
    return Assessment(started=started)


# --- the record -------------------------------------------------------------------------------------------
def annotation(record: dict, key: str) -> dict:
    """Return the JSON object in an annotation, empty when there is none."""
    return json.loads(record["metadata"].get("annotations", {}).get(key) or "{}")


def stop_of(record: dict) -> dict:
    """Return the request to stop, empty when there is none."""
    return annotation(record, object_names.STOP)


def is_begun(record: dict) -> bool:
    """Return whether the record may have pods: it is not suspended, or Kueue resumes it, or it has replicas."""
    spec = record["spec"]
    if record["kind"] == "Job":
        return not spec.get("suspend", False) or bool(object_names.queue_of(record))
    return spec.get("replicas", 1) > 0


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
    ends = sorted((end for pod in pods if (end := pod_status.end_of(pod))), key=lambda end: end.ended or 0)
    ended = pod_status.seconds(condition.get("lastTransitionTime")) or (ends[-1].ended if ends else None)
    if condition["type"] == "Complete":
        last = max((end.ended or 0 for end in ends), default=0) or ended
        return RunStatus("exited", 0, None, _with_stop(stop, pod_status.end_reason(0)), started, last)
    bad = [(pod, end) for pod in pods if (end := pod_status.end_of(pod)) and end.exit_code != 0]
    if bad:
        # The one that failed by itself, not one that was stopped because of it. Times are whole seconds.
        pod, first = min(bad, key=lambda each: ("deletionTimestamp" in each[0]["metadata"], each[1].ended or 0))
        worker = pod_status.index_of(pod)
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
    ends = [end for pod in pods if (end := pod_status.end_of(pod))]
    if silent:
        reason = Message(
            "%(why)s; %(node)s does not answer", why=read_stored(stop["why"]), node=pod_status.node_of(silent[0])
        )
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


def restored_end(data: dict) -> RunStatus:
    """Return the end that is written down in an annotation."""
    return RunStatus(**data | {"reason": read_stored(data["reason"])})

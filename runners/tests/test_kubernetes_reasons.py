"""The translation of a cluster's statuses and events to reasons for a run's owner."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest
from django.utils import translation

from kernel.messages import message_of, translate
from runners.kubernetes import object_names, pod_status, status
from runners.kubernetes.cluster import LONGEST_MESSAGE, api_error

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()


def at(seconds: float) -> str:
    return datetime.fromtimestamp(NOW + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def job(*conditions, stop: dict | None = None, **spec) -> dict:
    annotations = {object_names.STOP: json.dumps(stop)} if stop else {}
    entries = [{"status": "True", "lastTransitionTime": at(-5)} | each for each in conditions]
    meta = {"name": "mlp-job-1-1", "uid": "u", "annotations": annotations}
    return {"kind": "Job", "metadata": meta, "spec": {"suspend": bool(stop)} | spec, "status": {"conditions": entries}}


def pod(phase: str = "Running", state: dict | None = None, meta: dict | None = None, **fields) -> dict:
    containers = [{"name": "run", "state": state}] if state else []
    spec = {"nodeName": "node-7", "containers": [{"image": "i:1", "resources": {"limits": {"memory": "300Mi"}}}]}
    about = {"creationTimestamp": at(-60), "annotations": {}} | (meta or {})
    return {"metadata": about, "spec": spec, "status": {"phase": phase, "containerStatuses": containers} | fields}


def ended(code: int, reason: str = "Error", **fields) -> dict:
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": at(-30), "finishedAt": at(-6)} | fields}


FAILED = {"type": "Failed", "reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}


def disrupted(reason: str) -> list[dict]:
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason}]


@pytest.mark.parametrize(
    ("failed", "code", "number", "reason"),
    [
        (pod("Failed", ended(3)), 3, None, "exit code 3"),
        (pod("Failed", ended(139)), None, 11, "killed by signal 11 (SIGSEGV)"),
        (
            pod("Failed", ended(137, "OOMKilled")),
            None,
            9,
            "out of memory (limit: 300 MiB), killed by signal 9 (SIGKILL)",
        ),
        (
            pod("Failed", reason="Evicted", message="Pod ephemeral local storage usage exceeds the total limit 2Gi. "),
            None,
            None,
            "evicted by its node: Pod ephemeral local storage usage exceeds the total limit 2Gi.",
        ),
        (
            pod("Failed", ended(137), conditions=disrupted("PreemptionByScheduler")),
            None,
            9,
            "preempted by a pod of higher priority, killed by signal 9 (SIGKILL)",
        ),
        (pod("Failed", ended(137, "ContainerStatusUnknown")), None, None, "its node lost track of it"),
        (
            pod("Failed", conditions=disrupted("DeletionByPodGC")),
            None,
            None,
            "its node is gone",
        ),
        (
            pod("Failed", reason="NodeShutdown", message="Pod was terminated in response to imminent node shutdown."),
            None,
            None,
            "ended by its node (NodeShutdown): Pod was terminated in response to imminent node shutdown.",
        ),
        (
            pod("Failed", ended(128, "StartError", message='exec: "nope": executable file not result in $PATH')),
            None,
            None,
            'could not start: exec: "nope": executable file not result in $PATH',
        ),
    ],
)
def test_a_failed_job_has_a_reason(failed, code, number, reason):
    result = status.assess(job(FAILED), [failed], NOW).ended
    assert (result.state, result.exit_code, result.signal, result.reason) == ("exited", code, number, reason)


def test_an_exceeded_deadline_names_its_length():
    record = job({"type": "Failed", "reason": "DeadlineExceeded"}, activeDeadlineSeconds=3600)
    assert status.assess(record, [], NOW).ended.reason == "stopped because it ran longer than 3600 s"


def test_success_needs_no_pod():
    result = status.assess(job({"type": "Complete"}), [], NOW).ended
    assert (result.exit_code, result.ended) == (0, NOW - 5)


def test_the_worker_that_failed_by_itself_gives_the_reason():
    annotations = {"batch.kubernetes.io/job-completion-index": "0"}
    first = pod("Failed", ended(137), meta={"annotations": annotations, "deletionTimestamp": at(-6)})
    second = pod("Failed", ended(1), meta={"annotations": {"batch.kubernetes.io/job-completion-index": "1"}})
    assert status.assess(job(FAILED), [first, second], NOW).ended.reason == "worker 1: exit code 1"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("ErrImagePull", "its image cannot be pulled (i:1): no such manifest"),
        ("ImagePullBackOff", "its image cannot be pulled (i:1): no such manifest"),
        ("InvalidImageName", "its image name is invalid (i:1): no such manifest"),
        ("CreateContainerConfigError", "its container cannot be configured: no such manifest"),
        ("CreateContainerError", "its container cannot be created: no such manifest"),
    ],
)
def test_a_pending_pod_has_a_reason(reason, words):
    state = {"waiting": {"reason": reason, "message": "no such manifest"}}
    result = status.assess(job(), [pod("Pending", state)], NOW)
    assert (result.problem, result.ended, result.since) == (words, None, NOW - 60)
    assert result.hopeless == (reason == "InvalidImageName")


RUNC = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
RUNC += "unable to start container process: error during container init: exec: "


@pytest.mark.parametrize(
    ("message", "program"),
    [
        (f'{RUNC}"python3": executable file not found in $PATH: unknown', "python3"),
        (f'{RUNC}"/opt/bin/python": stat /opt/bin/python: no such file or directory', "/opt/bin/python"),
        ("container create failed: executable file `python3` not found in $PATH: No such file or directory", "python3"),
    ],
)
def test_an_image_without_the_program_is_named_and_not_waited_for(message, program):
    words = f"its image has no {program} (i:1)"
    failed = status.assess(job(FAILED), [pod("Failed", ended(128, "StartError", message=message))], NOW).ended
    assert (failed.exit_code, failed.reason) == (None, f"could not start: {words}")
    waiting = {"waiting": {"reason": "CreateContainerError", "message": message}}
    result = status.assess(job(), [pod("Pending", waiting)], NOW)
    assert (result.problem, result.hopeless) == (words, True)


def test_a_schedulers_message_is_shortened():
    message = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint. preemption: 0/3 nodes"
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]
    result = status.assess(job(), [pod("Pending", conditions=conditions)], NOW)
    words = "no node has room for it: 0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint."
    assert result.problem == words


def test_what_a_scheduler_says_of_claims_is_left_out():
    message = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes"
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]
    result = status.assess(job(), [pod("Pending", conditions=conditions)], NOW)
    assert result.problem == "no node has room for it: 0/1 nodes are available: 1 Insufficient cpu."


def test_a_container_being_created_is_not_a_problem():
    result = status.assess(job(), [pod("Pending", {"waiting": {"reason": "ContainerCreating"}})], NOW)
    assert not result.problem
    assert not result.ended


def test_a_node_that_does_not_answer_loses_the_run():
    running = {"running": {"startedAt": at(-500)}}
    late = pod(state=running, meta={"deletionTimestamp": at(-pod_status.NODE_SILENCE_S + 5)})
    assert status.assess(job(), [late], NOW).ended is None
    lost = pod(state=running, meta={"deletionTimestamp": at(-pod_status.NODE_SILENCE_S - 5)})
    result = status.assess(job(), [lost], NOW).ended
    assert (result.state, result.started) == ("lost", NOW - 500)
    assert result.reason == "lost: node node-7 has not answered since it was asked to end the run"


STOP = {"why": "stopped on request", "grace_s": 10.0, "seen": NOW - 30}
SUSPENDED = {"type": "Suspended"}


def test_a_stopped_run_runs_until_its_pods_are_gone():
    running = pod(state={"running": {"startedAt": at(-30)}}, meta={"deletionTimestamp": at(5)})
    assert status.assess(job(stop=STOP), [], NOW).ended is None  # the controller has not seen it: a pod may come
    assert status.assess(job(SUSPENDED, stop=STOP), [running], NOW).ended is None
    assert status.assess(job(SUSPENDED, stop=STOP), [], NOW).ended.reason == "stopped on request"


def test_a_controller_that_never_handles_a_stop_does_not_block():
    early, late = STOP | {"at": NOW - 5}, STOP | {"at": NOW - status.NOTICE_S - 5}
    assert status.assess(job(stop=early), [], NOW).ended is None
    assert status.assess(job(stop=late), [], NOW).ended.state == "exited"


def test_a_stopped_run_reports_its_observed_end():
    handled = status.assess(job(SUSPENDED, stop=STOP), [pod("Succeeded", ended(0, "Completed"))], NOW).ended
    assert (handled.exit_code, handled.reason) == (0, "stopped on request, exit code 0")
    killed = status.assess(job(SUSPENDED, stop=STOP), [pod("Failed", ended(137))], NOW).ended
    words = "stopped on request, did not end within 10 s, killed by signal 9 (SIGKILL)"
    assert (killed.signal, killed.reason) == (9, words)


def test_a_run_that_ended_just_as_it_was_stopped_has_ended():
    result = status.assess(job({"type": "Complete"}, stop=STOP), [pod("Succeeded", ended(0, "Completed"))], NOW).ended
    assert (result.exit_code, result.reason) == (0, "stopped on request, exit code 0")


def test_a_run_that_never_started_has_a_reason():
    stop = {"why": "could not start: its image cannot be pulled", "failed": True, "grace_s": 1.0}
    result = status.assess(job(SUSPENDED, stop=stop), [], time.time()).ended
    assert (result.state, result.exit_code, result.reason) == ("exited", None, stop["why"])


def test_a_suspended_job_has_not_started():
    assert status.assess(job(suspend=True), [], NOW).begun is False


def test_the_words_of_the_cluster_stay_as_they_are_in_a_translated_error():
    error = api_error(403, "Forbidden", json.dumps({"reason": "Forbidden", "message": "exceeded quota"}).encode())
    assert str(error) == "the cluster answered 403 Forbidden: exceeded quota"
    long = api_error(500, "", json.dumps({"message": "x" * 2000}).encode())
    assert len(str(long)) == LONGEST_MESSAGE
    with translation.override("zh-hans"):
        assert translate(message_of(error)) == "集群返回 403 Forbidden：exceeded quota"
        assert translate(message_of(long)).startswith("集群返回 500 ：xxx")

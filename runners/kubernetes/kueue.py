"""Runs that wait in a queue of Kueue (kueue.sigs.k8s.io), which decides when the pods of a Job may start.

A Job is made suspended as any other. What resumes it is not the platform but Kueue: it gets the label with the name of
a LocalQueue once all that its pods need is there, and Kueue, which acts on Jobs with the label only, clears `suspend`
when it admits the whole Job, with all of its workers. When Kueue suspends it again, for a Job of higher priority or
because its queue was stopped, the run is displaced: its owner ends it, and begins another. Without the label, which a
stop removes, Kueue leaves a Job alone.
"""

from __future__ import annotations

import contextlib
from functools import partial

from kubernetes import client

from kernel.messages import Message
from runners.base import RunSpec, RunStatus
from runners.errors import RunnerError

from . import object_names, pod_status
from .cluster import Cluster, NotFound
from .config import ClusterConfig

GROUP, VERSIONS = "kueue.x-k8s.io", ("v1beta2", "v1beta1")
QUEUE = object_names.QUEUE
JOB_UID = f"{GROUP}/job-uid"  # Kueue's label of a Workload
ASK_AGAIN_S = 10
FORGOTTEN_S = 600


def queue_for(spec: RunSpec, config: ClusterConfig) -> str:
    """Return the LocalQueue that decides about a run: that of its tenant, else the default; empty for none. Only runs
    of jobs are of a tenant.
    """
    tenant = spec.labels.get("tenant") if spec.kind == "job" else None
    return (config.kueue_queues.get(tenant) or config.kueue_queue) if tenant else ""


def go(record: dict, queue: str) -> dict:
    """Return the patch that lets the pods of a Job or Deployment start, now or when the queue admits it."""
    if queue:
        return {"metadata": {"labels": {QUEUE: queue}}}
    return {"spec": {"suspend": False} if record["kind"] == "Job" else {"replicas": 1}}


def is_held(record: dict) -> bool:
    """Return whether Kueue keeps the Job suspended."""
    return bool(object_names.queue_of(record)) and record["spec"].get("suspend", False)


class Workloads:
    """What Kueue says of Jobs that it keeps suspended, asked for at most every ASK_AGAIN_S seconds for each."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.version = VERSIONS[0]
        self.known: dict[str, tuple[float, Message]] = {}

    def status(self, record: dict, now: float) -> RunStatus:
        """Return the state of a run that Kueue keeps suspended; `displaced` where it had a process before."""
        uid = record["metadata"]["uid"]
        asked_at, reason = self.known.get(uid, (0.0, None))
        if reason is None or now - asked_at > ASK_AGAIN_S:
            reason = self._reason(record)
            self.known = {key: each for key, each in self.known.items() if now - each[0] < FORGOTTEN_S}
            self.known[uid] = (now, reason)
        displaced = _suspended_at(record, now) if object_names.RAN in record["metadata"]["annotations"] else None
        return RunStatus("running", reason=reason, waits=True, displaced=displaced)

    def note_start(self, record: dict) -> None:
        """Record that the run of a Job has a process: a later suspension displaces it."""
        self.known.pop(record["metadata"]["uid"], None)
        if not object_names.queue_of(record) or object_names.RAN in record["metadata"]["annotations"]:
            return
        body = {"metadata": {"annotations": {object_names.RAN: "true"}}}
        with contextlib.suppress(NotFound):
            self.cluster.patch(self.cluster.batch.patch_namespaced_job, record["metadata"]["name"], body)

    def _reason(self, record: dict) -> Message:
        queue = object_names.queue_of(record)
        try:
            found = self.list(f"{JOB_UID}={record['metadata']['uid']}")
        except RunnerError as error:  # the roles of an earlier release, or no Kueue
            return Message("queued by Kueue in %(queue)s (%(problem)s)", queue=queue, problem=error)
        conditions = [each for workload in found for each in (workload.get("status") or {}).get("conditions") or []]
        by_type = {each["type"]: each for each in conditions}
        for kind in ("QuotaReserved", "Admitted"):
            condition = by_type.get(kind)
            if condition is not None and condition["status"] != "True":
                message = pod_status.short(condition.get("message") or condition.get("reason") or "")
                return Message("queued by Kueue in %(queue)s: %(message)s", queue=queue, message=message)
        return Message("queued by Kueue in %(queue)s", queue=queue)

    def list(self, selector: str = "") -> list[dict]:
        """Return the Workloads with these labels, by the newest API that is served. Raises RunnerError."""
        listing = client.CustomObjectsApi(self.cluster.client).list_namespaced_custom_object
        for version in dict.fromkeys((self.version, *VERSIONS)):
            with contextlib.suppress(NotFound):
                found = self.cluster.list(partial(listing, GROUP, version, plural="workloads"), selector)["items"]
                self.version = version
                return found
        raise RunnerError("the cluster has no Kueue: it does not serve %(group)s", group=GROUP)

    def queue(self, name: str) -> dict | None:
        """Return the LocalQueue, None where there is none. Raises RunnerError."""
        read = client.CustomObjectsApi(self.cluster.client).get_namespaced_custom_object
        namespace = self.cluster.namespace
        with contextlib.suppress(NotFound):
            return self.cluster.call(read, GROUP, self.version, namespace, "localqueues", name)
        return None


def _suspended_at(record: dict, now: float) -> float:
    """Return when the Job was suspended, as far as its controller has seen it already."""
    for condition in (record.get("status") or {}).get("conditions") or []:
        if condition["type"] == "Suspended" and condition["status"] == "True":
            return pod_status.seconds(condition.get("lastTransitionTime")) or now
    return now

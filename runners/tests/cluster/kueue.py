"""A stand-in for Kueue, one check for all queues: `closed` is empty, or why no Job is admitted at the moment.

The real Kueue makes a Workload for each Job with the label of a LocalQueue, tries to reserve its quota for all of its
pods at once in the ClusterQueue behind that, and then clears `suspend`; it sets `suspend` again when it evicts one,
writes what it decides into the Workload's conditions, and removes the Workload of a Job without the label. This one
does the same, but it counts nothing, has no cohorts, flavors, priorities, admission checks or webhooks, and leaves the
pod template as it is.
"""

from __future__ import annotations

from runners.kubernetes.kueue import GROUP, JOB_UID
from runners.kubernetes.object_names import queue_of

from .store import Store, now


class Kueue:
    """See the module. `version` is that of the API that it serves; empty: Kueue is not installed."""

    def __init__(self, store: Store):
        self.store = store
        self.closed, self.version = "", "v1beta2"

    def sync(self, job: dict) -> None:
        """Act on a Job, called whenever anything has changed."""
        name, queue = job["metadata"]["name"], queue_of(job)
        ended = any(each["type"] in {"Complete", "Failed"} for each in job["status"].get("conditions") or [])
        workload = self.store.get("workloads", f"job-{name}")
        if not (queue and self.version) or ended:
            if workload is not None and not queue:
                self.store.remove("workloads", f"job-{name}")
            return
        if workload is None:
            workload = self._make(job, queue)
        reason, problem = ("Pending", self.closed) if self.closed else ("", "")
        if self.store.get("localqueues", queue) is None:
            reason, problem = "Inadmissible", f"LocalQueue {queue} doesn't exist"
        conditions = {each["type"]: each for each in workload["status"].get("conditions") or []}
        if problem:
            evicted = [self._condition("Evicted", True, "Preempted", problem)] if "Admitted" in conditions else []
            kept = [conditions["Evicted"]] if "Evicted" in conditions else evicted
            self._say(workload, [self._condition("QuotaReserved", False, reason, problem), *kept])
        else:
            admitted = [self._condition(kind, True, kind, "") for kind in ("QuotaReserved", "Admitted")]
            self._say(workload, admitted)
        if bool(problem) != job["spec"].get("suspend", False):
            self.store.patch("jobs", name, {"spec": {"suspend": bool(problem)}})

    def _make(self, job: dict, queue: str) -> dict:
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job["metadata"]["name"],
            "uid": job["metadata"]["uid"],
        }
        meta = {"name": f"job-{owner['name']}", "labels": {JOB_UID: owner["uid"]}, "ownerReferences": [owner]}
        spec = {"queueName": queue, "podSets": [{"name": "main", "count": job["spec"].get("parallelism", 1)}]}
        head = {"apiVersion": f"{GROUP}/{self.version}", "kind": "Workload"}
        return self.store.create("workloads", head | {"metadata": meta, "spec": spec})

    def _say(self, workload: dict, conditions: list[dict]) -> None:
        without = lambda each: {key: value for key, value in each.items() if key != "lastTransitionTime"}  # noqa: E731
        before = workload["status"].get("conditions") or []
        if list(map(without, before)) != list(map(without, conditions)):
            self.store.set_status("workloads", workload["metadata"]["name"], conditions=conditions)

    def _condition(self, kind: str, holds: bool, reason: str, message: str) -> dict:
        status = {"type": kind, "status": str(holds), "reason": reason, "message": message}
        return status | {"lastTransitionTime": now()}

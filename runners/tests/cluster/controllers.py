"""The fake cluster's controllers: they create the pods of Jobs and Deployments and update their status."""

from __future__ import annotations

import hashlib
import json
import threading
import time

from .kueue import Kueue
from .node import INDEX, Node
from .store import Store, now
from .validation import Refusal

ENDED = {"Succeeded", "Failed"}


class Controllers:
    """One loop over all objects, woken by every change."""

    def __init__(self, store: Store, node: Node):
        self.store, self.node, self.kueue = store, node, Kueue(store)
        self.stopped = threading.Event()
        self.counted: dict[str, set[str]] = {}  # a Job's uid: its pods that ended, also when they are gone

    def stop(self) -> None:
        self.stopped.set()
        with self.store.changed:
            self.store.changed.notify_all()

    def run(self) -> None:
        seen, probed = -1, 0.0
        while not self.stopped.is_set():
            if seen == self.store.version:
                with self.store.changed:
                    self.store.changed.wait(0.05)
            seen = self.store.version
            for job in self.store.list("jobs"):
                self.kueue.sync(job)
                self.job(self.store.get("jobs", job["metadata"]["name"]) or job)
            for deployment in self.store.list("deployments"):
                self.deployment(deployment)
            for pod in self.store.list("pods"):
                self.node.sync(pod)
            if time.monotonic() - probed > 0.1:
                probed = time.monotonic()
                self.node.probe()

    # --- Jobs ---------------------------------------------------------------------------------------------
    def job(self, job: dict) -> None:
        name, uid, spec = job["metadata"]["name"], job["metadata"]["uid"], job["spec"]
        conditions = job["status"].get("conditions") or []
        if any(each["type"] in {"Complete", "Failed"} for each in conditions):
            return
        pods = self.owned(uid)
        over = [pod for pod in pods if pod["status"].get("phase") in ENDED]
        active = [pod for pod in pods if pod not in over]
        failed = self.counted.setdefault(uid, set())
        suspended = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "lastTransitionTime": now()}
        if spec.get("suspend"):
            self.end(active)
            if not active and not any(each["type"] == "Suspended" for each in conditions):
                self.store.set_status("jobs", name, active=0, conditions=[suspended])
            return
        failed |= {pod["metadata"]["uid"] for pod in over if pod["status"]["phase"] == "Failed"}
        done = [pod for pod in over if pod["status"]["phase"] == "Succeeded"]
        limit = spec.get("activeDeadlineSeconds")
        began = job["status"].get("startTime") or now()
        if limit and time.time() - parse(began) >= limit:
            self.end(active)
            return None if active else self.finish(name, "Failed", "DeadlineExceeded", "Job was active too long")
        if len(failed) > spec.get("backoffLimit", 6):
            self.end(active)
            words = "Job has reached the specified backoff limit"
            return None if active else self.finish(name, "Failed", "BackoffLimitExceeded", words)
        if len(done) >= spec.get("completions", 1):
            return self.finish(name, "Complete", "CompletionsReached", "")
        self.store.set_status("jobs", name, startTime=began, active=len(active), conditions=[])
        self.make(job, pods)

    def finish(self, name: str, kind: str, reason: str, message: str) -> None:
        condition = {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now()}
        self.store.set_status("jobs", name, active=0, conditions=[condition])

    def make(self, job: dict, pods: list[dict]) -> None:
        indexed = job["spec"].get("completionMode") == "Indexed"
        there = {(pod["metadata"].get("annotations") or {}).get(INDEX) for pod in pods}
        for index in range(job["spec"].get("parallelism", 1)):
            if (indexed and str(index) in there) or (not indexed and len(pods) > index):
                continue
            extra = {"annotations": {INDEX: str(index)}} if indexed else {}
            self.pod(job, f"{job['metadata']['name']}-{index}-" if indexed else f"{job['metadata']['name']}-", extra)

    def owned(self, uid: str) -> list[dict]:
        owners = lambda each: each["metadata"].get("ownerReferences") or []  # noqa: E731
        return self.store.list("pods", lambda each: any(owner["uid"] == uid for owner in owners(each)))

    def end(self, pods: list[dict]) -> None:
        for pod in pods:
            if not pod["metadata"].get("deletionTimestamp"):
                self.store.delete("pods", pod["metadata"]["name"])

    def pod(self, owner: dict, prefix: str, extra: dict) -> None:
        template = owner["spec"]["template"]
        metadata = template.get("metadata") or {}
        annotations = (metadata.get("annotations") or {}) | extra.get("annotations", {})
        labels = (metadata.get("labels") or {}) | extra.get("labels", {})
        kind = {"kind": owner["kind"], "apiVersion": owner["apiVersion"], "controller": True}
        reference = kind | {key: owner["metadata"][key] for key in ("name", "uid")}
        suffix = hashlib.sha256(f"{time.monotonic_ns()}".encode()).hexdigest()[:5]
        meta = {"name": prefix + suffix, "labels": labels, "annotations": annotations, "ownerReferences": [reference]}
        body = {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": template["spec"]}
        body |= {"status": {"phase": "Pending"}}
        try:
            self.admit(body)
            self.store.create("pods", body)
        except Refusal as refusal:
            self.event(owner, "FailedCreate", f"Error creating: {refusal.message}")

    def admit(self, pod: dict) -> None:
        """Refuse what the admission plug-in Priority does."""
        name = pod["spec"].get("priorityClassName")
        if name and self.store.get("priorityclasses", name) is None:
            words = f'pods "{pod["metadata"]["name"]}" is forbidden: no PriorityClass with name {name} was found'
            raise Refusal(403, "Forbidden", words)

    def event(self, about: dict, reason: str, message: str) -> None:
        name = f"{about['metadata']['name']}.{reason.lower()}"
        if self.store.get("events", name) is None:
            event = {"reason": reason, "message": message, "lastTimestamp": now(), "type": "Warning"}
            about_it = {"uid": about["metadata"]["uid"], "kind": about["kind"], "name": about["metadata"]["name"]}
            self.store.create("events", {"metadata": {"name": name}, "involvedObject": about_it} | event)

    # --- Deployments --------------------------------------------------------------------------------------
    def deployment(self, deployment: dict) -> None:
        """Maintain one ReplicaSet for each template; a new one is ready before the old one is removed."""
        name, spec = deployment["metadata"]["name"], deployment["spec"]
        digest = hashlib.sha256(json.dumps(spec["template"], sort_keys=True).encode()).hexdigest()[:9]
        present = self.store.get("replicasets", f"{name}-{digest}") or self.replica_set(deployment, digest)
        sets = [
            each
            for each in self.store.list("replicasets")
            if each["metadata"]["ownerReferences"][0]["uid"] == deployment["metadata"]["uid"]
        ]
        alive = lambda each: [pod for pod in self.owned(each["metadata"]["uid"]) if pod["status"]["phase"] not in ENDED]  # noqa: E731
        mine = alive(present)
        ready = [pod for pod in mine if (pod["status"].get("containerStatuses") or [{}])[0].get("ready")]
        old = [pod for each in sets if each["metadata"]["name"] != present["metadata"]["name"] for pod in alive(each)]
        if spec.get("replicas", 1) == 0:
            self.end(mine + old)
        elif not mine:
            self.pod(present, f"{name}-{digest}-", {})
        elif ready:
            self.end(old)
        status = {"replicas": len(mine + old), "readyReplicas": len(ready)}
        self.store.set_status("deployments", name, observedGeneration=deployment["metadata"]["generation"], **status)

    def replica_set(self, deployment: dict, digest: str) -> dict:
        metadata = deployment["metadata"]
        reference = {"kind": "Deployment", "apiVersion": "apps/v1", "name": metadata["name"], "uid": metadata["uid"]}
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        meta = {"name": f"{metadata['name']}-{digest}", "labels": labels, "ownerReferences": [reference]}
        spec = {"selector": deployment["spec"]["selector"], "template": deployment["spec"]["template"]}
        return self.store.create(
            "replicasets", {"kind": "ReplicaSet", "apiVersion": "apps/v1", "metadata": meta, "spec": spec}
        )


def parse(stamp: str) -> float:
    return time.mktime(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ")) - time.timezone

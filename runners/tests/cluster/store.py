"""The fake cluster's objects and their history: versions, watches, validation. Used by the server and controllers."""

from __future__ import annotations

import copy
import threading
import time
import uuid
from datetime import UTC, datetime

from .validation import Refusal, one_ingress_for_each_path, validate

KEPT_EVENTS = 5000


def now(offset: float = 0) -> str:
    """Return the time in the API's format: whole seconds."""
    return datetime.fromtimestamp(time.time() + offset, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def merge(target, patch):
    """Apply a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


class Store:
    """All objects by (resource, name). Every change gets the next version and wakes the waiting threads."""

    def __init__(self, namespace: str):
        self.namespace = namespace
        self.changed = threading.Condition(threading.RLock())
        self.objects: dict[tuple[str, str], dict] = {}
        self.events: list[tuple[int, str, str, dict]] = []
        self.version = 100
        self.oldest = 100  # versions up to here are forgotten by watches
        self.quota: dict[str, str] = {}  # resource -> message: refused by a quota

    # --- reading ------------------------------------------------------------------------------------------
    def get(self, resource: str, name: str) -> dict | None:
        with self.changed:
            return copy.deepcopy(self.objects.get((resource, name)))

    def list(self, resource: str, match=lambda each: True) -> list[dict]:
        with self.changed:
            objects = [each for (kind, _), each in sorted(self.objects.items()) if kind == resource and match(each)]
            return copy.deepcopy(objects)

    def since(self, resource: str, version: int, match) -> tuple[list[tuple[int, str, dict]], int]:
        """Return the events after `version`, and the version up to which they are complete. Raises Refusal(410)."""
        with self.changed:
            if version < self.oldest:
                raise Refusal(410, "Expired", f"too old resource version: {version} ({self.oldest})")
            events = [
                (number, kind, each)
                for number, kind, what, each in self.events
                if number > version and what == resource and match(each)
            ]
            return events, self.version

    def compact(self) -> None:
        """Forget the history, as etcd does every five minutes."""
        with self.changed:
            self.version += 1
            self.oldest = self.version
            self.events.clear()
            self.changed.notify_all()

    # --- writing ------------------------------------------------------------------------------------------
    def _note(self, kind: str, resource: str, each: dict) -> None:
        self.version += 1
        each["metadata"]["resourceVersion"] = str(self.version)
        self.events.append((self.version, kind, resource, copy.deepcopy(each)))
        self.changed.notify_all()

    def create(self, resource: str, body: dict) -> dict:
        with self.changed:
            body = copy.deepcopy(body)
            if resource in self.quota:
                raise Refusal(403, "Forbidden", self.quota[resource])
            validate(resource, body)
            meta = body["metadata"]
            if (resource, meta["name"]) in self.objects:
                raise Refusal(409, "AlreadyExists", f'{resource} "{meta["name"]}" already exists')
            if resource == "ingresses":
                one_ingress_for_each_path(body, self.list(resource))
            meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": now()}
            meta.setdefault("namespace", self.namespace)
            meta |= {"generation": 1}
            body.setdefault("status", {})
            if resource == "jobs":
                tags = {"batch.kubernetes.io/job-name": meta["name"], "batch.kubernetes.io/controller-uid": meta["uid"]}
                body["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": meta["uid"]}}
                template = body["spec"]["template"].setdefault("metadata", {})
                template["labels"] = template.get("labels", {}) | tags
            self.objects[resource, meta["name"]] = body
            self._note("ADDED", resource, body)
            return copy.deepcopy(body)

    def patch(self, resource: str, name: str, patch: dict) -> dict:
        with self.changed:
            present = self.objects.get((resource, name))
            if present is None:
                raise Refusal(404, "NotFound", f'{resource} "{name}" not found')
            wanted = (patch.get("metadata") or {}).get("resourceVersion")
            if wanted and wanted != present["metadata"]["resourceVersion"]:
                words = "the object has been modified; please apply your changes to the latest version and try again"
                raise Refusal(409, "Conflict", f'Operation cannot be fulfilled on {resource} "{name}": {words}')
            patch = {key: value for key, value in patch.items() if key != "status"}
            fresh = merge(copy.deepcopy(present), copy.deepcopy(patch))
            validate(resource, fresh, present)
            if fresh.get("spec") != present.get("spec"):
                fresh["metadata"]["generation"] += 1
            if fresh != present:
                self.objects[resource, name] = fresh
                self._note("MODIFIED", resource, fresh)
            return copy.deepcopy(fresh)

    def bind(self, name: str, node: str) -> None:
        """Give a pod its node, as only the scheduler does."""
        with self.changed:
            present = self.objects.get(("pods", name))
            if present is not None and present["spec"].get("nodeName") != node:
                present["spec"]["nodeName"] = node
                self._note("MODIFIED", "pods", present)

    def set_status(self, resource: str, name: str, **status) -> None:
        """Set the status, as only controllers and nodes do."""
        with self.changed:
            present = self.objects.get((resource, name))
            if present is None:
                return
            fresh = present.get("status", {}) | copy.deepcopy(status)
            if fresh != present.get("status"):
                present["status"] = fresh
                self._note("MODIFIED", resource, present)

    def delete(self, resource: str, name: str, grace: int | None = None) -> dict:
        """Delete an object: a pod with its grace period, anything else at once, with the objects that it owns."""
        with self.changed:
            present = self.objects.get((resource, name))
            if present is None:
                raise Refusal(404, "NotFound", f'{resource} "{name}" not found')
            meta = present["metadata"]
            if resource == "pods" and grace != 0:
                own = present["spec"].get("terminationGracePeriodSeconds", 30)
                grace = own if grace is None else grace
                if grace < meta.get("deletionGracePeriodSeconds", 10**9):
                    meta |= {"deletionTimestamp": now(grace), "deletionGracePeriodSeconds": grace}
                    self._note("MODIFIED", resource, present)
                return copy.deepcopy(present)
            return self.remove(resource, name)

    def remove(self, resource: str, name: str) -> dict:
        with self.changed:
            present = self.objects.pop((resource, name), None)
            if present is None:
                return {}
            self._note("DELETED", resource, present)
            uid = present["metadata"]["uid"]
            for (kind, other), each in list(self.objects.items()):
                owners = each["metadata"].get("ownerReferences") or []
                left = [owner for owner in owners if owner["uid"] != uid]
                if len(left) == len(owners) or (kind, other) not in self.objects:
                    continue
                if left:
                    each["metadata"]["ownerReferences"] = left
                    self._note("MODIFIED", kind, each)
                else:
                    self.delete(kind, other)
            return present

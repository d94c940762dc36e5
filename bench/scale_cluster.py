"""A large cluster for bench/scale.py: the suite's API server in a process of its own; its pods do nothing.

`python bench/scale_cluster.py FOLDER` writes a kubeconfig there, prints the address, and serves until its input ends.
`/_scale/runs` takes Jobs that run, `/_scale/end` ends some, `/_scale/counts` says which calls were made since the last
question. A Job that is resumed has a running pod at once.
"""

from __future__ import annotations

import bisect
import json
import sys
import threading
import uuid
from collections import Counter
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from runners.tests.cluster.server import FakeCluster, Handler, Server  # noqa: E402 (needs the path)
from runners.tests.cluster.store import Store, now  # noqa: E402

NODES, OTHERS = 100, 9_000
NODE = {"cpu": "19", "memory": "1024Gi", "pods": "250"}
OTHER = {"requests": {"cpu": "100m", "memory": "128Mi"}}


class LargeStore(Store):
    """The store with answers that do not look at every event and copy every object."""

    def list(self, resource: str, match=lambda each: True) -> list[dict]:
        with self.changed:
            return [dict(each) for (kind, _), each in self.objects.items() if kind == resource and match(each)]

    def since(self, resource: str, version: int, match):
        with self.changed:
            first = bisect.bisect_right(self.events, version, key=lambda event: event[0])
            events = [
                (number, kind, each)
                for number, kind, what, each in self.events[first:]
                if what == resource and match(each)
            ]
            return events, self.version

    def patch(self, resource: str, name: str, patch: dict) -> dict:
        fresh = super().patch(resource, name, patch)
        if resource == "jobs" and not fresh["spec"].get("suspend"):
            self.begin(name)
        return fresh

    def begin(self, name: str) -> None:
        """Start the pod of a resumed Job."""
        with self.changed:
            job = self.objects["jobs", name]
            if ("pods", f"{name}-0") not in self.objects:
                self.place("pods", pod_of(job))
                self.set_status("jobs", name, startTime=now(), active=1, conditions=[])

    def place(self, resource: str, body: dict) -> None:
        """Add an object as it is."""
        with self.changed:
            meta = body["metadata"]
            meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": now(), "generation": 1}
            self.objects[resource, meta["name"]] = body
            self._note("ADDED", resource, body)

    def end(self, name: str) -> None:
        """End a run with exit code 0."""
        over = {"exitCode": 0, "reason": "Completed", "startedAt": now(-60), "finishedAt": now()}
        state = {"name": "run", "state": {"terminated": over}, "restartCount": 0, "ready": False}
        self.set_status("pods", f"{name}-0", phase="Succeeded", containerStatuses=[state])
        done = {"type": "Complete", "status": "True", "reason": "CompletionsReached", "lastTransitionTime": now()}
        self.set_status("jobs", name, active=0, conditions=[done | {"message": ""}])


def pod_of(job: dict) -> dict:
    template, meta = job["spec"]["template"], job["metadata"]
    owner = {"kind": "Job", "apiVersion": "batch/v1", "name": meta["name"], "uid": meta["uid"], "controller": True}
    about = {"name": f"{meta['name']}-0", "namespace": "mlp", "ownerReferences": [owner]}
    about |= {key: template["metadata"].get(key) or {} for key in ("labels", "annotations")}
    running = {"name": "run", "state": {"running": {"startedAt": now()}}, "restartCount": 0, "ready": True}
    status = {"phase": "Running", "startTime": now(), "containerStatuses": [running]}
    return {"metadata": about, "spec": {**template["spec"], "nodeName": "node-0"}, "status": status}


class Output:
    """The output of every pod: nothing."""

    def __init__(self):
        self.records: list = []
        self.over, self.removed = threading.Event(), False


class Node:
    """The kubelet of all nodes."""

    def output(self, name: str) -> Output:
        return Output()

    def usage(self, pod: dict) -> None:
        return None


class Cluster:
    """What the handler needs of a cluster."""

    kubeconfig = FakeCluster.kubeconfig

    def __init__(self):
        self.store, self.node = LargeStore("mlp"), Node()
        self.denied, self.used, self.live = set(), set(), set()
        self.requests, self.broken, self.measured = [], False, False
        self.bookmark_s = 30.0
        self.calls: Counter[str] = Counter()
        for number in range(NODES):
            self.store.place("nodes", node_of(f"node-{number}"))
        for number in range(OTHERS):
            self.store.place("pods", other_pod(number))


def node_of(name: str) -> dict:
    ready = {"type": "Ready", "status": "True"}
    status = {"capacity": NODE, "allocatable": NODE, "conditions": [ready]}
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "labels": {}}, "spec": {}, "status": status}


def other_pod(number: int) -> dict:
    spec = {"nodeName": f"node-{number % NODES}", "containers": [{"name": "c", "image": "x", "resources": OTHER}]}
    meta = {"name": f"other-{number}", "namespace": "others", "labels": {}}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running"}}


class ScaleHandler(Handler):
    def route(self, path: str) -> None:
        store = self.cluster.store
        if path == "/_scale/counts":
            calls, self.cluster.calls = self.cluster.calls, Counter()
            return self.answer(200, dict(calls))
        if path == "/_scale/runs":
            for job in self.body:
                job["metadata"]["namespace"], job["spec"]["suspend"] = store.namespace, False
                store.place("jobs", job)
                store.begin(job["metadata"]["name"])
            return self.answer(200, {"pods": len(store.list("pods"))})
        if path == "/_scale/end":
            for name in self.body:
                store.end(name)
            return self.answer(200, {})
        self.cluster.requests.clear()
        if not path.endswith("/log"):  # a follower of each running pod has a stream of its own
            self.cluster.calls[self.kind_of(path)] += 1
        return super().route(path)

    def kind_of(self, path: str) -> str:
        parts = path.strip("/").split("/")
        at = parts.index("namespaces") + 2 if "namespaces" in parts else len(parts) - 1
        named = len(parts) > at + 1
        what = parts[at] if at < len(parts) else parts[-1]
        if self.command != "GET" or named:
            return f"{self.command} {what}"
        selected = self.query.get("labelSelector", "").startswith("mlp.platform/run=")
        watching = self.query.get("watch", "").lower() in {"1", "true"}
        return f"{'watch' if watching else 'list of a run' if selected else 'list'} {what}"


def main(folder: str) -> None:
    cluster = Cluster()
    server = Server(("127.0.0.1", 0), type("Bound", (ScaleHandler,), {"cluster": cluster}))
    cluster.url = f"http://127.0.0.1:{server.server_port}"
    cluster.kubeconfig(Path(folder) / "kubeconfig")
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    print(json.dumps({"url": cluster.url}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])

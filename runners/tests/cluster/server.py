"""The fake API server over HTTP, and the handle with which tests control the cluster."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from runners.kubernetes import access

from . import executing
from .controllers import Controllers
from .node import Node
from .store import Store
from .validation import Refusal

TOKEN = "the-test-token"
QUEUES = re.compile(r"/apis/kueue.x-k8s.io/(\w+)/namespaces/[^/]+/(workloads|localqueues)(?:/([^/]+))?")
NAMESPACED = re.compile(r"/(?:api|apis/[a-z.0-9]+)/v1/namespaces/([^/]+)/([a-z]+)(?:/([^/]+))?(?:/(log|exec))?")
METRICS = re.compile(r"/apis/metrics.k8s.io/v1beta1/namespaces/([^/]+)/pods")
GLOBAL = re.compile(r"/(?:api|apis/[a-z.0-9]+)/v1/([a-z]+)(?:/([^/]+))?")
OTHERS = {"metrics.k8s.io"}  # groups whose resources have names that others have, too
EVERYWHERE = "pods of all namespaces"
GRANTED = {
    (f"{resource}.{group}" if group in OTHERS else resource, verb)
    for group, resource, verbs in access.IN_NAMESPACE
    for verb in verbs
} | {
    (EVERYWHERE if resource == "pods" else resource, verb)
    for _group, resource, verbs in access.IN_CLUSTER + access.IN_LEASES
    for verb in verbs
}
KINDS = {"jobs": "Job", "deployments": "Deployment", "pods": "Pod", "services": "Service", "secrets": "Secret"}


class FakeCluster:
    """`url`, `kubeconfig(path)`; `store` and `node` for tests that play the cluster's part."""

    def __init__(self, root: Path, namespace: str = "mlp"):
        self.store = Store(namespace)
        self.denied: set[tuple[str, str]] = set()
        self.used: set[tuple[str, str]] = set()
        self.requests: list[tuple[str, str]] = []
        self.broken, self.measured = False, True
        self.bookmark_s = 0.2
        self.live: set[socket.socket] = set()
        handler = type("Bound", (Handler,), {"cluster": self})
        self.http = Server(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.node = Node(self.store, root)
        self.controllers = Controllers(self.store, self.node)
        self.threads = [threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True)]
        self.threads.append(threading.Thread(target=self.controllers.run, daemon=True))
        for thread in self.threads:
            thread.start()

    def kubeconfig(self, path: Path) -> str:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.url}}],
            "users": [{"name": "test", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path.write_text(json.dumps(config))
        return str(path)

    def break_streams(self) -> None:
        """Cut every open connection, as a restart of the API server or a proxy does."""
        for link in list(self.live):
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        self.controllers.stop()
        self.node.stop()
        self.http.shutdown()
        self.break_streams()
        self.http.server_close()
        for thread in self.threads:
            thread.join(5)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Ignore clients that disconnect during a response."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    disable_nagle_algorithm = True
    cluster: FakeCluster

    def log_message(self, *_):
        """Suppress the access log."""

    def setup(self):
        super().setup()
        self.cluster.live.add(self.connection)

    def finish(self):
        self.cluster.live.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def answer(self, code: int, body: dict | bytes) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if isinstance(body, bytes) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, refusal: Refusal) -> None:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": refusal.code}
        self.answer(refusal.code, status | {"reason": refusal.reason, "message": refusal.message})

    def chunk(self, data: bytes) -> None:
        if data:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

    def handle_one(self) -> None:
        split = urlsplit(self.path)
        self.query = {key: values[-1] for key, values in parse_qs(split.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        self.body = json.loads(self.rfile.read(length) or b"null")
        self.cluster.requests.append((self.command, split.path))
        try:
            if self.cluster.broken:
                raise Refusal(503, "ServiceUnavailable", "etcdserver: request timed out")
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise Refusal(401, "Unauthorized", "Unauthorized")
            self.route(split.path)
        except Refusal as refusal:
            self.refuse(refusal)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_POST = do_PATCH = do_DELETE = handle_one

    def route(self, path: str) -> None:
        if path == "/version/":
            return self.answer(200, {"major": "1", "minor": "34", "gitVersion": "v1.34.1"})
        if path.endswith("/selfsubjectaccessreviews"):
            wanted = self.body["spec"]["resourceAttributes"]
            group = f".{wanted['group']}" if wanted["group"] in OTHERS else ""
            name = wanted["resource"] + group
            if name == "pods" and not wanted.get("namespace"):
                name = EVERYWHERE
            allowed = (wanted["verb"], name) not in self.cluster.denied
            return self.answer(201, self.body | {"status": {"allowed": allowed}})
        if METRICS.fullmatch(path) and self.cluster.measured:
            self.authorize("pods.metrics.k8s.io", None)
            items = map(self.cluster.node.usage, self.cluster.store.list("pods", self.match))
            return self.answer(200, {"kind": "PodMetricsList", "metadata": {}, "items": list(filter(None, items))})
        match = QUEUES.fullmatch(path)
        if match and match[1] == self.cluster.controllers.kueue.version:
            self.authorize(match[2], match[3])
            return self.serve(match[2], match[3])
        if match := NAMESPACED.fullmatch(path):
            namespace, resource, name, part = match.groups()
            if namespace != (access.LEASES if resource == "leases" else self.cluster.store.namespace):
                raise Refusal(404, "NotFound", f'namespaces "{namespace}" not found')
            self.authorize(f"{resource}/{part}" if part else resource, name)
            if part == "exec":
                self.authorize(f"{resource}/{part}", name, "create")  # newer versions ask for this, older for the other
                return executing.serve(self, self.cluster.node, self.cluster.store.get(resource, name))
            if part:
                return self.log(name)
            return self.serve(resource, name)
        if match := GLOBAL.fullmatch(path):
            resource, name = match.groups()
            self.authorize(EVERYWHERE if resource == "pods" else resource, name)
            return self.serve(resource, name)
        raise Refusal(404, "NotFound", "the server could not find the requested resource")

    def authorize(self, resource: str, name: str | None, verb: str = "") -> None:
        """Check the request against the roles of the manifests."""
        watching = self.query.get("watch", "").lower() in {"1", "true"}
        reading = "get" if name else "watch" if watching else "list"
        right = (resource, verb or {"POST": "create", "PATCH": "patch", "DELETE": "delete"}.get(self.command, reading))
        self.cluster.used.add(right)
        if right not in GRANTED or right[::-1] in self.cluster.denied:
            what = f'{resource} is forbidden: User "system:serviceaccount:mlp:mlp-platform" cannot {right[1]} it'
            raise Refusal(403, "Forbidden", what)

    def serve(self, resource: str, name: str | None) -> None:
        store = self.cluster.store
        if self.command == "POST":
            return self.answer(201, store.create(resource, self.body))
        if self.command == "PATCH":
            if self.headers["Content-Type"] != "application/merge-patch+json":
                raise Refusal(415, "UnsupportedMediaType", "this fake takes merge patches only")
            return self.answer(200, store.patch(resource, name, self.body))
        if self.command == "DELETE":
            options = self.body or {}
            same = (options.get("preconditions") or {}).get("uid")
            if same and same != (store.get(resource, name) or {"metadata": {"uid": same}})["metadata"]["uid"]:
                raise Refusal(409, "Conflict", f"the UID in the precondition ({same}) does not match")
            return self.answer(200, store.delete(resource, name, options.get("gracePeriodSeconds")))
        if name:
            obj = store.get(resource, name)
            if obj is None:
                raise Refusal(404, "NotFound", f'{resource} "{name}" not found')
            return self.answer(200, obj)
        if self.query.get("watch", "").lower() in {"1", "true"}:
            return self.watch(resource)
        return self.list(resource)

    def match(self, each: dict) -> bool:
        labels, namespace = each["metadata"].get("labels") or {}, NAMESPACED.match(urlsplit(self.path).path)
        if namespace and each["metadata"].get("namespace") != namespace[1]:
            return False
        for part in filter(None, re.split(r",(?![^(]*\))", self.query.get("labelSelector", ""))):
            key, equals, value = part.partition("=")
            if among := re.fullmatch(r"(\S+) in \((.*)\)", part):
                if labels.get(among[1]) not in among[2].split(","):
                    return False
            elif labels.get(key) != value if equals else key not in labels:
                return False
        return all(matches(each, part) for part in filter(None, self.query.get("fieldSelector", "").split(",")))

    def list(self, resource: str) -> None:
        with self.cluster.store.changed:
            items = self.cluster.store.list(resource, self.match)
            version = str(self.cluster.store.version)
        first, limit = int(self.query.get("continue") or 0), int(self.query.get("limit") or 0)
        page = items[first : first + limit] if limit else items
        more = {"continue": str(first + limit)} if limit and first + limit < len(items) else {}
        for each in page:  # in a list the items do not say what they are
            each.pop("kind", None), each.pop("apiVersion", None)
        meta = {"resourceVersion": version} | more
        self.answer(200, {"kind": f"{KINDS.get(resource, resource)}List", "metadata": meta, "items": page})

    def stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def watch(self, resource: str) -> None:
        store, version = self.cluster.store, int(self.query.get("resourceVersion") or 0)
        end = time.monotonic() + float(self.query.get("timeoutSeconds") or 300)
        bookmarks, marked = self.query.get("allowWatchBookmarks", "").lower() == "true", time.monotonic()
        self.stream()
        while time.monotonic() < end and not self.cluster.broken:
            try:
                events, version = store.since(resource, version, self.match)
            except Refusal as refusal:
                status = {"kind": "Status", "code": 410, "reason": refusal.reason, "message": refusal.message}
                self.chunk(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
                break
            for _, kind, each in events:
                self.chunk(json.dumps({"type": kind, "object": each}).encode() + b"\n")
            if bookmarks and time.monotonic() - marked > self.cluster.bookmark_s:
                marked = time.monotonic()
                mark = {"metadata": {"resourceVersion": str(version)}, "kind": KINDS.get(resource, "")}
                self.chunk(json.dumps({"type": "BOOKMARK", "object": mark}).encode() + b"\n")
            with store.changed:
                if store.version == version:
                    store.changed.wait(0.05)
        self.wfile.write(b"0\r\n\r\n")

    def log(self, name: str) -> None:
        output = self.cluster.node.output(name)
        times, follow = self.query.get("timestamps") == "true", self.query.get("follow") == "true"
        times = times or self.query.get("timestamps") == "True"
        follow = follow or self.query.get("follow") == "True"
        since = time.time() - float(self.query["sinceSeconds"]) if "sinceSeconds" in self.query else 0
        first = -int(self.query["tailLines"]) if "tailLines" in self.query else 0
        self.stream()
        if output.removed:
            self.chunk(b"unable to retrieve container logs for containerd://0123abc")
            self.wfile.write(b"0\r\n\r\n")
            return
        sent = max(0, len(output.records) + first) if first else 0
        begins = True
        while True:
            over = output.over.is_set()  # before the lines are looked at: none comes after it
            portion = output.records[sent:]
            sent += len(portion)
            text = b""
            for record in (record for record in portion if record.time >= since):
                text += record.render(times and begins)
                begins = record.text.endswith(b"\n")
            for part in text.splitlines(keepends=True) if follow else [text]:
                self.chunk(part)
            if (over or not follow) and sent == len(output.records):
                break
            if follow and not portion:
                output.over.wait(0.02)
        self.wfile.write(b"0\r\n\r\n")


def matches(each: dict, selector: str) -> bool:
    """Return whether the object has (or has not) the value at the path of a field selector's part."""
    path, wanted = re.split(r"!?=", selector, maxsplit=1)
    if path not in {"involvedObject.uid", "spec.nodeName", "status.phase"}:
        raise Refusal(400, "BadRequest", f"field label not supported: {path}")
    value = each
    for word in path.split("."):
        value = (value or {}).get(word)
    return ((value or "") == wanted) != ("!=" in selector)

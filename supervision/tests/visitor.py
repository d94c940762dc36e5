"""A user of a live platform, who makes every kind of request and remembers what was acknowledged."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import requests
import websocket

from kernel.tests.nats_tools import until
from supervision.tests.running import START_S, Platform

USER, PASSWORD, ADMIN_PASSWORD = "alice", "correct horse battery", "battery staple horse"
LIMIT_S = 120  # less than the gateway waits for a part (130 s), so a request that hangs fails here
SCRIPT = b"import time\ntime.sleep(100_000)\n"
PREDICTOR = b"""
class Predictor:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1]}]

    def predict(self, inputs):
        (x,) = inputs
        return [{"name": "y", "datatype": "FP32", "shape": x["shape"], "data": [v + 1 for v in x["data"]]}]
"""
TENSOR = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}
OTLP = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "hello"}}]}]}]}


class Answer(NamedTuple):
    """The status of an answer, and how long it took."""

    status: int
    took_s: float


def gated(answer: requests.Response) -> int:
    """Return the status of the application gateway's answer, 599 for a 503 that does not say when to try again."""
    return 599 if answer.status_code == 503 and "Retry-After" not in answer.headers else answer.status_code


class Visitor:
    """Has a running job, a dataset that is being uploaded, one that is ready, and an application."""

    def __init__(self, platform: Platform):
        self.gateway = f"http://127.0.0.1:{platform.base + 1}"
        self.socket = f"ws://127.0.0.1:{platform.base + 1}"
        self.apps = f"http://127.0.0.1:{platform.base + 2}"
        self.api = f"{self.gateway}/api/v1/users/{USER}"
        self.count = itertools.count(1)
        self.uploaded: set[str] = set()
        self.datasets: set[str] = set()
        self.epochs: set[int] = set()
        requests.post(f"{self.gateway}/api/v1/users", json={"username": USER, "password": PASSWORD}, timeout=LIMIT_S)
        self.token = self.ask("get", f"{self.api}/token", auth=(USER, PASSWORD)).json()
        self.headers = {"Authorization": f"Bearer {self.token}"}
        self.session = self.logged_in("/regist_login", USER, PASSWORD)
        self.admin = self.logged_in("/admin/login/", "admin", platform.admin_password())
        self._create_objects()

    def ask(self, method: str, address: str, **options) -> requests.Response:
        return requests.request(method, address, timeout=LIMIT_S, allow_redirects=False, **options)

    def call(self, method: str, address: str, **options) -> requests.Response:
        return self.ask(method, address, headers=self.headers | options.pop("headers", {}), **options)

    def logged_in(self, path: str, username: str, password: str) -> requests.Session:
        """Return a session of the browser's kind."""
        session = requests.Session()
        page = session.get(self.gateway + path, timeout=LIMIT_S).text
        mark = re.search(r'csrfmiddlewaretoken" value="([^"]+)', page)[1]
        fields = {"username": username, "password": password, "action": "login", "csrfmiddlewaretoken": mark}
        session.post(self.gateway + path, fields, headers={"Referer": self.gateway + path}, timeout=LIMIT_S)
        assert "sessionid" in session.cookies
        return session

    def _create_objects(self) -> None:
        home = f"{self.gateway}/data/{USER}/.home"
        self.must("put", f"{home}/wait.py", data=SCRIPT)
        self.must("put", f"{home}/adder/predictor.py", data=PREDICTOR)
        self.must("post", f"{self.api}/jobs", json={"name": "wait", "entry": "wait.py", "cpu": 0.1, "ram": 100})
        self.must("post", f"{self.api}/models", json={"name": "adder", "src": "home/adder"})
        for name, size in (("coming", 500_000_000), ("ready", 5)):
            self.must("post", f"{self.api}/datasets", json={"name": name, "size": size})
        self.must("put", f"{self.gateway}/data/{USER}/ready/a.txt", data=b"12345")
        self.must("put", f"{self.api}/datasets/ready:heartbeat", json={"state": "ready", "progress": 100})
        self.reaches("models/adder", "ready")
        self.must("post", f"{self.api}/apps", json={"name": "calc", "model_name": "adder", "cpu": 0.1, "ram": 400})
        self.reaches("apps/calc", "ready")
        self.reaches("jobs/wait", "running")

    def must(self, method: str, address: str, **options) -> None:
        answer = self.call(method, address, **options)
        assert answer.status_code in {200, 201}, answer.text

    def reaches(self, path: str, state: str) -> None:
        """Wait until the object is in that state."""
        until(lambda: self.call("get", f"{self.api}/{path}").json().get("state") == state, START_S, lambda: path)

    # --- every kind of request --------------------------------------------------------------------------------------
    def kinds(self) -> dict[str, Callable[[], int]]:
        """Return what each kind of request is called, and a function that makes it and returns the status."""
        get = {
            "auth": f"{self.gateway}/api/v1/auth",
            "list jobs": f"{self.api}/jobs",
            "list metrics": f"{self.api}/jobs/wait/metrics",
            "download": f"{self.gateway}/data/{USER}/ready/a.txt",
            "archive": f"{self.gateway}/data/{USER}/ready",
            "opni status": f"{self.gateway}/ModelTraining/model/status",
            "health": f"{self.gateway}/healthz",
            "live": f"{self.gateway}/healthz/live",
        }
        pages = {"index": "/index", "jobs": "/jobs", "log lines": "/aiops", "settings": "/settings"}
        return {
            **{name: lambda address=address: self.call("get", address).status_code for name, address in get.items()},
            **{f"page {name}": lambda path=path: self.page(self.session, path) for name, path in pages.items()},
            "admin": lambda: self.page(self.admin, "/admin/"),
            "admin list": lambda: self.page(self.admin, "/admin/accounts/user/"),
            "log in": lambda: self.ask("get", f"{self.api}/token", auth=(USER, PASSWORD)).status_code,
            "login form": lambda: self.ask("get", f"{self.gateway}/regist_login").status_code,
            "create job": self.create_job,
            "create dataset": self.create_dataset,
            "upload small": lambda: self.upload(10),
            "upload large": lambda: self.upload(200_000),
            "propfind": self.propfind,
            "metrics": self.report,
            "log lines by otlp": lambda: self.call("post", f"{self.gateway}/v1/logs", json=OTLP).status_code,
            "log lines by loki": self.push,
            "application": self.infer,
            "application, a stranger": lambda: gated(self.ask("get", f"{self.apps}/{USER}/calc/v2")),
            "no application": lambda: gated(self.call("get", f"{self.apps}/{USER}/nothing/v2")),
            "application, by session": self.ask_by_session,
            "websocket of a job": lambda: self.shake(f"/api/v1/users/{USER}/job_metrics/wait?token={self.token}"),
            "websocket of a page": lambda: self.shake("/ws/live", self.session.cookies["sessionid"]),
        }

    def page(self, session: requests.Session, path: str) -> int:
        return session.get(self.gateway + path, timeout=LIMIT_S, allow_redirects=False).status_code

    def name(self) -> str:
        """Return a name that was never used."""
        return "n" + "".join("abcdefghij"[int(digit)] for digit in str(next(self.count)))

    def create_job(self) -> int:
        body = {"name": self.name(), "entry": "wait.py", "cpu": 0.1, "ram": 100}
        answer = self.call("post", f"{self.api}/jobs", json=body)
        if answer.status_code == 201:
            self.call("put", f"{self.api}/jobs/{body['name']}:cancel")
        return answer.status_code

    def create_dataset(self) -> int:
        name = self.name()
        status = self.call("post", f"{self.api}/datasets", json={"name": name, "size": 1}).status_code
        if status == 201:
            self.datasets.add(name)
        return status

    def upload(self, size: int) -> int:
        name = self.name()
        status = self.call("put", f"{self.gateway}/data/{USER}/coming/{name}", data=b"x" * size).status_code
        if status == 201:
            self.uploaded.add(name)
        return status

    def propfind(self) -> int:
        return self.call("propfind", f"{self.gateway}/data/{USER}/ready/", headers={"Depth": "1"}).status_code

    def report(self) -> int:
        epoch = next(self.count)
        body = {"epoch": epoch, "accuracy": 0.5, "loss": 0.5, "progress": 1}
        status = self.call("post", f"{self.api}/job_metrics/wait", json=body).status_code
        if status == 200:
            self.epochs.add(epoch)
        return status

    def ask_by_session(self) -> int:
        return gated(self.session.get(f"{self.apps}/{USER}/calc/v2", timeout=LIMIT_S))

    def push(self) -> int:
        streams = [{"stream": {"app": "x"}, "values": [[str(time.time_ns()), "hello"]]}]
        return self.call("post", f"{self.gateway}/loki/api/v1/push", json={"streams": streams}).status_code

    def infer(self) -> int:
        return gated(self.call("post", f"{self.apps}/{USER}/calc/v2/models/adder/infer", json=TENSOR))

    def connect(self, path: str, session: str = "") -> websocket.WebSocket:
        cookie = f"sessionid={session}" if session else None
        return websocket.create_connection(self.socket + path, timeout=LIMIT_S, cookie=cookie, origin=self.gateway)

    def shake(self, path: str, session: str = "") -> int:
        """Open a websocket, wait for its first message where it has one, and return the handshake's status."""
        try:
            link = self.connect(path, session)
        except websocket.WebSocketBadStatusException as refusal:
            return refusal.status_code
        link.close()
        return 101

    def ask_all(self) -> dict[str, Answer]:
        """Make every kind of request, all at once, as visitors do."""
        kinds = self.kinds()

        def timed(make: Callable[[], int]) -> Answer:
            began = time.monotonic()
            return Answer(make(), time.monotonic() - began)

        with ThreadPoolExecutor(len(kinds)) as threads:
            futures = {name: threads.submit(timed, make) for name, make in kinds.items()}
            return {name: future.result() for name, future in futures.items()}

    # --- what was acknowledged --------------------------------------------------------------------------------------
    def missing(self) -> set:
        """Return what was acknowledged and is not there."""
        listed = self.call("propfind", f"{self.gateway}/data/{USER}/coming/", headers={"Depth": "1"}).text
        files = set(re.findall(r"/coming/([a-z]+)<", listed))
        datasets = {row["name"] for row in self.call("get", f"{self.api}/datasets").json()}
        epochs = {row["epoch"] for row in self.call("get", f"{self.api}/jobs/wait/metrics").json()}
        return (self.uploaded - files) | (self.datasets - datasets) | (self.epochs - epochs)


class Hammer:
    """Makes some kinds of requests again and again, and collects the statuses of the answers."""

    def __init__(self, kinds: dict[str, Callable[[], int]]):
        self.statuses = {name: set() for name in kinds}
        self.over = threading.Event()
        self.kinds, self.threads = kinds, ThreadPoolExecutor(len(kinds))

    def __enter__(self) -> Hammer:
        self.work = [self.threads.submit(self._work, *pair) for pair in self.kinds.items()]
        return self

    def __exit__(self, *_) -> None:
        self.over.set()
        for future in self.work:
            future.result()

    def _work(self, name: str, make: Callable[[], int]) -> None:
        while not self.over.wait(0.1):
            # A server that is killed after the head of its answer has left cuts the answer short. The client sees that.
            with suppress(requests.exceptions.ChunkedEncodingError):
                self.statuses[name].add(make())


class Feed:
    """An open websocket of the job's metrics, opened again when the platform closes it."""

    def __init__(self, visitor: Visitor):
        self.visitor, self.link = visitor, None
        self.open()

    def open(self) -> None:
        self.link = self.visitor.connect(f"/api/v1/users/{USER}/job_metrics/wait?token={self.visitor.token}")
        self.epochs: list[int] = []

    def until(self, epoch: int) -> list[int]:
        """Return the epochs that have come, up to this one."""
        while epoch not in self.epochs:
            try:
                self.epochs.append(json.loads(self.link.recv())["epoch"])
            except (websocket.WebSocketException, ConnectionError, ValueError):
                self.open()
        return self.epochs

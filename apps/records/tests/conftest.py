"""Fixtures of the tests of records: an application whose run records, with the recorder of the serving process."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys

import pytest

from apps import launching, places, runs
from apps.models import Application
from apps.records import collecting
from apps.tests.conftest import NAMES, adder

__all__ = ["adder"]

RUN = "app-7-1"
PREDICT = {"x": [1.0, 2.0]}


@pytest.fixture
def serving(monkeypatch):
    """Return a function that imports a module of the serving process, as it does: by its bare name."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(launching.SERVING))
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(launching.SERVING) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def app(adder):
    """A ready application of alice's with a run, which records once that is turned on."""
    places._places.clear()
    row = Application.objects.create(
        user=adder.user, tenant=adder.tenant, model=adder, name=next(NAMES), port=31000, state="ready", reserved=False,
        run_name=RUN, address="127.0.0.1:1",
    )  # fmt: skip
    launching.folder(row).mkdir(parents=True, exist_ok=True)
    runs.begin(row, RUN, adder)
    return row


@pytest.fixture
def record(app, as_alice):
    """Return a function that turns recording on, and returns the status and the answer."""

    def put(**settings) -> tuple[int, dict]:
        answer = as_alice.call("put", f"users/alice/apps/{app.name}/recording", settings)
        places._places.clear()
        return answer.status_code, answer.json()

    return put


@pytest.fixture
def ask(app, serving):
    """Return a function that lets a process with the recorder answer a request, as the gateway sends it: with the plan
    of the application. The records are in the files of the run then.
    """
    return Process(app, serving("recorder"))


class Process:
    """A serving process: its recorder, around an application whose answers a test chooses."""

    def __init__(self, app: Application, module):
        self.app, self.module = app, module
        self.recorder = module.Recorder(self._answer, launching.folder(app) / f"records-{RUN}")
        self.recorder.spool.thread = object()  # written when a test says so

    def __call__(
        self, given=PREDICT, answer=b'{"y": [2.0, 3.0]}', *, status: int = 200, kind: str = "application/json",
        headers: dict[str, str] | None = None, method: str = "POST", path: str = "/predict", leaves: bool = False,
        write: bool = True,
    ) -> None:  # fmt: skip
        body = given if isinstance(given, bytes) else json.dumps(given).encode()
        self.answer, self.status, self.kind, self.leaves = answer, status, kind, leaves
        place = places.place_of("alice", self.app.name)
        plan = {"x-app-record": place.record} if place is not None and place.record else {}
        sent = {"content-type": "application/json", **plan, **(headers or {})}
        lines = [(name.encode(), text.encode("latin-1")) for name, text in sent.items() if text is not None]
        scope = {"type": "http", "method": method, "path": path, "headers": lines}

        async def receive() -> dict:
            return {"type": "http.request", "body": body}

        self.passed: list[bytes] = []
        self.seen: list[int] = []

        async def send(message: dict) -> None:
            if message["type"] == "http.response.body":
                self.passed.append(message["body"])
                self.seen.append(len(self.recorder.spool.waiting))

        asyncio.run(self.recorder(scope, receive, send))
        if write:
            self.write()

    async def _answer(self, scope, receive, send) -> None:
        await receive()
        start = {"type": "http.response.start", "status": self.status}
        await send({**start, "headers": [(b"content-type", self.kind.encode())]})
        pieces = [self.answer] if isinstance(self.answer, bytes) else self.answer
        for at, piece in enumerate(pieces):
            more = self.leaves or at + 1 < len(pieces)
            await send({"type": "http.response.body", "body": piece, "more_body": more})

    def write(self) -> None:
        """Let the recorder's thread write what is queued."""
        self.recorder.spool.write()


@pytest.fixture
def listed(app, as_alice):
    """Return a function that stores what the run has recorded, and returns the records over REST."""

    def get(query: str = "", collect: bool = True) -> list[dict]:
        if collect:
            collecting.collect()
        answer = as_alice.call("get", f"users/alice/apps/{app.name}/records{query}")
        assert answer.status_code == 200, answer.content
        return answer.json()

    return get

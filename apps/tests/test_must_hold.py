"""Guarantees under stress: applications killed under load, created and deleted concurrently, failing at start."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests
from django.db import connection

import runners
from accounts import lifecycle as accounts
from apps import launching
from apps.models import PORTS, Application
from kernel import outbound, sockets, storage
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few, later
from models_app.models import Model

from .conftest import NAMES, bearer_of
from .test_apps import in_use, infer, process_of
from .test_gateway import TENSOR

pytestmark = pytest.mark.django_db(transaction=True)


CUT = 0


class Load(threading.Thread):
    """Calls one application continuously through the gateway: `seen` has (time, status, whether the answer was right),
    the time when it came. The status of a response whose connection ended in its body is `CUT`.
    """

    def __init__(self, address: str, headers: dict):
        super().__init__(daemon=True)
        self.address, self.headers, self.seen, self.over = address, headers, [], threading.Event()
        self.start()

    def run(self) -> None:
        with requests.Session() as session:
            while not self.over.is_set():
                status, right = self.answer(session)
                self.seen.append((time.monotonic(), status, right))
                time.sleep(0.02)

    def answer(self, session: requests.Session) -> tuple[int, bool]:
        try:
            answer = session.post(self.address, json={"inputs": [TENSOR]}, headers=self.headers, timeout=LIMIT_S)
        except requests.exceptions.ChunkedEncodingError:
            return CUT, False
        return answer.status_code, answer.status_code == 200 and answer.json()["outputs"][0]["data"] == [2, 3]

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_) -> None:
        self.over.set()
        self.join(LIMIT_S)


@pytest.mark.long
def test_after_a_kill_under_load_it_recovers_and_others_lose_no_request(front, deploy, ready, until, alice):
    app, other = deploy(next(NAMES)), deploy(next(NAMES))
    ready(app)
    ready(other)
    with ExitStack() as stack:
        path, headers = "v2/models/adder/infer", bearer_of(alice)
        on_it, on_other = (
            stack.enter_context(Load(f"{front}/alice/{served.name}/{path}", headers)) for served in (app, other)
        )
        until(lambda: len(on_it.seen) > 20 and len(on_other.seen) > 20)
        killed = time.monotonic()
        os.kill(process_of(app), signal.SIGKILL)

        def is_back() -> bool:
            app.refresh_from_db()
            return app.attempt == 2 and any(at > killed and right for at, _, right in on_it.seen[-1:])

        until(is_back)
        until(lambda: len([answer for answer in on_other.seen if answer[0] > killed]) > 20)
    assert all(right for _, _, right in on_other.seen)
    wrong = [status for _, status, right in on_it.seen if not right]
    assert set(wrong) <= {503, CUT}
    assert wrong.count(CUT) <= 1  # the one that was on its way
    assert [answer for answer in on_it.seen if answer[0] < killed and not answer[2]] == []
    assert app.attempt == 2, "the first new start is enough"


STAND_IN = """
import hmac, json, os, socket, sys

given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
body = json.dumps({"name": given["--name"]}).encode()
secret = os.environ["MLP_APP_SECRET"].encode()
listening = socket.socket(fileno=3)
listening.listen()
while True:
    one, _ = listening.accept()
    with one:
        path = one.recv(65536).split()[1]
        said = hmac.new(secret, path[8:], "sha256").hexdigest().encode() if path[:8] == b"/-proof/" else body
        one.sendall(b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(said) + said)
"""
USERS, EACH = "abcdefghij", 5


class Customer:
    """A user who creates and deletes applications at random; each must answer as this user's own."""

    def __init__(self, user, api, number: int):
        self.user, self.api, self.random = user, api(accounts.token_of(user)), random.Random(number)
        self.path, self.mistakes = f"users/{user.username}/apps", []

    def live(self) -> None:
        try:
            left, there = [f"app{letter}" for letter in USERS[:EACH]], []
            while left or there:
                if left and (not there or self.random.random() < 0.6):
                    there.append(self.create(left.pop()))
                else:
                    self.delete(there.pop(self.random.randrange(len(there))))
        except Exception as problem:
            self.mistakes.append(repr(problem))
        finally:
            connection.close()

    def create(self, name: str) -> str:
        order = {"name": name, "model_name": f"of{self.user.username}", "cpu": 0.1, "ram": 100}
        answer = self.api.call("post", self.path, order)
        assert answer.status_code == 201, answer.content
        return name

    def delete(self, name: str) -> None:
        end = time.monotonic() + LIMIT_S
        while (app := self.api.call("get", f"{self.path}/{name}").json())["state"] == "creating":
            assert time.monotonic() < end, app
            time.sleep(0.3)  # a call costs the same processor that the start needs
        assert app["state"] == "ready", app
        address = Application.objects.get(user=self.user, name=name).address
        answer = outbound.exchange(sockets.parse(address), "GET", "/", limit_s=LIMIT_S, most=1000)
        assert (answer[0], json.loads(answer[1])) == (200, {"name": f"of{self.user.username}"})
        assert self.api.call("delete", f"{self.path}/{name}").status_code == 200


@pytest.mark.long
@pytest.mark.parametrize("users", [USERS[:2], later(USERS)], ids=["few", "ten"])
def test_those_created_and_deleted_by_several_users_leak_nothing(
    make_user, api, until, tmp_path, monkeypatch, settings, users
):
    """Real REST and runs; a small program replaces the serving process."""
    (tmp_path / "server.py").write_text(STAND_IN)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    monkeypatch.setattr("apps.launching.SERVING", tmp_path)
    customers = []
    for number, letter in enumerate(users):
        user = make_user(f"user{letter}")
        storage.model_dir(user.username, f"of{user.username}").mkdir(parents=True, exist_ok=True)
        values = {"src": "home/p.py", "size": 1, "state": "ready", "reserved": False}
        Model.objects.create(user=user, tenant=user.tenant, name=f"of{user.username}", **values)
        customers.append(Customer(user, api, number))

    with ThreadPoolExecutor(len(customers)) as pool:
        lives = [pool.submit(customer.live) for customer in customers]

        def over() -> bool:
            now = list(Application.objects.values_list("port", flat=True))
            assert len(now) == len(set(now))
            assert set(now) <= set(PORTS)
            return all(life.done() for life in lives) and not Application.objects.exists()

        until(over)
    assert [customer.mistakes for customer in customers] == [[]] * len(customers)
    assert in_use() == {"cpu": 0, "ram": 0}
    until(lambda: runners.get().names() == [])
    assert list((storage.root() / "apps").glob("*/*")) == []
    assert list(settings.SOCKETS.glob("run-*")) == []


LOOP = "while True:\n    pass\n"
GREEDY = "held = []\nwhile True:\n    held.append(bytearray(b'x' * (8 << 20)))\n"


@pytest.mark.long
@pytest.mark.parametrize(("text", "words"), few([(LOOP, "did not answer within 3 s"), (GREEDY, "emory")], 1))
def test_a_model_that_fails_at_start_ends_in_error_without_side_effects(
    deploy, ready, until, adder, settings, text, words
):
    """It loads in its check, but not when it is served."""
    settings.APP_MAX_FAILURES = 1
    other = ready(deploy("other"))
    before = process_of(other)
    folder = storage.model_dir("alice", "bad")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "predictor.py").write_text(text)
    values = {"src": "home/p.py", "size": 1, "state": "ready", "reserved": False}
    Model.objects.create(user=adder.user, tenant=adder.tenant, name="bad", **values)
    settings.APP_START_S = 3 if text == LOOP else settings.APP_START_S
    app = deploy("bad", model_name="bad")

    def failed() -> bool:
        app.refresh_from_db()
        assert infer(other, [1]) == [2]
        return app.state == "error"

    until(failed)
    assert app.reason.startswith("stopped after 1 failure: ")
    assert words in app.reason
    assert process_of(other) == before
    assert in_use() == {"cpu": 0.1, "ram": 400}
    until(lambda: runners.get().names() == [other.run_name])
    assert launching.log_path(app).is_file()


def test_no_server_process_unpickles_a_model(as_alice, deploy, adder, until, settings, client):
    """The pickle records who opens it: only the serving run does, in the run's own folder."""
    settings.APP_MAX_FAILURES = 1
    folder = storage.model_dir("alice", "trap")
    folder.mkdir(parents=True, exist_ok=True)
    outside = storage.root() / "opened"
    code = f"import os\nprint('opened by', os.getpid(), flush=True)\nopen({str(outside)!r}, 'a').write('x')\n"
    (folder / "model.pkl").write_bytes(
        b"cbuiltins\nexec\n(V" + code.encode("raw_unicode_escape").replace(b"\n", b"\\u000a") + b"\ntR."
    )
    values = {"src": "home/model.pkl", "size": 1, "state": "ready", "reserved": False}
    Model.objects.create(user=adder.user, tenant=adder.tenant, name="trap", **values)
    for path in ("models", "models/trap", "models/trap/download", "apps"):
        assert as_alice.call("get", f"users/alice/{path}").status_code == 200
    client.force_login(adder.user)
    for path in ("/models", "/apps", "/models/trap"):
        client.get(path)
    assert not outside.exists()
    app = deploy("trap", model_name="trap")

    def failed() -> bool:
        app.refresh_from_db()
        return app.state == "error"

    until(failed)
    assert "opened by" in Path(launching.log_path(app)).read_text()
    assert not outside.exists() or runners.get().confinement.isolation != "bwrap"

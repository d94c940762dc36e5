"""Fixtures of the tests of workspaces: a stand-in for JupyterLab, and the browser of a user at the gateway."""

from __future__ import annotations

import itertools
import shutil
import sys
import time
from pathlib import Path
from string import ascii_lowercase
from urllib.parse import urlsplit

import pytest
import requests
import websocket
from django.conf import settings as django_settings
from django.test import Client

import runners
from datasets.tests.live import servers, service
from kernel import storage
from mlp.tests.patience import LIMIT_S
from workspaces import place, reconcile
from workspaces.models import Workspace

__all__ = ["servers", "service"]  # nginx and the web server, started once

# The web server outlives a test and remembers the address of a workspace for a second: no two tests use one name.
NAMES = ("lab" + "".join(two) for two in itertools.product(ascii_lowercase, repeat=2))


@pytest.fixture(autouse=True)
def standin(tmp_path, monkeypatch, settings):
    """Run the stand-in in place of JupyterLab, without packages: with our own Python, which has what it imports."""
    settings.WORKSPACE_PACKAGES, settings.RUN_PYTHON = [], sys.executable
    program = tmp_path / "program"
    program.mkdir()
    for name in ("furnish.py", "sshd.py"):
        shutil.copy(place.PROGRAM / name, program)
    shutil.copy(Path(__file__).with_name("standin.py"), program / place.ENTRY)
    monkeypatch.setattr(place, "PROGRAM", program)


@pytest.fixture
def create(as_alice):
    def post(name: str = "", **fields) -> Workspace:
        name = name or next(NAMES)
        response = as_alice.call("post", "users/alice/workspaces", {"name": name, "cpu": 0.1, "ram": 400, **fields})
        assert response.status_code == 201, response.content
        return Workspace.objects.get(name=name, user__username="alice")

    return post


@pytest.fixture
def until(tasks):
    """Run the workers and the reconcile loop until `done()` is true."""

    def wait(done, seconds: float = LIMIT_S) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            tasks.run_once()
            reconcile.run()
            if done():
                return
            time.sleep(0.1)  # a round costs more than it waits
        raise AssertionError(f"not after {seconds} s: {list(Workspace.objects.values())}")

    return wait


@pytest.fixture
def settle(until):
    """Wait until a workspace is in this state."""

    def wait(row: Workspace, state: str = "ready", seconds: float = LIMIT_S) -> Workspace:
        def is_there() -> bool:
            row.refresh_from_db()
            return row.state == state

        until(is_there, seconds)
        return row

    return wait


class Browser(requests.Session):
    """A browser with the session of a user at the platform, which goes where the gateway sends it."""

    def __init__(self, service, client: Client | None):
        super().__init__()
        self.trust_env = False
        self.platform = client
        self.service, self.origin = service, f"http://127.0.0.1:{service.workspace_port}"
        if client is not None:
            name = django_settings.SESSION_COOKIE_NAME
            self.cookies.set(name, client.cookies[name].value, domain="127.0.0.1", path="/")

    def at(self, path: str, method: str = "GET", **options) -> requests.Response:
        options = {"allow_redirects": False, "timeout": LIMIT_S, **options}
        return self.request(method, self.origin + path, **options)

    def page(self, path: str, **options) -> requests.Response:
        """Open a page as a browser does: by redirects, those to the platform to where it is in this test."""
        headers = {"Accept": "text/html", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        origin, address = self.origin, self.origin + path
        for _ in range(8):
            answer = self.get(address, headers=headers, allow_redirects=False, timeout=LIMIT_S, **options)
            if answer.status_code not in (301, 302, 308):
                return answer
            target = urlsplit(answer.headers["Location"])
            own = target.port in (None, self.service.workspace_port) or "/-enter" in target.path
            if target.netloc:  # else it stays where it is
                origin = self.origin if own else self.service.url
            address = target._replace(scheme="", netloc="").geturl()
            address = origin + address
        raise AssertionError(f"too many redirects, the last to {address}")

    def login_of(self, row: Workspace) -> str:
        return next((cookie.value for cookie in self.cookies if cookie.name == "workspace"), "")


def open_socket(visitor: Browser, path: str, **options) -> websocket.WebSocket:
    cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in visitor.cookies if path.startswith(cookie.path))
    address = visitor.origin.replace("http", "ws", 1) + path
    return websocket.create_connection(address, timeout=LIMIT_S, cookie=cookies, **{"origin": visitor.origin} | options)


def is_closed(link: websocket.WebSocket) -> bool:
    try:
        link.send("still here?")
        return link.recv() != "STILL HERE?"
    except (OSError, websocket.WebSocketException):
        return True


@pytest.fixture
def lab(service, create, settle):
    """A running workspace of alice's; the path of it."""
    row = settle(create())
    row.path = f"/alice/{row.name}"
    return row


@pytest.fixture
def visitor(service):
    """Return a function that returns the browser of a user who has logged in; None: of nobody."""

    def of(user) -> Browser:
        if user is None:
            return Browser(service, None)
        client = Client()
        client.force_login(user)
        return Browser(service, client)

    return of


@pytest.fixture(autouse=True)
def nothing_left(request):
    yield
    if "tasks" in request.fixturenames:
        runners.get().stop_all(grace=0)
        shutil.rmtree(storage.root() / "workspaces", ignore_errors=True)

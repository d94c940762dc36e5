"""What the tests in a real browser share: a server of HTTP and websockets that can go away and come back."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

from django.conf import settings
from django.db import connection
from django.test import Client

from mlp.tests.patience import LIMIT_S

from .servers import HOST, WAIT_S, begin, free_port

LIVE_MS = 1000 * LIMIT_S  # how long a page may take to notice


class Site:
    """Daphne on the tests' own database, storage and Valkey; it can be stopped and restarted at the same address."""

    def __init__(self, folder: Path):
        self.port, self.log = free_port(), folder / "daphne.log"
        self.url = f"http://{HOST}:{self.port}"
        database = urlsplit(os.environ["DATABASE_URL"])._replace(path="/" + connection.settings_dict["NAME"]).geturl()
        environment = {**os.environ, "DATABASE_URL": database, "MLP_SECRET_KEY": settings.SECRET_KEY}
        command = [sys.executable, "-m", "mlp.tests.forked_site", str(self.log), "-b", HOST, "-p", str(self.port)]
        pipe, self.trouble = subprocess.PIPE, folder / "site.log"
        self.process = begin(
            command, self.trouble, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=settings.BASE_DIR
        )

    def tell(self, command: str) -> bool:
        """Have the process that runs Daphne do this, and return whether Daphne runs then."""
        print(command, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer, self.trouble.read_text()[-2000:]
        return answer == "running\n"

    def start(self) -> None:
        self.tell("start")
        end = time.monotonic() + WAIT_S
        while not self.answers():
            assert self.runs(), self.log.read_text()[-2000:]
            assert time.monotonic() < end, "the server does not come up"
            time.sleep(0.05)

    def answers(self) -> bool:
        """Whether it is our server, and not another process that was given the port meanwhile."""
        try:
            with urlopen(f"{self.url}/healthz/live", timeout=5) as answer:
                return answer.status == 200 and self.runs()
        except (OSError, HTTPException):
            return False

    def runs(self) -> bool:
        return self.tell("look")

    def stop(self) -> None:
        self.tell("kill")

    def close(self) -> None:
        """End it for good."""
        self.process.kill()
        self.process.communicate()


def in_another_thread(action) -> None:
    """Run the function in a thread: the browser driver's event loop occupies this one."""
    problems = []

    def run():
        try:
            action()
        except BaseException as problem:  # raised again below, in the test
            problems.append(problem)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if problems:
        raise problems[0]


def open_live(page, address: str) -> None:
    """Open a page and wait until its websocket is told of changes: those before are in the page, or missed."""
    told: list = []
    page.on("websocket", lambda link: link.on("framereceived", lambda frame: told.append(frame)))
    page.goto(address)
    end = time.monotonic() + LIVE_MS / 1000
    while not told:
        assert time.monotonic() < end, "the websocket is not ready"
        page.wait_for_timeout(20)  # lets the events come in


def asks_while_idle(page, seconds: int = 25) -> list[str]:
    """Return the addresses that a page asks for in that time of its own clock (`page.clock`), when nothing happens."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(1000 * seconds)
    with page.expect_response("**/healthz/live?last"):
        page.evaluate("fetch('/healthz/live?last')")  # comes after all that its timers have asked for
    assert asked[-1].endswith("/healthz/live?last")
    return asked[:-1]


def loads(page) -> list[str]:
    """Record the addresses that the page navigates to from now on."""
    urls: list[str] = []
    page.on("framenavigated", lambda frame: urls.append(frame.url))
    return urls


def log_in(context, site: Site, user) -> None:
    """Give the browser a session of the user."""
    client = Client()
    client.force_login(user)
    context.add_cookies([{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": site.url}])

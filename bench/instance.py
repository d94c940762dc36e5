"""A platform for one benchmark, with ports and a storage root of its own, called as its users call it; and what else
the benchmarks share: other servers, a database alone, times.
"""

from __future__ import annotations

import base64
import contextlib
import http.cookiejar
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

HOST = "127.0.0.1"
ROOT = Path(__file__).resolve().parent.parent
MANAGE = ROOT / "manage.py"
PASSWORD = "only for this benchmark"
START_S = 120
BASES = range(20_000, 30_000, 100)  # below the ports of outgoing connections and those of applications
PORTS = 100  # that a platform and the peers beside it may take from its base on
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT}


@dataclass
class Instance:
    """A running platform. `call` raises urllib's HTTPError for every answer that is not a success."""

    root: Path
    base: int
    token: str = ""
    user: str = "bench"

    @property
    def port(self) -> int:
        return self.base + 1

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        mine = {"MLP_ROOT": str(self.root), "MLP_PORT_BASE": str(self.base), "MLP_ADMIN_PASSWORD": PASSWORD}
        return {**os.environ, **mine}

    def request(self, method: str, path: str, data: bytes | None = None, headers: dict | None = None) -> bytes:
        given = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        whole = urllib.request.Request(self.url + path, data, {**given, **(headers or {})}, method=method)
        with urllib.request.urlopen(whole, timeout=120) as answer:
            return answer.read()

    def call(self, method: str, path: str, body=None) -> object:
        data = None if body is None else json.dumps(body).encode()
        return json.loads(self.request(method, f"/api/v1{path}", data, {"Content-Type": "application/json"}))

    def as_user(self, name: str) -> Instance:
        """Return the platform as that user calls it, who has the password of all users here."""
        login = base64.b64encode(f"{name}:{PASSWORD}".encode()).decode()
        answer = self.request("GET", f"/api/v1/users/{name}/token", None, {"Authorization": f"Basic {login}"})
        return replace(self, user=name, token=json.loads(answer))

    def browser(self) -> tuple[urllib.request.OpenerDirector, http.cookiejar.CookieJar]:
        """Return a browser with a session of the user, and its cookies."""
        jar, address = http.cookiejar.CookieJar(), f"{self.url}/regist_login"
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
        mark = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', browser.open(address).read().decode())[1]
        form = {"csrfmiddlewaretoken": mark, "username": self.user, "password": PASSWORD, "action": "login"}
        browser.open(address, urllib.parse.urlencode(form).encode()).read()
        return browser, jar

    def script(self, name: str, text: str) -> None:
        """Upload a script to the user's home."""
        self.request("PUT", f"/data/{self.user}/.home/{name}", text.encode())

    def submit(self, name: str, script: str, state: str, *arguments: str) -> dict:
        """Upload the script, submit a small job that runs it, and return the job when it is in this state."""
        self.script(f"{name}.py", script)
        body = {"name": name, "entry": f"{name}.py", "args": list(arguments), "ram": 100, "cpu": 0.1}
        self.call("POST", f"/users/{self.user}/jobs", body)
        return self.wait_state(f"jobs/{name}", state)

    def wait_state(self, path: str, state: str, seconds: float = 60) -> dict:
        """Return the object at this path below the user's when it is in the state. Raises SystemExit for an error."""

        def poll() -> dict | None:
            row = self.call("GET", f"/users/{self.user}/{path}")
            if row["state"] == "error":
                raise SystemExit(f"{path} failed: {row['reason']}")
            return row if row["state"] == state else None

        return wait(f"{path} is not {state}", poll, seconds)

    def wait_free(self) -> None:
        """Wait until nothing of the user holds resources any more: what was deleted or has ended is gone."""

        def is_free() -> bool:
            tenant = self.call("GET", "/tenants/default")
            return not any(tenant[f"{kind}_inuse"] for kind in ("cpu", "gpu", "ram"))

        wait("the resources of the last measurement are not free", is_free, 60)

    def manage(self, *arguments: str, text: str | None = None) -> str:
        command = [sys.executable, str(MANAGE), *arguments]
        done = subprocess.run(command, env=self.environment, input=text, text=True, capture_output=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        return done.stdout


def wait(what: str, poll: Callable, seconds: float, pause: float = 0.05):
    """Return the first true result of `poll()`. Raises SystemExit after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if result := poll():
            return result
        time.sleep(pause)
    raise SystemExit(f"{what} after {seconds} s")


def free_base() -> int:
    """Return a base whose ports are all free, other ones in each run, so that several benchmarks can run at a time.
    BENCH_PORT_BASE names one.
    """
    if given := os.environ.get("BENCH_PORT_BASE"):
        return int(given)
    for base in random.sample(BASES, len(BASES)):
        if all(_is_free(base + offset) for offset in range(PORTS)):
            return base
    raise SystemExit(f"no {PORTS} free ports in a row between {BASES.start} and {BASES.stop}")


def free_port() -> int:
    """Return a free port for a peer."""
    with socket.create_server((HOST, 0)) as probe:
        return probe.getsockname()[1]


def _is_free(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_server((HOST, port)):
        return True
    return False


@contextlib.contextmanager
def running(base: int | None = None, **settings: str) -> Iterator[Instance]:
    """Start a platform, register the user `bench`, and stop the platform at the end."""
    with tempfile.TemporaryDirectory(prefix="mlp-bench-") as root:
        platform = Instance(Path(root), base or free_base())
        environment = {**platform.environment, **settings}
        # A session of its own, so that Ctrl-C ends the benchmark first, which then stops the platform.
        more = {"env": environment, "stdout": subprocess.DEVNULL, "start_new_session": True}
        with server([sys.executable, str(MANAGE), "up"], f"{platform.url}/healthz", START_S, **more):
            platform.call("POST", "/users", {"username": platform.user, "password": PASSWORD})
            yield platform.as_user(platform.user)


@contextlib.contextmanager
def server(command: list[str], url: str, seconds: float = START_S, **options) -> Iterator[subprocess.Popen]:
    """Run a server until the end of the block, which begins when it answers 200 at this address; `options` as for
    Popen. Raises SystemExit when it does not.
    """
    process = subprocess.Popen(command, **options)

    def answers() -> bool:
        if process.poll() is not None:
            raise SystemExit(f"{command[:4]} ended with {process.returncode}")
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200
        return False

    try:
        wait(f"{command[:4]} does not answer", answers, seconds)
        yield process
    finally:
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def database(given: str | None = None) -> Iterator[None]:
    """Prepare Django with the embedded PostgreSQL alone, migrated, in the platform's configuration and with a root of
    its own; with `given`, the address of a database, with that one.
    """
    sys.path[0] = str(ROOT)  # in place of this folder, whose resources.py would hide the app
    with tempfile.TemporaryDirectory(prefix="mlp-bench-") as root, contextlib.ExitStack() as stack:
        os.environ |= {"MLP_ROOT": root, "MLP_PORT_BASE": str(free_base()), "DJANGO_SETTINGS_MODULE": "mlp.settings"}
        if given:
            os.environ["DATABASE_URL"] = given
        else:
            os.chmod(root, 0o755)
            stack.enter_context(_embedded(root))
        import django

        django.setup()
        from django.core.management import call_command
        from django.db import connection

        call_command("migrate", verbosity=0)
        stack.callback(connection.close)
        yield


@contextlib.contextmanager
def _embedded(root: str) -> Iterator[None]:
    from kernel import sockets
    from supervision import servers

    sockets.make_folder(Path(root) / "run" / "sockets")  # where it listens
    part = servers.database()
    part.prepare(None)
    process = subprocess.Popen(part.command, cwd=part.cwd, start_new_session=True, **QUIET)

    def is_ready() -> bool:
        with contextlib.suppress(Exception):
            part.ready()
            return True
        return False

    try:
        wait("the database did not start", is_ready, 60)
        yield
    finally:
        process.send_signal(2)
        process.wait(60)


def times(work: Callable, count: int) -> list[float]:
    """Return the seconds that `work()` takes, of so many calls."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return taken


def spread(times: list[float]) -> str:
    """Return `median 1.2 ms   p99 3.4 ms` of times in seconds."""
    ordered = sorted(times)
    median, late = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"median {1000 * median:8.2f} ms   p99 {1000 * late:8.2f} ms"


def load() -> str:
    """Return how busy the machine is: `(load 0.52 on 2 cores)`."""
    return f"(load {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores)"

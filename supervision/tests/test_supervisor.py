"""`make up` end to end: real processes, its own port base and root. How it ends: test_orderly_end.py.

That each kind of process is restarted after a kill, under load, is tested in mlp/tests/test_storm.py.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from kernel import sockets
from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S
from mlp.tests.servers import begin
from runners.base import RunSpec
from runners.local import LocalRunner
from supervision.tests.running import PARTS, SERVERS, START_S, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.begins(0)]
# What is added to the base for the ports of web, websockets, data, database and valkey, see MLP_PORT_BASE.
INNER = (3, 4, 5, 11, 12)


def listening() -> dict[str, tuple[str, int]]:
    """Return socket inode -> (address, port) of all listening sockets of this machine, addresses as the kernel writes
    them.
    """
    inodes = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                address, port = words[1].split(":")
                inodes[words[9]] = address, int(port, 16)
    return inodes


@pytest.fixture
def platform(shared):
    return shared.running()


def test_health_is_reported_for_each_part(platform):
    body = platform.wait_healthy()
    assert body["status"] == "ok"
    assert set(body["parts"]) == PARTS | {"app-gateway"}
    words = platform.output.read_text()
    assert f"http://127.0.0.1:{platform.base + 1}" in words
    assert str(platform.root / "admin-password") in words
    assert (platform.root / "admin-password").read_text().strip() not in words


def test_a_second_up_on_the_same_root_is_refused(platform):
    before = platform.leaders()
    refused = platform.call()
    assert refused.returncode != 0
    assert str(platform.root) in refused.stdout
    assert str(platform.process.pid) in refused.stdout
    assert platform.leaders() == before
    platform.wait_healthy()


def test_it_listens_on_its_own_address_and_ports_only(platform):
    inodes, bound = listening(), set()
    for pid in platform.everything():
        with suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    inode = os.readlink(link).removeprefix("socket:[").removesuffix("]")
                    bound |= {inodes[inode]} if inode in inodes else set()
    assert {address for address, _ in bound} == {"0100007F"}
    # The gateways and NATS; the other servers have sockets.
    assert {port - platform.base for _, port in bound} == {1, 2, 10, 13}


def test_secrets_are_not_on_command_lines_or_readable_by_others(platform):
    names = ("secret-key", "admin-password", "nats-password", "valkey-password", "database-password", "metrics-token")
    secrets = [(platform.root / name).read_bytes().strip() for name in names]
    for pid in platform.everything():
        with suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            assert not [secret for secret in secrets if secret in line]
    for path in [*(platform.root / name for name in names), platform.root / "run"]:
        assert path.stat().st_mode & 0o077 == 0, path


def whole(link: socket.socket) -> bytes:
    """Read a response with a JSON body, in however many pieces it arrives."""
    link.settimeout(LIMIT_S)
    answer = b""
    while piece := link.recv(65536):
        answer += piece
        with suppress(ValueError):
            json.loads(answer.partition(b"\r\n\r\n")[2])
            break
    return answer


def test_the_gateways_refusals_have_the_apis_form(platform):
    cases = {
        "unreadable": b"get /api/v1/users HTTP/1.1\r\n\r\n",
        "no host": b"GET /api/v1/users HTTP/1.1\r\n\r\n",
        "trace": b"TRACE /api/v1/users HTTP/1.1\r\nHost: x\r\n\r\n",
        "length": b"POST /api/v1/users HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "large": b"POST /api/v1/users HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n",
        "chunk": b"POST /api/v1/users HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
        "coding": b"POST /api/v1/users HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: zip\r\n\r\n",
        "long": b"GET /api/v1/users?" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        "longer": b"GET /api/v1/users?" + b"a" * 90000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        "headers": b"GET /api/v1/users HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 300 + b"\r\n",
        "slashes": b"GET //api/v1//users HTTP/1.1\r\nHost: x\r\n\r\n",
        "websocket": b"GET /api/v1/users/alice/job_metrics/a HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    }
    for name, request in cases.items():
        with closing(socket.create_connection(("127.0.0.1", platform.base + 1), timeout=60)) as link:
            with suppress(ConnectionError):
                link.sendall(request)
            answer = whole(link)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 403 "), (name, answer)
        assert set(json.loads(body)) == {"msg"}, (name, answer)


@pytest.mark.parametrize("line", [b"GET / HTTP/2.0", b"get / HTTP/1.1", b"GET /" + b"a" * 90000 + b" HTTP/1.1"])
def test_the_application_gateway_says_what_is_wrong_with_a_request(platform, line):
    with closing(socket.create_connection(("127.0.0.1", platform.base + 2), timeout=60)) as link:
        with suppress(ConnectionError):
            link.sendall(line + b"\r\nHost: x\r\n\r\n")
        head, _, body = whole(link).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert set(json.loads(body)) == {"msg"}


def test_no_log_has_a_password_or_its_hash_when_the_database_refuses_a_user(platform):
    def logs() -> str:
        return "".join(path.read_text(errors="replace") for path in (platform.root / "log").glob("*/*"))

    user = json.dumps({"username": "registeredtwice", "password": "a long password"}).encode()
    for times, status in enumerate((201, 403, 403)):
        assert platform.get("/api/v1/users", data=user, **{"Content-Type": "application/json"})[0] == status
        until(lambda times=times: logs().count("duplicate key") >= times)  # the last one: all of the first is there
    assert not re.search(r"a long password|pbkdf2|registeredtwice", logs())


def test_internal_addresses_are_not_reachable(platform):
    for path in ("/internal/data/verb", "/%69nternal/data/verb", "//internal/data/verb", "/x/../internal/data/verb"):
        assert platform.get(path)[0] == 404
    assert platform.get("/healthz", port=2)[0] == 200
    assert platform.get("/alice/model", port=2)[0] == 401  # whether there is one is nobody's business without a token


def test_tokens_are_not_logged(platform):
    platform.get("/index?token=verysecret")
    platform.get("/api/v1/auth?token=verysecret", Authorization="Bearer verysecret")
    log, end = platform.root / "log" / "gateway" / "gateway.log", time.monotonic() + LIMIT_S
    while "/api/v1/auth" not in log.read_text():
        assert time.monotonic() < end, "the request is not in the gateway's log"
        time.sleep(0.05)
    assert not [path for path in (platform.root / "log").rglob("*.log") if "verysecret" in path.read_text()]


def test_a_log_in_is_logged_with_the_address_that_the_gateway_knows(platform):
    claims = {"X-Forwarded-For": "203.0.113.66", "X-Real-IP": "203.0.113.66", "X-Gateway-Key": "guessed"}
    assert platform.get("/api/v1/users/nobody/token", Authorization="Basic bm9ib2R5Ong=", **claims)[0] == 403
    log = platform.root / "log" / "web" / "web.log"
    until(lambda: "log-in of nobody from 127.0.0.1 failed" in log.read_text())
    assert "203.0.113.66" not in log.read_text()


@contextmanager
def intruders(ports: Iterable[int]) -> Iterator[None]:
    """Listen on the ports, and assert that nobody has connected to any."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", port))) for port in ports]
        yield
        assert select.select(listeners, [], [], 0) == ([], [], [])


def test_nothing_is_told_at_the_ports_that_killed_servers_could_have(platform):
    """A program that listens there, where the servers listen with MLP_INNER_PORTS, gets nothing from their clients."""
    servers = ("web", "websockets", "data", "database", "valkey")
    killed = {platform.pids(part)[0] for part in servers}
    with intruders(platform.base + number for number in INNER):
        platform.kill(*killed)
        for part in servers:
            platform.healed(part, killed)


@pytest.mark.long
def test_without_web_the_gateway_answers_in_the_apis_form(platform):
    web = platform.kill_part("web")
    api, page, health = platform.get("/api/v1/auth"), platform.get("/index"), platform.get("/healthz")
    assert (api[0], set(json.loads(api[2]))) == (503, {"msg"})
    assert (page[0], page[1].split(";")[0]) == (503, "text/html")
    assert health[0] == 503
    assert "web" in json.loads(health[2])["failing"]
    platform.healed("web", web)


@contextmanager
def service(platform: Platform, folder: Path) -> Iterator[Callable[[], None]]:
    """Run a service beside those of the platform, and yield a function that asserts that it runs and can be reached."""
    runner = LocalRunner(platform.root / "run" / "runs")
    kind = {"kind": "service", "port": 31000}
    runner.start(RunSpec("probe", ["sleep", "600"], folder, {"PATH": os.environ["PATH"]}, folder / "log", **kind))

    def goes_on() -> None:
        assert runner.poll("probe").state == "running"
        assert Path(runner.address("probe")).is_socket()

    try:
        yield goes_on
    finally:
        runner.stop("probe")
        until(lambda: runner.poll("probe").state == "exited")
        runner.forget("probe")


def test_a_killed_supervisord_is_restarted_and_runs_continue(platform, tmp_path):
    with service(platform, tmp_path) as goes_on:
        everything = {pid for part in ("supervisor", *PARTS) for pid in platform.pids(part)}
        platform.kill(platform.pids("supervisor")[0])
        for part in ("supervisor", *sorted(PARTS)):
            platform.healed(part, everything)
        goes_on()


def test_a_killed_gateway_listens_again(platform):
    """Also where it takes requests that it sends to one server only: nginx leaves that socket behind."""
    killed = platform.kill_part("gateway")
    platform.healed("gateway", killed)
    link = http.client.HTTPConnection("127.0.0.1", platform.base + 1, timeout=LIMIT_S)
    link.request("DELETE", "/api/v1/users/nobody/jobs/none")
    answer = link.getresponse()
    assert (answer.status, set(json.loads(answer.read()))) == (403, {"msg"})
    link.close()


@pytest.mark.long
def test_a_terminated_supervisord_is_restarted_with_all_parts(platform):
    """While it shuts down it refuses every call, which must not end `up`."""
    parts = {pid for part in PARTS for pid in platform.pids(part)}
    os.kill(platform.pids("supervisor")[0], signal.SIGTERM)
    for part in sorted(PARTS):
        platform.healed(part, parts)


@pytest.mark.long
def test_a_kill_of_all_processes_but_up_is_survived(platform):
    everything = {pid for part in ("supervisor", *PARTS) for pid in platform.pids(part)}
    platform.kill(*everything)
    for part in ("supervisor", *sorted(PARTS)):
        platform.healed(part, everything)


@pytest.mark.long
def test_after_a_kill_of_up_the_next_one_starts_cleanly(platform, tmp_path):
    with service(platform, tmp_path) as goes_on:
        everything = {pid for part in ("supervisor", *PARTS) for pid in platform.pids(part)}
        platform.kill(platform.process.pid)
        platform.process.wait(LIMIT_S)
        print(f"\nstart after a killed up: {platform.start():.1f} s")
        for part in ("supervisor", *PARTS):
            pids = platform.pids(part)
            assert pids
            assert not everything & set(pids), part
        goes_on()


@pytest.mark.long
def test_given_servers_are_used_and_two_platforms_run_side_by_side(platform, tmp_path):
    """The second one, below a path too long for a socket, uses the first one's servers by their URLs."""
    words = {name: (platform.root / f"{name}-password").read_text().strip() for name in SERVERS}
    folder = sockets.folder(platform.root)
    database = f"postgresql://platform:{words['database']}@{quote(str(folder), safe='')}:{platform.base + 11}"
    with psycopg.connect(f"{database}/mlp", autocommit=True) as link:
        link.execute("CREATE DATABASE second")
    second = Platform(
        tmp_path / ("long" * 30) / "root",
        DATABASE_URL=f"{database}/second",
        REDIS_URL=f"unix://:{words['valkey']}@{folder}/valkey.sock?db=1",
        NATS_URL=f"nats://platform:{words['nats']}@127.0.0.1:{platform.base + 10}",
    )
    second.root.parent.mkdir()
    before = platform.leaders()
    second.start()
    try:
        parts = {path.name for path in (second.root / "run" / "parts").iterdir()}
        assert parts == PARTS - SERVERS | {"supervisor"}
        platform.wait_healthy()
    finally:
        assert second.stop() == 0
    assert second.everything() == []
    assert platform.leaders() == before
    platform.wait_healthy()


def end_with_its_supervisord(platform: Platform, folder: Path) -> None:
    """Signal `up` and supervisord at once, as service managers do: everything ends gracefully, runs included."""
    runner = LocalRunner(platform.root / "run" / "runs")
    environment = {"PATH": os.environ["PATH"]}
    runner.start(RunSpec("probe", ["sleep", "600"], folder, environment, folder / "log"))
    os.kill(platform.pids("supervisor")[0], signal.SIGTERM)
    assert platform.stop() == 0
    assert "Traceback" not in platform.output.read_text()
    assert platform.everything() == []
    assert runner.poll("probe").state == "exited"


def words(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def migrates(fresh: Platform) -> bool:
    return "Applying jobs.0001" in words(fresh.root / "log" / "setup" / "setup.log") or parts_start(fresh)


def parts_start(fresh: Platform) -> bool:
    return "migrations, administrator, static files ready" in words(fresh.output)


# On a busy machine a moment may have passed when it is seen; then the kill comes later. That `up` is killed when all
# parts run is test_after_a_kill_of_up_the_next_one_starts_cleanly.
MOMENTS = {
    "it creates the database": lambda fresh: [
        *fresh.root.glob(".database.*/PG_VERSION"),
        *fresh.root.glob("database/*"),
    ],
    "it starts the servers": lambda fresh: " ready" in words(fresh.output),
    "it migrates": migrates,
    "it starts the parts": parts_start,
}


def reached(fresh: Platform, has_come: Callable[[Platform], object]) -> bool:
    return bool(has_come(fresh)) or fresh.process.poll() is not None


@pytest.mark.long
def test_a_kill_at_any_moment_of_the_first_start_is_recovered(tmp_path):
    """`up` is killed while it creates the database, migrates, starts the parts; each time the next one continues."""
    fresh = Platform(tmp_path / "root")
    try:
        for moment, has_come in MOMENTS.items():
            fresh.output.unlink(missing_ok=True)
            fresh.process = begin(fresh.command(), fresh.output, env=fresh.environment)
            until(partial(reached, fresh, has_come), START_S, partial(words, fresh.output))
            assert fresh.process.poll() is None, (moment, words(fresh.output))
            fresh.kill(fresh.process.pid)
            fresh.process.wait(LIMIT_S)
        fresh.start()
        end_with_its_supervisord(fresh, tmp_path)
    finally:
        fresh.kill(*fresh.everything())

"""Jobs that are written to break out, on a whole platform with a victim: what they must not see, reach or leave behind.

The programs are in `programs/`. Each reports what it tried and whether it worked.
"""

from __future__ import annotations

import itertools
import os
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from django.conf import settings

from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few
from runners import confine
from runners.tests.networking import listening

from . import smuggling
from .world import World

pytestmark = [pytest.mark.e2e, pytest.mark.begins(0)]

SECRET = "secret-of-the-victim"


@pytest.fixture(scope="module")
def world(shared):
    world = World(shared.running())
    yield world
    world.end()


@pytest.fixture
def attacker(world):
    return world.attacker


def test_it_finds_no_secret_of_the_platform_or_of_another_user(world, attacker):
    """Not in files, processes, devices, shared memory or keyrings, nor by a debugger or a socket."""
    world.victim.upload("kept.txt", SECRET.encode())
    other = world.victim.submit("victim", SECRET, name="keeping", env={"SECRET": SECRET}).says("ready")
    hunt = attacker.submit("hunt", SECRET[::-1], *world.secrets(), cpu=1).ended()
    assert hunt.row["state"] == "finished", hunt.log[-3000:]
    assert hunt.broken_out() == {}
    assert other.log == "ready\n"
    other.cancel()


def test_the_database_keeps_no_memory_where_runs_may_read(world):
    """Under Landlock they share /dev/shm with the machine."""
    pid = (world.platform.root / "database" / "postmaster.pid").read_text().split()[0]
    maps = Path(f"/proc/{pid}/maps").read_text()
    assert "postgres" in maps
    assert "/dev/shm/" not in maps


def test_the_bus_lets_it_do_nothing_but_report(world, attacker):
    other = world.victim.submit("victim", "x", name="reporting").says("ready")
    for epoch in range(3):
        row = {"epoch": epoch, "accuracy": 0.5, "loss": 0.5, "progress": epoch}
        world.victim.done("post", "job_metrics/reporting", row)
    bus = attacker.submit("bus", "victim", "reporting").ended()
    assert bus.row["state"] == "finished", bus.log[-3000:]
    assert bus.broken_out() == {}
    other.until(lambda: len(world.victim.done("get", "jobs/reporting/metrics")) == 3)
    assert "Invalid JetStream request" not in (world.platform.root / "log" / "nats" / "nats.log").read_text()
    other.cancel()


def test_it_reaches_no_inner_port_and_takes_no_place_of_a_server(world, attacker):
    """While it tries to listen on every port of the platform, the servers on these ports are killed and restarted."""
    platform = world.platform
    ports = [platform.base + number for number in range(1, 13)]
    endpoints = attacker.submit("ports", *map(str, ports), "/workspace/sign", cpu=1).says("waiting\n")
    try:
        for part in ("gateway", "nats"):
            platform.healed(part, platform.kill_part(part))
    finally:
        (endpoints.workspace / "sign").unlink()
    world.unharmed("afterports")
    endpoints.ended()
    assert endpoints.broken_out() == {}
    ports_reached = {int(port) for port in endpoints.tries["ports of 127.0.0.1"]["words"].split()}
    if confine.decide().network:  # the gateways, NATS and its own relay to the internet, and nothing else at all
        assert ports_reached <= {platform.base + number for number in (1, 2, 6, 10)}
    else:
        assert ports_reached & set(ports) <= {platform.base + number for number in (1, 2, 10)}


def own_addresses() -> list[str]:
    """Return the addresses of this machine by which others reach it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return [probe.getsockname()[0]]


def test_its_network_leads_to_the_endpoints_of_the_platform_only(world, attacker):
    """Nothing else that listens on this machine is reached, also not by way of the proxy or of its route."""
    ports = sorted(listening())
    assert {world.platform.base + number for number in (1, 2, 10)} <= set(ports)
    addresses = [*own_addresses(), "169.254.169.254", "198.51.100.2", "198.51.100.3"]  # the last: ends of a route
    job = attacker.submit("network", ",".join(map(str, ports)), ",".join(addresses)).ended()
    assert job.row["state"] == "finished", job.log[-3000:]
    assert job.broken_out() == {}
    job.until(lambda: len(attacker.done("get", "jobs/network/metrics")) == 1)


def test_nothing_outlives_a_cancel(world, attacker):
    """Each process that it has left behind holds a FIFO open: its end is read once the last one has gone."""
    job = attacker.submit("outlive").says("waiting for a reader")
    reader = os.open(job.workspace / "held", os.O_RDONLY | os.O_NONBLOCK)
    try:
        job.says("all started")
        assert sum(name.startswith("control") for name in job.tries) >= 5
        assert job.broken_out() == {}
        job.cancel()
        gone = select.poll()
        gone.register(reader, 0)
        assert gone.poll(LIMIT_S * 1000), "a process has outlived its job"
    finally:
        os.close(reader)
    job.until(lambda: world.in_use() == world.idle)
    job.owner.done("delete", f"jobs/{job.name}")
    job.until(lambda: not job.workspace.exists())


@pytest.mark.parametrize("name", few(smuggling.AMBIGUOUS, 8))
def test_an_ambiguous_request_is_one_request_to_all_servers(world, name):
    """What one server takes for a body is a request to none; and the next caller gets the own answer, nobody else's."""
    request = smuggling.AMBIGUOUS[name] + smuggling.LAST
    received = smuggling.answers(world.platform.base + 1, request, smuggling.PATIENCE_S)
    assert SECRET.encode() not in received
    assert received.count(b"HTTP/1.") <= 3, received  # those of the requests on this connection
    for _ in range(12):  # as many as there are connections behind the gateway
        answer = world.victim.session.get(f"{world.victim.url}/api/v1/auth", timeout=LIMIT_S)
        assert (answer.status_code, answer.json()) == (200, "victim"), answer.text
    log = (world.platform.root / "log" / "web" / "web.log").read_text()
    assert "smuggled" not in log


def test_no_address_and_no_header_leads_to_what_is_internal(world, attacker):
    world.victim.upload("kept.txt", SECRET.encode())
    secrets = [SECRET, *(text[::-1] for text in world.secrets())]
    token = attacker.session.headers["Authorization"]
    given = "".join(f"{name}: {value}\r\n" for name, value in smuggling.HEADERS.items())
    for port, address in itertools.product((1, 2), smuggling.ADDRESSES):
        head = f"GET {address} HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n"
        for more in ("Connection: close\r\n", given):
            request = f"{head}{more}\r\n".encode()
            received = smuggling.answers(world.platform.base + port, request).decode(errors="replace")
            assert 300 <= int(received.split()[1]) < 500, (address, received[:500])
            assert not [secret for secret in secrets if secret in received], address


PREDICTOR = b"from evil import Predictor\n"
CODE = "import sys\nsys.path.insert(0, '/model')\nimport evil\n"
PICKLE = b"cbuiltins\nexec\n(V" + CODE.encode().replace(b"\n", b"\\u000a") + b"\ntR."


@pytest.mark.parametrize("files", [{"predictor.py": PREDICTOR}, {"model.pkl": PICKLE}], ids=["predictor", "pickle"])
def test_a_model_finds_nothing_where_it_is_loaded(world, attacker, files):
    """Its code runs in the load check only, which it fails with what it has found."""
    name = "bad" + next(iter(files)).partition(".")[0]
    world.victim.upload("kept.txt", SECRET.encode())
    row = attacker.store(name, [SECRET[::-1], *world.secrets()], {**files, "fail": b""})
    assert row["state"] == "error"
    assert "found [] in " in row["reason"], row["reason"]
    attacker.done("delete", f"models/{name}")


def test_an_application_finds_nothing_and_answers_for_nobody_else(world, attacker):
    """It reads what it can; then it answers in the place of its server, with headers that nginx would act on."""
    world.victim.upload("kept.txt", SECRET.encode())
    assert attacker.store("evil", [SECRET[::-1], *world.secrets()], {"predictor.py": PREDICTOR})["state"] == "ready"
    attacker.done("post", "apps", {"name": "evil", "model_name": "evil", "cpu": 0.5, "ram": 400})
    assert attacker.settled("apps/evil")["state"] == "ready"
    address = f"http://127.0.0.1:{world.platform.base + 2}/attacker/evil"
    for value in (0, 1):
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [value]}]}
        response = attacker.session.post(f"{address}/v2/models/evil/infer", json=body, timeout=LIMIT_S)
        assert response.json()["outputs"][0]["data"] == ["[]"], response.text

    def get(kind: str) -> requests.Response:
        return requests.get(f"{address}/{kind}", headers=attacker.session.headers, timeout=LIMIT_S)

    assert requests.get(f"{address}/accel", timeout=LIMIT_S).status_code == 401
    assert world.victim.session.get(f"{address}/accel", timeout=LIMIT_S).status_code == 404
    together = ThreadPoolExecutor(5)  # requests at the same time have connections of their own, which are then kept
    for kind in ("accel", "archive", "internal", "cookie", "policy", "folded", "second"):
        answers, end = [], time.monotonic() + LIMIT_S
        while len(answers) < 10 or (kind != "folded" and "evil" not in [answer.text for answer in answers]):
            answers += together.map(lambda _number, kind=kind: get(kind), range(5))  # others are from its own server
            assert time.monotonic() < end, kind
        for answer in answers:
            assert SECRET not in answer.text, kind
            assert "evil" not in answer.headers.get("Set-Cookie", ""), kind
            assert answer.status_code != 200 or "sandbox" in answer.headers["Content-Security-Policy"], kind
            assert answer.text != "worse"
    together.shutdown()
    attacker.done("delete", "apps/evil")


ENDED_BY = {
    "heap": "memory", "memfd": "memory", "shm": "memory", "tmpfs": "memory", "segments": "memory", "pipes": "memory",
    "disk": "wrote more than", "unnamed": "wrote more than", "mapped": "wrote more than", "inodes": "wrote more than",
    "temporary": "wrote more than", "deep": "nested too deeply", "forks": "", "crowd": "",
}  # fmt: skip
IN_THE_SUITE = ("memfd", "forks")
MARKS = dict.fromkeys(IN_THE_SUITE, ()) | dict.fromkeys(("tmpfs", "mapped", "deep", "crowd"), pytest.mark.long)
FILLING = [pytest.param(program, marks=MARKS.get(program, pytest.mark.heavy_attack)) for program in ENDED_BY]


@pytest.mark.parametrize("what", FILLING)
def test_filling_something_up_harms_nobody(world, attacker, what):
    """It is bounded, a victim's job starts and runs to its end meanwhile, and afterwards everything is free again."""
    job = attacker.submit("fill", what, name=f"fill{what}", ram=150).says("begins")
    world.unharmed(f"beside{what}")
    if ENDED_BY[what]:
        job.until(lambda: job.row["state"] == "error" or "refused: " in job.log)
    job.end()
    assert ENDED_BY[what] in job.row["reason"] or "refused: " in job.log, job.row
    free = os.statvfs(job.workspace)  # how far it gets beyond its limit is a matter of the disk's speed
    assert free.f_bavail * free.f_frsize > settings.DISK_RESERVE_MIB << 20
    assert (job.workspace / "log" / "job.log").stat().st_size < 2_000_000
    job.until(lambda: world.in_use() == world.idle)
    attacker.done("delete", f"jobs/{job.name}")
    job.until(lambda: not job.workspace.exists())

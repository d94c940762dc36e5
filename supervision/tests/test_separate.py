"""Each part by itself (`manage.py part`), twice, against one database, NATS and Valkey: they serve the platform, either
of two may be killed at any moment, and everything adds up.

What needs all of them is long. Two of one part, killed in turn: aiops/services/tests/test_replicas.py.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys

import psycopg
import pytest
import requests
from django.conf import settings

from kernel.tests.nats_tools import until

from .separate import LIMIT_S, PARTS, TWICE, Separate

pytestmark = [pytest.mark.e2e, pytest.mark.begins(0)]
# A run here is bound to one gateway, so it waits at its end until that is back; a Service would lead to the other.
SCRIPT = b"""
import os, pathlib, time
os.environ["MLP_REPORT_FLUSH_S"] = "300"
import mlp_report
for epoch in range(1, 21):
    mlp_report.report(epoch=epoch, loss=1 / epoch)
    if epoch == 10:
        pathlib.Path("half").touch()
        while not pathlib.Path("go").exists():
            time.sleep(0.05)
"""
USER, PASSWORD = "alice", "correct horse battery"


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    separate = Separate(tmp_path_factory.mktemp("parts"))
    try:
        both = [separate.start("setup", number) for number in (0, 1)]  # at once
        for process, number in zip(both, (0, 1), strict=True):
            assert process.wait(LIMIT_S) == 0, separate.log("setup", number).read_text()
        assert separate.start("setup").wait(LIMIT_S) == 0, separate.log("setup", 0).read_text()  # and again
        separate.running.clear()
        for part, number in PARTS:
            separate.start(part, number)
        for number in (0, 1):
            separate.healthy(number)
        yield separate
    finally:
        separate.end()


class Alice:
    """A user who may ask either gateway."""

    def __init__(self, parts: Separate):
        self.parts, self.turn = parts, itertools.count()
        requests.post(
            f"{parts.url(0)}/api/v1/users", json={"username": USER, "password": PASSWORD}, timeout=60
        ).raise_for_status()
        token = requests.get(f"{parts.url(1)}/api/v1/users/{USER}/token", auth=(USER, PASSWORD), timeout=60).json()
        self.headers = {"Authorization": f"Bearer {token}"}

    def call(self, method: str, path: str, **options) -> requests.Response:
        """Ask one of the gateways that are there; the other one after an answer that none gave."""
        for _ in range(400):
            number = next(self.turn) % 2
            try:
                answer = requests.request(
                    method, self.parts.url(number) + path, headers=self.headers, timeout=60, **options
                )
            except requests.RequestException:
                continue
            if answer.status_code not in {502, 503, 504}:
                return answer
        raise AssertionError(f"no gateway answers {method} {path}")

    def job(self, name: str) -> dict:
        return self.call("get", f"/api/v1/users/{USER}/jobs/{name}").json()

    def epochs(self, name: str) -> list[int]:
        return sorted(row["epoch"] for row in self.call("get", f"/api/v1/users/{USER}/jobs/{name}/metrics").json())

    def submit(self, name: str) -> None:
        body = {"name": name, "entry": "fit.py", "cpu": 0.1, "ram": 200}
        answer = self.call("post", f"/api/v1/users/{USER}/jobs", json=body)
        assert answer.status_code in {201, 403}, answer.text  # 403: the answer to the first try was lost
        assert self.job(name).get("name") == name, answer.text

    def is_half_done(self, name: str) -> bool:
        return (self.parts.root / "jobs" / USER / name / "half").exists()

    def goes_on(self, name: str) -> None:
        """Let the job report the second half."""
        until(lambda: self.is_half_done(name), LIMIT_S)
        (self.parts.root / "jobs" / USER / name / "go").touch()

    def ended(self, name: str) -> dict:
        job = until(lambda: (told := self.job(name))["state"] in {"finished", "error"} and told, LIMIT_S)
        assert job["state"] == "finished", job["reason"]
        return job


@pytest.fixture(scope="module")
def alice(parts):
    alice = Alice(parts)
    put = alice.call("put", f"/data/{USER}/.home/fit.py", data=SCRIPT)
    assert put.status_code in {200, 201, 204}, put.text
    return alice


@pytest.mark.long
def test_parts_that_were_started_one_by_one_serve_the_platform(parts, alice):
    alice.submit("first")
    alice.goes_on("first")
    alice.ended("first")
    rows = alice.call("get", f"/api/v1/users/{USER}/jobs/first/metrics").json()
    assert "loss" in str(rows)
    for number in (0, 1):
        told = requests.get(f"{parts.url(number)}/healthz", timeout=60).json()["parts"]
        assert set(told.values()) == {"ok"}
        page = requests.get(f"{parts.url(number)}/regist_login", timeout=60)
        assert page.status_code == 200
        assert requests.get(f"{parts.url(number)}/healthz/ready", timeout=60).text == "ok\n"


@pytest.mark.long
def test_every_replica_shows_that_it_lives_also_while_it_stands_by(parts):
    for part, number in PARTS:
        if part in {"web", "websockets", "data", "gateway"}:
            continue  # probed at their ports
        sign = parts.folder / f"{part}-{number}" / "alive" / part
        before = until(lambda sign=sign: sign.exists() and sign.stat().st_mtime_ns)
        until(lambda sign=sign, before=before: sign.stat().st_mtime_ns > before)


@pytest.mark.long
def test_either_of_two_may_be_killed_and_everything_adds_up(parts, alice):
    names = [f"fit{letter}" for letter in "abcdef"]
    for number in (0, 1):
        fresh = names[3 * number : 3 * number + 3]
        for name in fresh:
            alice.submit(name)
        until(lambda fresh=fresh: any(map(alice.is_half_done, fresh)), LIMIT_S)
        for part in TWICE:
            parts.kill(part, number)
        parts.start("gateway", number)  # of the runs that this machine's worker has started; a Service would have both
        parts.start("web", number)
        parts.healthy(1 - number)  # the others do it all
        for part in TWICE:
            if part not in {"web", "gateway"}:
                parts.start(part, number)
        parts.healthy(number)
        for name in fresh:
            alice.goes_on(name)
    for name in names:
        alice.ended(name)
    with psycopg.connect(parts.given["DATABASE_URL"]) as link:
        until(
            lambda: link.execute("SELECT count(*) FROM job WHERE run_name <> '' OR reserved").fetchone() == (0,),
            LIMIT_S,
        )
        books = link.execute("SELECT cpu_inuse, ram_inuse, gpu_inuse FROM tenant WHERE name = 'default'").fetchone()
        assert tuple(map(float, books)) == (0, 0, 0)
        query = "SELECT count(*) FROM resource_request WHERE state IN ('tried', 'confirmed') AND cpu > 0"
        assert link.execute(query).fetchone() == (0,)
    for name in names:
        # What was given to a killed ingest comes again, since it has not been acknowledged.
        until(lambda name=name: alice.epochs(name) == list(range(1, 21)), LIMIT_S, lambda name=name: f"{name}: no sum")


@pytest.mark.long
def test_a_replica_that_stands_by_ends_when_it_is_asked(parts):
    for part in ("ingest", "reconcile"):
        process = parts.start(part, 1) if (part, 1) not in parts.running else parts.running[part, 1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
        del parts.running[part, 1]
        parts.start(part, 1)


@pytest.mark.long
def test_a_part_waits_for_the_first_set_up(tmp_path):
    alone = Separate(tmp_path)
    try:
        process = alone.start("worker")
        until(lambda: "waiting: the database lacks the migration " in alone.log("worker", 0).read_text())
        process.terminate()
        assert process.wait(LIMIT_S) == 0
    finally:
        alone.end()


@pytest.mark.long
def test_a_part_waits_for_the_set_up_of_its_release(parts):
    with psycopg.connect(parts.given["DATABASE_URL"], autocommit=True) as link:
        row = link.execute("DELETE FROM django_migrations WHERE app = 'aiops' RETURNING app, name, applied").fetchall()
        try:
            process = parts.start("worker", 1)
            until(lambda: "waiting: the database lacks the migration aiops." in parts.log("worker", 1).read_text())
            process.terminate()
            assert process.wait(LIMIT_S) == 0
        finally:
            link.cursor().executemany("INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, %s)", row)


@pytest.mark.long
def test_an_unknown_part_is_refused():
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "part", "webb"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode
    assert "no part is called webb; there are setup, web, websockets" in done.stderr

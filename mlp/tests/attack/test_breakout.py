"""Jobs that are written to break out, on a whole platform with a victim: what they must not see, reach or leave behind.

The programs are in `programs/`. Each reports what it tried and whether it worked.
"""

from __future__ import annotations

import os
import select
import subprocess

import pytest

from .world import World

pytestmark = [pytest.mark.e2e, pytest.mark.begins(0)]

GONE_S = 30  # a second of grace, on a busy machine


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("attack") / "root")
    yield made
    made.end()


@pytest.fixture
def attacker(world):
    return world.attacker


def test_it_finds_no_secret_of_the_platform_or_of_another_user(world, attacker):
    """Not in files, processes, devices, shared memory or keyrings, nor by a debugger or a socket."""
    secret = "secret-of-the-victim"
    world.victim.upload("kept.txt", secret.encode())
    other = world.victim.submit("victim", secret, name="keeping", env={"SECRET": secret}).says("ready")
    hunt = attacker.submit("hunt", secret[::-1], *world.secrets(), cpu=1).ended()
    assert hunt.row["state"] == "finished", hunt.log[-3000:]
    assert hunt.broken_out() == {}
    assert other.log == "ready\n"
    other.cancel()


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


def test_nothing_outlives_a_cancel(world, attacker):
    """Each process that it has left behind holds a FIFO open: its end is read once the last one has gone."""
    before = world.in_use()
    job = attacker.submit("outlive").says("waiting for a reader")
    reader = os.open(job.workspace / "held", os.O_RDONLY | os.O_NONBLOCK)
    try:
        job.says("all started")
        assert sum(name.startswith("control") for name in job.tries) >= 5
        assert job.broken_out() == {}
        job.cancel()
        gone = select.poll()
        gone.register(reader, 0)
        assert gone.poll(GONE_S * 1000), "a process has outlived its job"
    finally:
        os.close(reader)
    job.until(lambda: world.in_use() == before)
    job.owner.done("delete", f"jobs/{job.name}")
    job.until(lambda: not job.workspace.exists())


ENDED_BY = {
    "heap": "memory", "memfd": "memory", "shm": "memory", "tmpfs": "memory", "segments": "memory", "pipes": "memory",
    "disk": "wrote more than", "unnamed": "wrote more than", "mapped": "wrote more than", "inodes": "wrote more than",
    "temporary": "wrote more than", "deep": "nested too deeply", "forks": "", "crowd": "",
}  # fmt: skip
IN_THE_SUITE = ("memfd", "tmpfs", "mapped", "deep", "forks", "crowd")
HEAVY = [pytest.param(one, marks=pytest.mark.heavy_attack) for one in ENDED_BY if one not in IN_THE_SUITE]


@pytest.mark.parametrize("what", [*IN_THE_SUITE, *HEAVY])
def test_filling_something_up_harms_nobody(world, attacker, what):
    """It is bounded, a victim's job starts and runs to its end meanwhile, and afterwards everything is free again."""
    before = world.in_use()
    job = attacker.submit("fill", what, name=f"fill{what}", ram=150).says("begins")
    world.unharmed(f"beside{what}")
    if ENDED_BY[what]:
        job.until(lambda: job.row["state"] == "error" or "refused: " in job.log)
    if job.row["state"] == "running":
        job.cancel()
    assert ENDED_BY[what] in job.row["reason"] or "refused: " in job.log, job.row
    used = subprocess.run(["du", "-sk", str(job.workspace)], capture_output=True, text=True, check=True).stdout
    assert int(used.split()[0]) < 4 * 64 << 10
    assert (job.workspace / "log" / "job.log").stat().st_size < 2_000_000
    job.until(lambda: world.in_use() == before)
    attacker.done("delete", f"jobs/{job.name}")
    job.until(lambda: not job.workspace.exists())

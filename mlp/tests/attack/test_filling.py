"""What an application and the check of a model may fill up: memory, the disk, inodes, processes; an application its log
and the connections of the gateway as well.

What a job may is in test_breakout.py, always with two of the programs of programs/fill.py. A run of an application has
the limits of a job's: runners/tests/test_bounds.py.
"""

from __future__ import annotations

import time

import pytest

from apps import launching
from mlp.tests.patience import LIMIT_S

from .world import PROGRAMS, World

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.begins(0)]

# What it fills up, and what the reason says by which it is ended; none: it is bounded, and goes on.
ENDED_BY = {
    "heap": "memory", "memfd": "memory", "disk": "wrote more than", "unnamed": "wrote more than",
    "inodes": "wrote more than", "forks": "",
}  # fmt: skip
IN_AN_APPLICATION = ("heap", "memfd", "disk", "unnamed", "inodes")
GOES_ON = ("forks", "lines", "connections")


def each(names) -> list:
    return [pytest.param(name, marks=() if name == "memfd" else pytest.mark.heavy_attack) for name in names]


@pytest.fixture(scope="module")
def world(shared):
    world = World(shared.running(), "filler", "neighbour")
    yield world
    world.end()


@pytest.fixture
def attacker(world):
    return world.attacker


def upload(world, name: str, what: str, **more: bytes) -> None:
    """Upload the model that fills this up."""
    files = {f"{program}.py": (PROGRAMS / f"{program}.py").read_bytes() for program in ("fill", "filler", "attempts")}
    for path, data in {**files, "predictor.py": b"from filler import *\n", "fills": what.encode(), **more}.items():
        world.attacker.upload(f"{name}/{path}", data)


def until(true, state=lambda: ""):
    """Wait until it is true; return what it returned."""
    end = time.monotonic() + LIMIT_S
    while not (value := true()):
        assert time.monotonic() < end, state()
        time.sleep(0.1)
    return value


@pytest.mark.parametrize("what", each(ENDED_BY))
def test_a_check_that_fills_something_up_harms_nobody(world, attacker, what):
    """It ends with the reason, at the latest when its time is over, while a victim's job runs to its end."""
    name = f"check{what}"
    upload(world, name, what)
    attacker.done("post", "models", {"name": name, "src": f"home/{name}"})
    world.unharmed(f"besidecheck{what}")
    row = attacker.settled(f"models/{name}")
    assert row["state"] == "error"
    assert (ENDED_BY[what] or "did not load within") in row["reason"] or "refused: " in row["reason"], row
    attacker.done("delete", f"models/{name}")
    until(lambda: attacker.call("get", f"models/{name}").status_code != 200)
    until(lambda: world.in_use() == world.idle, world.in_use)


def serving(world, attacker, what: str) -> str:
    """Return the name of an application that has begun to fill this up."""
    name, address = f"app{what}", f"http://127.0.0.1:{world.platform.base + 2}/{attacker.name}/app{what}"
    upload(world, name, f"{what} {world.platform.base + 1}", waits=b"")
    attacker.done("post", "models", {"name": name, "src": f"home/{name}"})
    assert attacker.settled(f"models/{name}")["state"] == "ready"
    attacker.done("post", "apps", {"name": name, "model_name": name, "cpu": 0.5, "ram": 400})
    assert attacker.settled(f"apps/{name}")["state"] == "ready"
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}
    attacker.session.post(f"{address}/v2/models/{name}/infer", json=body, timeout=LIMIT_S)
    return name


def leaves_nothing(world, attacker, name: str) -> None:
    """Delete the application, once it does not start again; nothing of it stays in use."""
    until(lambda: attacker.call("delete", f"apps/{name}").status_code == 200)
    until(lambda: attacker.call("get", f"apps/{name}").status_code != 200)
    until(lambda: world.in_use() == world.idle, world.in_use)
    attacker.done("delete", f"models/{name}")


@pytest.mark.parametrize("what", each(IN_AN_APPLICATION))
def test_an_application_that_fills_something_up_harms_nobody(world, attacker, what):
    """Its run ends with the reason, and another one serves; deleted, it leaves nothing in use."""
    name = serving(world, attacker, what)
    world.unharmed(f"besideapp{what}")
    ended = until(lambda: attacker.done("get", f"apps/{name}")["reason"], lambda: attacker.done("get", f"apps/{name}"))
    assert ENDED_BY[what] in ended, ended
    until(lambda: attacker.done("get", f"apps/{name}")["state"] == "ready")
    leaves_nothing(world, attacker, name)


@pytest.mark.parametrize("what", each(GOES_ON))
def test_an_application_that_is_bounded_harms_nobody(world, attacker, what):
    """It may go on, or is ended; others are served meanwhile, and deleted it leaves nothing in use."""
    name = serving(world, attacker, what)
    for turn in "abc":
        world.unharmed(f"besideapp{what}{turn}")
        assert world.victim.session.get(f"{world.victim.url}/api/v1/auth", timeout=LIMIT_S).status_code == 200
    kept = sum(file.stat().st_size for file in (world.platform.root / "apps" / attacker.name / name).rglob("*.log*"))
    assert kept < 2 * launching.LOG_LIMIT
    leaves_nothing(world, attacker, name)

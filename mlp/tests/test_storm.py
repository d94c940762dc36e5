"""The short storm: every kind of process is killed under load, and nothing that was acknowledged is lost or doubled.

tools/storm has all of it; `make storm` is the long one. docs/testing.md describes both.
"""

from __future__ import annotations

import pytest

from mlp.tests.servers import begin
from supervision.tests.running import START_S, free_base
from tools.storm import faults, processes
from tools.storm.site import Site
from tools.storm.whole import storm

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.begins(0)]

SEED = 14
PACE = 2.5  # seconds between two actions of an actor: the processor belongs to the other tests, too
KINDS = {
    "file",
    "dataset",
    "job",
    "job deleted",
    "cancelled",
    "seen",
    "lines",
    "points",
    "model",
    "application",
    "account",
    "sweep",
}
LOAD = {"file", "dataset", "job", "points", "lines", "model", "application"}


@pytest.fixture
def site(tmp_path):
    """A platform that is not started, on ports of its own; nothing of it outlives the test."""
    root = tmp_path / "root"
    root.mkdir()
    site = Site(root, free_base(), lambda command, log, values: begin(command, log, grace_s=60, env=values))
    yield site
    if site.process and site.process.poll() is None:
        site.kill_everything()


def test_nothing_acknowledged_is_lost_in_a_storm(site):
    report = storm(
        site, faults.SHORT, SEED, heal_s=START_S, patience_s=START_S, pace=PACE, wanted=KINDS, thorough=False
    )
    assert report.differences == []
    kinds = set(processes.KINDS) - (processes.WITH_NETWORKS - report.kills.keys())
    assert {kind: report.kills.get(kind) for kind in kinds} == dict.fromkeys(kinds, 1)
    assert report.kills["machine"] == faults.SHORT.machine
    assert report.kills["stop"] == faults.SHORT.stops
    assert report.acknowledged.keys() >= KINDS


def test_nothing_acknowledged_is_lost_when_it_is_stopped_and_started_under_load(site):
    """As an upgrade does: jobs run, files are uploaded and metrics arrive while the servers are stopped and started."""
    report = storm(
        site, faults.UPGRADES, SEED, heal_s=START_S, patience_s=START_S, pace=PACE, wanted=LOAD, thorough=False
    )
    assert report.differences == []
    assert report.kills == {"upgrade": faults.UPGRADES.upgrades}
    assert report.acknowledged.keys() >= LOAD

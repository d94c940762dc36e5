"""A pytest plugin: one platform for the tests that visit one. A start takes more than most of them do.

Their files run in one worker, one after the other. What a test has changed of the platform it puts back, and what it
has begun there it ends: the next file finds a platform that is healthy and does nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import requests
from xdist.scheduler import LoadFileScheduling

from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S
from operations.monitoring.tests.receiver import Receiver
from supervision.tests.running import Platform

VISITORS = (
    "operations/backup/tests/test_restored.py",
    "operations/monitoring/tests/test_scrape.py",
    "operations/monitoring/tests/test_traces.py",
    "mlp/tests/attack/test_breakout.py",
    "mlp/tests/attack/test_filling.py",
    "client/tests/test_client_run_live.py",
    "client/tests/test_client_automation_live.py",
    "client/tests/test_client_verbs_live.py",
    "mlp/tests/test_demo.py",
    "supervision/tests/test_orderly_end.py",
    "supervision/tests/test_supervisor.py",
)
# For the attacks: limits that are reached soon. For the traces: they are sent to the tests, and at once.
SETTINGS = {"MLP_JOB_DISK_MIB": "64", "MLP_JOB_CANCEL_GRACE_S": "1", "MLP_JOB_LOG_LIMIT": "1000000"}
SETTINGS |= {"OTEL_BSP_SCHEDULE_DELAY": "100"}


class Shared(Platform):
    """Runs from its first visit to the end of its last one, with a receiver of its traces."""

    def __init__(self, root: Path):
        self.receiver = Receiver()
        super().__init__(root, **SETTINGS, MLP_OTLP_ENDPOINT=self.receiver.address)

    def running(self) -> Shared:
        """Return it once it is healthy and all parts run; it is started where the test before has stopped it."""
        if self.process is None or self.process.poll() is not None:
            self.start()
        self.wait_healthy()
        until(lambda: all(self.leaders().values()))  # one that lost its server by a kill may be a moment behind
        return self

    def leave(self, username: str, headers: dict[str, str]) -> None:
        """Delete the user's applications and cancel their jobs, and wait until nothing of them runs."""
        user = f"http://127.0.0.1:{self.base + 1}/api/v1/users/{username}"

        def ask(method: str, path: str) -> requests.Response:
            return requests.request(method, f"{user}/{path}", headers=headers, timeout=LIMIT_S)

        for app in ask("get", "apps").json():
            ask("delete", f"apps/{app['name']}")
        for job in ask("get", "jobs").json():
            if job["state"] not in {"finished", "error"}:
                ask("put", f"jobs/{job['name']}:cancel")
        until(lambda: {job["state"] for job in ask("get", "jobs").json()} <= {"finished", "error"})
        until(lambda: ask("get", "apps").json() == [])

    def end(self) -> None:
        """Stop it; the next visit would start it again."""
        if self.process is not None and self.process.poll() is None:
            assert self.stop() == 0
        assert self.everything() == []


MADE = pytest.StashKey[Shared]()


@pytest.fixture(scope="session")
def shared(request, tmp_path_factory):
    shared = Shared(tmp_path_factory.mktemp("shared") / "root")
    request.config.stash[MADE] = shared
    yield shared
    shared.kill(*shared.everything())
    shared.receiver.close()


def visits(nodeid: str) -> bool:
    return nodeid.partition("::")[0] in VISITORS


@pytest.hookimpl(trylast=True)  # when the file's own fixtures have ended
def pytest_runtest_teardown(item, nextitem):
    """End it with its last visitor: while it does nothing, it takes a twentieth of a core."""
    if MADE in item.config.stash and visits(item.nodeid) and not (nextitem and visits(nextitem.nodeid)):
        item.config.stash[MADE].end()


class Together(LoadFileScheduling):
    """Gives each file to one worker, and all files of visitors to the same one."""

    def _split_scope(self, nodeid: str) -> str:
        return "visitors" if visits(nodeid) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    if config.getoption("dist") != "loadfile":
        return None  # xdist's own
    return Together(config, log)

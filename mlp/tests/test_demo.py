"""`make demo` against a real platform, while its processes are killed with -9, one part after the other."""

from __future__ import annotations

import importlib
import os
import signal
import sys

import pytest
from django.conf import settings

from kernel.tests.nats_tools import until
from mlp.tests.servers import begin
from supervision.tests.running import PARTS, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.begins(0)]

DEMO_S = 900


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    made = Platform(tmp_path_factory.mktemp("demo") / "root")
    yield made
    done = made.call("--down")  # `up` itself may have been killed
    assert done.returncode == 0, done.stdout + done.stderr
    assert made.everything() == []


@pytest.fixture
def platform(root):
    if root.process is None or root.process.poll() is not None:
        root.start()
    return root


class Demo:
    """One run of `make demo`."""

    def __init__(self, platform: Platform, slow: float):
        self.log = platform.root.with_name("demo.out")
        program = str(settings.BASE_DIR / "examples" / "demo.py")
        options = ["--epochs", "4", "--slow", str(slow), "--steps", "6"]
        self.process = begin([sys.executable, program, *options], self.log, env=platform.environment)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def check(self) -> None:
        """Wait until it ends, and check that it succeeded."""
        code = self.process.wait(DEMO_S)
        assert code == 0, self.log.read_text()[-3000:]


def test_the_demo_succeeds(platform):
    Demo(platform, slow=0.1).check()


@pytest.mark.long
def test_the_demo_succeeds_whatever_is_killed(platform):
    """Kills `up`, then all processes of one part after the other while the demo runs. That every kind of process comes
    back, also those of runs, and that nothing is lost, is tested in test_storm; that the next `up` takes over, too.
    """
    demo = Demo(platform, slow=1)
    os.kill(platform.process.pid, signal.SIGKILL)
    platform.process.wait()
    for part in sorted(PARTS):
        platform.kill(*platform.pids(part))
        until(lambda: not demo.running or platform.health()[0] == 200)
        if not demo.running:
            break
    demo.check()


@pytest.mark.long
def test_the_demos_watched_job_fails_when_it_is_signalled(platform, tmp_path, monkeypatch):
    """The rest of that part takes a minute: services, training and verdicts have tests of their own in aiops/."""
    monkeypatch.syspath_prepend(str(settings.BASE_DIR / "examples"))
    demo, demo_aiops = (importlib.import_module(name) for name in ("demo", "demo_aiops"))
    reached = demo.Platform(f"http://127.0.0.1:{platform.base + 1}")
    demo.register(reached, "watcher", "a-password-of-the-watcher")

    def put(text: str, path: str) -> None:
        (tmp_path / "part").write_text(text)
        demo.client(reached, "watcher", tmp_path, "script", "put", str(tmp_path / "part"), path)

    demo_aiops.begin_job(reached, "watcher", put)
    job = f"users/watcher/jobs/{demo_aiops.JOB}"
    until(lambda: reached.must("GET", job)["state"] == "running")
    demo_aiops.break_job(put)
    until(lambda: reached.must("GET", job)["state"] == "error")
    log = (platform.root / "jobs" / "watcher" / demo_aiops.JOB / "log" / "job.log").read_text()
    assert demo_aiops.FAULT in log.splitlines()

"""`make demo` against a real platform, while its processes are killed with -9, one part after the other."""

from __future__ import annotations

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
    demo = Platform(tmp_path_factory.mktemp("demo") / "root")
    yield demo
    done = demo.call("--down")  # `up` itself may have been killed
    assert done.returncode == 0, done.stdout + done.stderr
    assert demo.everything() == []


@pytest.fixture
def platform(root):
    if root.process is None or root.process.poll() is not None:
        root.start()
    return root


class Demo:
    """One run of `make demo`."""

    def __init__(self, platform: Platform, slow: float, steps: int = 6):
        self.log = platform.root.with_name("demo.out")
        program = str(settings.BASE_DIR / "examples" / "demo.py")
        options = ["--epochs", "4", "--slow", str(slow), "--steps", str(steps)]
        self.process = begin([sys.executable, program, *options], self.log, env=platform.environment)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def check(self) -> None:
        """Wait until it ends, and check that it succeeded."""
        code = self.process.wait(DEMO_S)
        assert code == 0, self.log.read_text()[-3000:]


def test_the_demo_succeeds(shared):
    Demo(shared.running(), slow=0.1).check()


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
def test_the_whole_demo_succeeds(platform):
    """With the part in which a log model is trained, whose services, training and verdicts have their own tests, and
    the last one, which installs packages from the machine's index.
    """
    Demo(platform, slow=0.1, steps=15).check()

"""The servers of a test run are stopped with it, however it ends."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from django.conf import settings

from kernel.tests.nats_tools import until
from mlp.tests import servers
from mlp.tests.patience import LIMIT_S
from mlp.tests.servers import begin
from mlp.tests.tiers import later

PROBE = """
import os, pathlib, subprocess, time

from mlp.tests import servers

def test_probe():
    folder = pathlib.Path(os.environ["MLP_TEST_ROOT"])
    command = ["sh", "-c", 'trap "" TERM; touch "$0/stubborn"; while :; do sleep 0.1; done', str(folder)]
    servers.begin(command, folder / "stubborn.log")
    while not (folder / "stubborn").exists():
        time.sleep(0.01)
    pathlib.Path(os.environ["PROBE"]).write_text(str(folder))
    time.sleep(600)
"""
OURS = ("PYTEST_", "MLP_", "DATABASE_URL", "REDIS_URL", "NATS_URL")


class Run:
    """A parallel run of one test that starts a server and takes minutes."""

    def __init__(self, place: Path):
        place.mkdir()
        (place / "test_probe.py").write_text(PROBE)
        self.word, self.output = place / "probe", place / "output"
        environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        environment |= {"PROBE": str(self.word), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        plugins = ["-p", "xdist", "-p", "mlp.tests.servers"]
        command = [sys.executable, "-m", "pytest", "-c", os.devnull, *plugins, "-n", "1", str(place / "test_probe.py")]
        self.process = begin(command, self.output, cwd=settings.BASE_DIR, env=environment)

    def folder(self) -> Path:
        """Return the folder of its servers, once they run."""
        return Path(until(lambda: self.word.exists() and self.word.read_text(), 120, self.output.read_text))


@pytest.mark.long
@pytest.mark.parametrize("number", [later(signal.SIGTERM), signal.SIGKILL])
def test_servers_end_with_the_test_run(tmp_path, number):
    """Also those of its workers, and one that ignores SIGTERM."""
    run = Run(tmp_path / "run")
    folder, wanted = run.folder(), {"postgres", "valkey-server", "nats-server", "sh"}
    until(lambda: wanted <= set(living(folder).values()))
    run.process.send_signal(number)
    run.process.wait(LIMIT_S)
    until(lambda: not folder.exists(), 120, lambda: str(list(folder.rglob("*"))))
    until(lambda: not living(folder), 120, lambda: str(living(folder)))


def living(folder: Path) -> dict[int, str]:
    """Return the processes that work in the folder or refer to it: number to name."""
    named = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.fsencode(folder) in about(entry):
                named[int(entry.name)] = (entry / "comm").read_text().strip()
        except OSError:
            continue  # it has ended meanwhile
    return named


def about(entry: Path) -> bytes:
    return os.fsencode(os.readlink(entry / "cwd")) + (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()


def test_two_processes_never_get_the_same_port(monkeypatch):
    """Not before its server listens, either: it may need seconds until then."""
    ours, other = servers.free_port(), servers.free_port()
    os.close(servers._given.pop(other))
    first = 10000 + 600 * servers.slot()
    wanted = iter((ours - first, other - first))
    monkeypatch.setattr(servers, "_given", {})  # another process knows nothing of ours
    monkeypatch.setattr(servers.secrets, "randbelow", lambda _number: next(wanted))
    assert servers.free_port() == other

"""Forked parts behave like separate processes: descriptors, signals, exit status, threads, output."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from django.conf import settings

from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few
from supervision import forking
from supervision.forking import Child, run_python


@pytest.fixture(autouse=True)
def parallel_run(monkeypatch):
    """A worker of a parallel test run has threads that never end; they hold no lock of the tests."""
    monkeypatch.setattr(forking, "THREADS_LIMIT_S", 0.5)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.mark.parametrize(
    ("work", "status"),
    few(
        [
            (lambda: None, 0),
            (lambda: sys.exit(), 0),
            (lambda: sys.exit(3), 3),
            (lambda: sys.exit("no server"), 1),
            (lambda: 1 / 0, 1),
            (lambda: os.kill(os.getpid(), signal.SIGTERM), -signal.SIGTERM),
        ],
        2,
    ),
    ids=["returns", "exits", "with a number", "with a sentence", "fails", "is ended"],
)
def test_its_exit_status_is_that_of_a_program(log, work, status):
    assert Child(work, log).wait(LIMIT_S) == status


def test_its_output_is_in_its_log(log):
    def work() -> None:
        print("printed")
        sys.exit("no server")

    Child(work, log).wait(LIMIT_S)
    assert log.read_text() == "printed\nno server\n"
    assert log.stat().st_mode & 0o777 == 0o600


def test_it_inherits_no_files_and_signal_handlers(log, tmp_path):
    def work() -> None:
        handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGCHLD)]
        print(
            json.dumps(
                {
                    "inherited": os.path.exists(f"/proc/self/fd/{kept.fileno()}"),
                    "handled": [handler != signal.SIG_DFL for handler in handlers],
                    "input": os.read(0, 1).decode(),
                    "leads its session": os.getsid(0) == os.getpid(),
                }
            )
        )

    before = signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        with (tmp_path / "kept").open("w") as kept:
            Child(work, log).wait(LIMIT_S)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert json.loads(log.read_text()) == {
        "inherited": False,
        "handled": [False, False],
        "input": "",
        "leads its session": True,
    }


def test_it_ends_as_python_ends(log):
    """Threads that are not daemons are joined, then the exit functions run."""

    def work() -> None:
        go_on = threading.Event()
        threading.Thread(target=lambda: (go_on.wait(LIMIT_S), print("thread"))).start()
        atexit.register(print, "exit function")
        print("main")
        go_on.set()

    Child(work, log).wait(LIMIT_S)
    assert log.read_text().splitlines() == ["main", "thread", "exit function"]


HOLDS_A_LOCK = """
import itertools, sys, threading
from pathlib import Path
from supervision.forking import Child

lock, held, release = threading.Lock(), threading.Event(), threading.Event()

def hold():
    with lock:
        held.set()
        release.wait()

threads, looks = threading.active_count, itertools.count()

def counted():
    if next(looks) == 3:
        release.set()
    return threads()

threading.active_count = counted
threading.Thread(target=hold, daemon=True).start()
held.wait()
sys.exit(Child(lambda: sys.exit(0 if lock.acquire(timeout=0) else 7), Path(sys.argv[1])).wait(60))
"""


def test_it_forks_while_no_thread_can_hold_a_lock(log):
    """In a process of its own, whose other thread ends after some looks at how many there are."""
    command = [sys.executable, "-c", HOLDS_A_LOCK, str(log)]
    assert subprocess.run(command, cwd=settings.BASE_DIR, timeout=2 * LIMIT_S).returncode == 0


RUNS_A_SCRIPT = """
import os, sys
from pathlib import Path
from supervision.forking import Child, run_python

os.environ["FIRST"] = "changed since"
sys.exit(Child(lambda: run_python(sys.argv[2:]), Path(sys.argv[1])).wait(60))
"""


def test_it_runs_files_and_modules_under_their_own_names(log, tmp_path):
    (tmp_path / "script.py").write_text(
        "import sys\nfrom pathlib import Path\n"
        "print(__name__, sys.argv, Path('/proc/self/cmdline').read_bytes().rstrip(b'\\0').decode())\n"
    )
    command = [sys.executable, str(tmp_path / "script.py"), "--port", "1"]
    started = [sys.executable, "-c", RUNS_A_SCRIPT, str(log), *command]
    subprocess.run(started, cwd=settings.BASE_DIR, env={"FIRST": "1", **os.environ}, timeout=2 * LIMIT_S, check=True)
    assert log.read_text() == f"__main__ {command[1:]} {' '.join(command)}\n"
    Child(lambda: run_python([sys.executable, "-m", "calendar", "2026", "11"]), log).wait(LIMIT_S)
    assert "November 2026" in log.read_text()

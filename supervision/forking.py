"""Processes that begin as a fork of one which has the platform's code loaded.

Loading Python with Django and the platform takes about a second of processor time and 90 MiB of memory. `up` does so
once: supervisord is a fork of `up`, and each part in Python is a fork of supervisord. What none of them changes they
share.

A fork has its parent's stack below it. So it must never return there: `Child` ends it when its function has ended.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

from setproctitle import getproctitle, setproctitle

THREADS_LIMIT_S = 10
getproctitle()  # it finds the arguments in memory by the first environment variable, as long as nobody has changed that


def load(modules: Iterable[str]) -> None:
    """Import what the forks share. It stays, so no garbage is looked for in it."""
    gc.disable()
    for module in modules:
        importlib.import_module(module)
    gc.freeze()
    gc.enable()


class Child:
    """A forked process of this one that runs `work` in a session of its own and then ends.

    Its input is empty, its output goes to the file `log`, and of the parent's other descriptors it has none.
    """

    def __init__(self, work: Callable[[], object], log: Path):
        self.status: int | None = None
        wait_for_threads()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            finish(lambda: _run_apart(work, log))

    def poll(self) -> int | None:
        """Return the exit status, -N after signal N; None while the process runs."""
        if self.status is None:
            pid, raw = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(raw) if pid else None
        return self.status

    def wait(self, limit_s: float) -> int | None:
        """Wait for its end, at most so long, and return what `poll` returns."""
        end = time.monotonic() + limit_s
        while self.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        return self.status


def _run_apart(work: Callable[[], object], log: Path) -> None:
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for stream, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
        os.dup2(descriptor, stream)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    like_new()
    work()


def wait_for_threads() -> None:
    """Wait until this is the only thread: what others hold at a fork stays locked in the child for ever.

    Health checks leave threads behind that wait for a server; each has a time limit.
    """
    end = time.monotonic() + THREADS_LIMIT_S
    while threading.active_count() > 1 and time.monotonic() < end:
        time.sleep(0.02)


def like_new() -> None:
    """Set what an exec would have set: default signal handlers, no exit functions, unbuffered output."""
    gc.freeze()  # what the parent has left is neither looked at nor, with files that are not ours, closed
    atexit._clear()  # as in the forks of multiprocessing
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python does
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=True)


def run_python(command: list[str]) -> None:
    """Run `python -m MODULE …` or `python FILE …` in this process."""
    setproctitle(" ".join(command))
    if command[1] == "-m":
        sys.argv = command[2:]
        runpy.run_module(command[2], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command[1:]
        runpy.run_path(command[1], run_name="__main__")


def finish(work: Callable[[], object]) -> NoReturn:
    """Run `work` and end the process as Python ends: threads joined, exit functions run, the status of SystemExit."""
    status = 1
    try:
        status = _status_of(work)
        threading._shutdown()  # these two as in the forks of multiprocessing; there is no public way
        atexit._run_exitfuncs()
    finally:
        os._exit(status)


def _status_of(work: Callable[[], object]) -> int:
    try:
        work()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:  # nothing may get to the parent's stack
        traceback.print_exc()
        return 1
    return 0

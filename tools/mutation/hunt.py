"""The pytest plugin of `make mutants`: collects once, makes the database once, then forks a process for each fault.

The servers stay up, and so does the test database. A fault is tried by the tests that run its lines, those that have
killed mutants nearby first, then the quickest; the first that fails ends it. A process that takes much longer than its
tests take without the fault is killed, which counts as killed, and what it has left in the database is removed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import select
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import django.test.utils
import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, connections
from pytest_django.plugin import blocking_manager_key

from . import graft
from .mutants import Mutant, mutants_of

PATIENCE_S, PATIENCE_TIMES = 20.0, 4.0
WHOLE_S = 1800
TRIES = 10


class Hunt:
    """Tries the mutants of one module; `result` is what came of it."""

    def __init__(self, module: str, sample: int | None, seed: int, say: Callable[[str], None]):
        self.module, self.sample, self.seed, self.say = module, sample, seed, say
        self.path = Path(module.replace(".", "/") + ".py").absolute()
        self.killers: Counter[str] = Counter()
        self.failed: list[str] = []
        self.result: dict = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session) -> bool:
        if session.testsfailed or not session.items:
            raise pytest.UsageError("the tests could not be collected")
        blocker = session.config.stash[blocking_manager_key]
        with blocker.unblock():
            databases = django.test.utils.setup_databases(verbosity=0, interactive=False)
            connections.close_all()
        keep, django.test.utils.setup_databases = django.test.utils.setup_databases, lambda **_: []
        drop, django.test.utils.teardown_databases = django.test.utils.teardown_databases, lambda *_, **__: None
        try:
            with blocker.unblock():
                self._hunt(session)
        finally:
            django.test.utils.setup_databases, django.test.utils.teardown_databases = keep, drop
            with blocker.unblock():
                drop(databases, verbosity=0)
        return True

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed:
            self.failed.append(f"{report.nodeid} ({report.when})")

    def _hunt(self, session) -> None:
        begun = time.monotonic()
        all_mutants = mutants_of(self.path)
        chosen = all_mutants
        if self.sample and self.sample < len(all_mutants):
            chosen = sorted(random.Random(self.seed).sample(all_mutants, self.sample), key=lambda mutant: mutant.line)
        runs = forked(lambda: self._trace(session), WHOLE_S)
        if runs is None:
            raise pytest.UsageError("the tests did not end without any fault")
        broken = [name for name, run in runs.items() if run["failed"]]
        self.say(f"{self.module}: {len(all_mutants)} mutants, {len(chosen)} to try, {len(runs)} tests")
        if broken:
            self.say(f"  fail without any fault, so left out: {', '.join(broken)}")
        by_test = {name: (run["seconds"], set(run["lines"])) for name, run in runs.items() if not run["failed"]}
        counts = {"of": len(all_mutants), "tried": 0, "killed": 0}
        self.result = {"module": self.module, "seed": self.seed, **counts, "survivors": []}
        for mutant in chosen:
            end, why = self._try(session, mutant, by_test)
            self.result["tried"] += 1
            self.result["killed"] += end != "survived"
            self.result["seconds"] = round(time.monotonic() - begun)
            self.say(f"  {end:8} {mutant.name}  {why}")
            if end == "survived":
                self.result["survivors"].append({"name": mutant.name, "diff": mutant.diff(), "why": why})
                self.say(mutant.diff())

    def _try(self, session, mutant: Mutant, by_test: dict) -> tuple[str, str]:
        start, end = mutant.lines
        names = [n for n, (_, lines) in by_test.items() if not end or any(start <= line <= end for line in lines)]
        if not names:
            return "survived", "no test runs it"
        names.sort(key=lambda name: (-self.killers[name], by_test[name][0]))
        limit = PATIENCE_S + PATIENCE_TIMES * sum(by_test[name][0] for name in names)
        outcome = forked(lambda: self._run(session, mutant, names), limit)
        if outcome is None:
            clean_database()
            return "killed", "by the time limit"
        if outcome["failed"]:
            self.killers[outcome["failed"].partition(" (")[0]] += 1
            return "killed", f"by {outcome['failed']}"
        return "survived", f"{len(names)} tests"

    def _run(self, session, mutant: Mutant, names: list[str]) -> dict:
        """Run the tests in this process with the fault in; the name of the first that fails, or ""."""
        quiet(session)
        try:
            graft.install(importlib.import_module(self.module), mutant.source)
        except Exception as problem:
            return {"failed": f"loading: {problem!r}"}
        items = {item.nodeid: item for item in session.items}
        for name, following in zip(names, [*names[1:], None], strict=True):
            self._run_test(session, items[name], items.get(following))
            if self.failed:
                return {"failed": self.failed[0]}
        return {"failed": ""}

    def _trace(self, session) -> dict:
        """Run all tests without a fault; of each: how long it takes, whether it fails, which of our lines it runs."""
        quiet(session)
        target, lines = str(self.path), set()

        def inner(frame, event, _):
            lines.add(frame.f_lineno)
            return inner

        def outer(frame, event, _):
            return inner(frame, event, _) if frame.f_code.co_filename == target else None

        runs: dict = defaultdict(dict)
        threading.settrace(outer)
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            lines.clear()
            begun = time.monotonic()
            sys.settrace(outer)
            self._run_test(session, item, following)
            sys.settrace(None)
            seconds = time.monotonic() - begun
            runs[item.nodeid] = {"seconds": seconds, "failed": bool(self.failed), "lines": sorted(lines)}
            self.failed.clear()
        return runs

    @staticmethod
    def _run_test(session, item, following) -> None:
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def quiet(session) -> None:
    """Let pytest's own words of this process go nowhere."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    terminal._tw._file = open(os.devnull, "w")  # noqa: SIM115 (the process ends soon)


def clean_database() -> None:
    """Remove what a killed process has left: its connections, with their locks, and its rows.

    Tried again while the server does not answer in time, as on a machine with much other work.
    """
    for _ in range(TRIES - 1):
        with contextlib.suppress(OperationalError):
            _clean_database()
            return
        connections.close_all()
    _clean_database()


def _clean_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    call_command("flush", verbosity=0, interactive=False)
    connections.close_all()


def forked(work: Callable[[], dict], limit_s: float) -> dict | None:
    """Return what `work` returns in a process of its own, None where it was killed after `limit_s` or died."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.close(readable)
        try:
            data = json.dumps(work()).encode()
            with os.fdopen(writable, "wb") as pipe:
                pipe.write(data)
        finally:
            os._exit(0)
    os.close(writable)
    data, end = b"", time.monotonic() + limit_s
    with os.fdopen(readable, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], max(0, end - time.monotonic()))[0]:
            piece = pipe.read(1 << 16)
            data += piece
            if not piece:
                break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # also what its tests have started
    os.waitpid(pid, 0)
    return json.loads(data) if data else None

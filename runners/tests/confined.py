"""Runners of every kind of confinement that this machine offers, for the tests of containment.

As root each level is tried with a user of its own; and once more as an ordinary user, who has neither root's rights nor
control groups: that runner's `start` and `stop` are called in a process of that user, everything else by us. All tests
share that process, since its imports take longer than most runs.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from django.conf import settings

from mlp.tests.tiers import later
from runners import confine
from runners.base import Mount, RunSpec
from runners.errors import RunnerError
from runners.local import LocalRunner
from runners.shim import landlock

from .helpers import end_of

USER = 1_899_999_999
# The interpreter of this test run may be closed to other users; the system's is not.
PYTHON = "/usr/bin/python3"
KNOWN = "MLP_TEST_CONFINEMENTS"
SERVE = """
import pickle, sys, traceback
from dataclasses import replace
from runners import confine
from runners.local import LocalRunner
while True:
    try:
        folder, level, options, verb, arguments = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    problem = ""
    try:
        confined = replace(confine.decide(level), route=options.pop("route", ()), shm=options.pop("shm", True))
        getattr(LocalRunner(folder, confined, **options), verb)(*arguments)
    except Exception:
        problem = traceback.format_exc()
    pickle.dump(problem, sys.stdout.buffer)
    sys.stdout.flush()
"""


def as_user(code: str) -> dict:
    """Return the options of a process of the ordinary user that runs `code` with our modules and packages."""
    path = os.pathsep.join([str(settings.BASE_DIR), *(part for part in sys.path if part.endswith("-packages"))])
    return {
        "args": [PYTHON, "-c", code], "cwd": "/", "user": USER, "group": USER, "extra_groups": [],
        "env": {"PYTHONPATH": path, "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"},
    }  # fmt: skip


class OrdinaryUser:
    """The process of that user, started by its first call."""

    def __init__(self):
        self.process: subprocess.Popen | None = None

    def call(self, *order) -> None:
        """Have a runner's method called there. Raises RunnerError with what it raised."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(**as_user(SERVE), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        pickle.dump(order, self.process.stdin)
        self.process.stdin.flush()
        if problem := pickle.load(self.process.stdout):
            raise RunnerError(problem)

    def end(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.communicate()


ordinary_user = OrdinaryUser()


class UsersRunner(LocalRunner):
    """Starts and stops runs as an ordinary user of this machine."""

    def __init__(self, folder: Path, level: str, **options):
        super().__init__(folder, confine.Confinement(level), **options)
        self.level, self.options = level, options
        folder.mkdir(parents=True, exist_ok=True)
        os.chown(folder, USER, USER)

    def start(self, spec: RunSpec) -> None:
        self.call("start", spec)

    def stop(self, name: str, grace_s: float = 10) -> None:
        self.call("stop", name, grace_s)

    def call(self, verb: str, *arguments) -> None:
        ordinary_user.call(self.folder, self.level, self.options, verb, arguments)

    @property
    def python(self) -> str:
        return PYTHON


def kinds() -> list[str]:
    """Return the names of the kinds of confinement that can be tested here.

    Asked once in a test run: the processes beside the first one have the answer in their environment.
    """
    if KNOWN not in os.environ:
        os.environ[KNOWN] = ";".join(possible())
    return os.environ[KNOWN].split(";")


def possible() -> list[str]:
    names = []
    for level in ("bwrap", "landlock", "none"):
        if level == "landlock" and not landlock.version():
            continue
        if level == "bwrap" and confine.decide().isolation != "bwrap":
            continue
        names.append(level)
        if os.geteuid() == 0:
            if confine.decide().cgroup:
                names.append(f"{level}, no control groups")
            if level != "none" and users_can():
                names.append(f"{level}, ordinary user")
    return names


def users_can() -> bool:
    """Whether another user of this machine can read our code, its packages and an interpreter of the same version."""
    ours = str(settings.BASE_DIR / "runners" / "base.py")
    code = (
        "import importlib.util, sys\n"
        f"open({ours!r}).close()\n"
        f"same = sys.version_info[:2] == {tuple(sys.version_info[:2])}\n"
        "sys.exit(not (same and importlib.util.find_spec('django')))"
    )
    try:
        return not subprocess.run(**as_user(code), capture_output=True).returncode
    except OSError:
        return False


def make(kind: str, folder: Path, **options) -> LocalRunner:
    level, _, how = kind.partition(", ")
    if how == "ordinary user":
        return UsersRunner(folder, level, **options)
    decided = confine.decide(level)
    groups = {} if how else decided.cgroup
    return LocalRunner(folder, replace(decided, cgroup=groups), **options)


ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8"}
TRY = """
import json, os, signal
def attempt(function, *values):
    try:
        return [True, repr(function(*values))[:200]]
    except BaseException as error:
        return [False, type(error).__name__]
def read(path): return open(path, errors='replace').read()
def write(path): return open(path, 'a').write('x')
"""


class World:
    """A storage root with files of two owners and a secret, and a runner on it."""

    def __init__(self, kind: str, root: Path):
        self.kind, self.root = kind, root
        self.processes: list[subprocess.Popen] = []
        self.runner = make(kind, root / "run" / "runs", disk_mib=2000, reserve_mib=1)
        for path in ("jobs/alice/fit", "jobs/bob/fit", "datasets/alice/digits", "datasets/bob/theirs", "run"):
            (root / path).mkdir(parents=True, exist_ok=True)
        self.workspace, self.dataset = root / "jobs/alice/fit", root / "datasets/alice/digits"
        (self.dataset / "x.txt").write_text("abc")
        self.forbidden = [root / "secret-key", root / "jobs/bob/fit/model", root / "datasets/bob/theirs/y.txt"]
        for path in self.forbidden:
            path.write_text("forbidden")
        for path in (root, *root.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)
            if "ordinary user" in kind:
                os.chown(path, USER, USER)

    def spec(self, code: str, name: str = "job-1-1", owner: int = 7, **fields) -> RunSpec:
        values = {
            "command": [self.runner.python, "-I", "-c", TRY + code],
            "cwd": self.workspace,
            "environment": ENVIRONMENT,
            "log": self.workspace / "log" / "job.log",
            "mounts": (Mount(self.dataset, "/datasets/digits"),),
        }
        return RunSpec(name=name, owner=owner, **values | fields)

    def run(self, code: str, seconds: float = 30, **fields):
        self.runner.start(self.spec(code, **fields))
        return end_of(self.runner, fields.get("name", "job-1-1"), seconds)

    def answer(self, code: str, **fields):
        """Run the script, which must succeed; return its output, parsed as JSON."""
        status = self.run(code, **fields)
        assert status.succeeded, (status, self.log)
        return json.loads(self.log)

    def others_process(self) -> int:
        """A process of the ordinary user outside of the run."""
        process = subprocess.Popen(["sleep", "60"], user=USER, group=USER, extra_groups=[])
        self.processes.append(process)
        return process.pid

    @property
    def log(self) -> str:
        return (self.workspace / "log" / "job.log").read_text()


KINDS = kinds()
FILES = [kind for kind in KINDS if not kind.startswith("none")]  # those that keep files from a run


def _tried(kinds_: list[str], always: tuple[str, ...]):
    """Parametrize by kinds, of which those are tried always, where this machine has them, and the others in the long
    tier.
    """
    here = [kind for kind in kinds_ if kind in always] or kinds_[:1]
    cases = [kind if kind in here else later(kind) for kind in kinds_]
    return pytest.mark.parametrize("world", cases, indirect=True)


# Each isolation, with the rights of root and without; limits hardly depend on it, but on how they are counted.
each = _tried(KINDS, ("bwrap", "landlock, ordinary user", "none"))
each_that_is_limited = _tried(KINDS, ("bwrap", "landlock, no control groups"))
each_that_keeps_files = _tried(FILES, ("bwrap", "landlock, ordinary user"))


def processes_in(folder: Path) -> list[int]:
    """Return the processes whose working directory it is, under any path."""
    wanted, pids = folder.stat(), []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                here = os.stat(f"/proc/{entry}/cwd")
                dead = Path(f"/proc/{entry}/stat").read_bytes().rsplit(b")", 1)[1].split()[0] in b"ZX"
            except OSError:
                continue
            if (here.st_dev, here.st_ino) == (wanted.st_dev, wanted.st_ino) and not dead:
                pids.append(int(entry))
    return pids

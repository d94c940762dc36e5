"""`make` prepares .runs-venv and .venv when necessary and leaves them alone otherwise: the real Makefile and tools, in
a copy.

Their Python is a wrapper of the one that runs these tests; nothing is installed, since all that is required is there.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path

import pytest
from django.conf import settings

from mlp.tests.slow import SLOW
from supervision.tests.shared import VISITORS

BOOTSTRAP = "tools/bootstrap.py"
RUNS, PLATFORM, DEV = "runs", "venv", "venv-dev"  # the targets of make, and what both build on


class Copy:
    """A folder with the Makefile, whose .venv and .runs-venv are links to folders beside it."""

    def __init__(self, folder: Path):
        self.folder = folder / "copy"
        self.venv, self.runs = folder / "venv", folder / "runs-venv"
        self.folder.mkdir()
        self.pythons = [venv / "bin" / "python" for venv in (self.venv, self.runs)]
        for name, venv in ((".venv", self.venv), (".runs-venv", self.runs)):
            (venv / "bin").mkdir(parents=True)
            (self.folder / name).symlink_to(venv)
        (self.folder / "requirements-runs.txt").write_text(f"numpy=={version('numpy')}\n")
        (self.folder / "requirements.txt").write_text(f"django=={version('django')}\n")
        (self.folder / "requirements-dev.txt").write_text(f"-r requirements.txt\npytest=={version('pytest')}\n")
        shutil.copy(settings.BASE_DIR / "Makefile", self.folder)
        shutil.copytree(settings.BASE_DIR / "tools", self.folder / "tools")
        self.stamps = {RUNS: self.runs / ".ready", PLATFORM: self.venv / ".ready", DEV: self.venv / ".ready-dev"}
        self.called = folder / "called"
        self.recorder = self.program(folder / "recorder", f'echo "$@" >>{self.called}')
        self.wrap(f'exec {sys.executable} "$@"')
        self.write_stamp(RUNS, "requirements-runs.txt")
        self.write_stamp(PLATFORM, "requirements.txt", "requirements-runs.txt")
        self.write_stamp(DEV, "requirements-dev.txt", "requirements.txt", "requirements-runs.txt")

    def wrap(self, line: str) -> None:
        for python in self.pythons:
            self.program(python, line)

    def write_stamp(self, target: str, *files: str) -> None:
        content = b"".join((self.folder / name).read_bytes() for name in files)
        self.stamps[target].write_text(f"{hashlib.sha256(content).hexdigest()} {platform.python_version()}\n")

    @staticmethod
    def program(path: Path, line: str) -> Path:
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
        return path

    def make(self, target: str, python: str | Path) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
        command = ["make", target, f"PYTHON={python}"]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr

    def bootstraps(self, target: str) -> list[str]:
        """Return what `make {target}` runs the Python for that would repair .venv."""
        self.make(target, self.recorder)
        return self.called.read_text().splitlines() if self.called.exists() else []


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path)


@pytest.mark.parametrize("target", [PLATFORM, DEV])
def test_a_venv_that_is_ready_is_left_alone(copy, target):
    before = copy.stamps[target].stat().st_mtime_ns
    os.utime(copy.folder / "requirements.txt")  # its age says nothing
    assert copy.bootstraps(target) == []
    assert copy.stamps[target].stat().st_mtime_ns == before


def no_stamp(copy: Copy) -> None:
    for stamp in copy.stamps.values():
        stamp.unlink()


def other_requirements(copy: Copy) -> None:
    (copy.folder / "requirements.txt").write_text("django\n")


def no_runs(copy: Copy) -> None:
    shutil.rmtree(copy.runs)


def other_packages_of_runs(copy: Copy) -> None:
    (copy.folder / "requirements-runs.txt").write_text("numpy\n")


def upgraded_python(copy: Copy) -> None:
    for stamp in copy.stamps.values():
        stamp.write_text(stamp.read_text().split()[0] + " 3.11.0\n")


def python_without_its_packages(copy: Copy) -> None:
    copy.wrap(f'exec {sys.executable} -S "$@"')


def python_is_gone(copy: Copy) -> None:
    for python in copy.pythons:
        python.unlink()
        python.symlink_to("/nonexistent/python3")


def python_of_runs_is_gone(copy: Copy) -> None:
    copy.pythons[1].unlink()


CHANGES = [
    *(no_stamp, other_requirements, no_runs, other_packages_of_runs, upgraded_python),
    *(python_without_its_packages, python_is_gone, python_of_runs_is_gone),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_venv_that_is_not_ready_is_repaired(copy, change):
    change(copy)
    assert copy.bootstraps(PLATFORM) == [BOOTSTRAP]
    copy.called.unlink()
    assert copy.bootstraps(DEV) == [f"{BOOTSTRAP} dev"]


def test_development_packages_are_not_needed_to_run(copy):
    (copy.folder / "requirements-dev.txt").write_text("-r requirements.txt\n")
    copy.stamps[DEV].unlink()
    assert copy.bootstraps(PLATFORM) == []
    assert copy.bootstraps(DEV) == [f"{BOOTSTRAP} dev"]


def site_packages(venv: Path) -> Path:
    return venv / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"


@pytest.mark.long
def test_the_platform_sees_the_packages_of_runs_behind_its_own_and_they_see_none_of_its(copy):
    no_stamp(copy)
    copy.make(PLATFORM, sys.executable)
    assert (site_packages(copy.venv) / "runs.pth").read_text() == f"{site_packages(copy.folder / '.runs-venv')}\n"
    assert not list(copy.runs.rglob("*.pth"))


@pytest.mark.long
def test_a_package_whose_installation_was_killed_is_installed_again(copy):
    """pip writes INSTALLER last; without it the record says that a package is there that is not whole."""
    half, whole = (site_packages(copy.runs) / f"{name}-1.0.dist-info" for name in ("half", "whole"))
    for record in (half, whole):
        record.mkdir(parents=True)
        (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {record.name[:-13]}\nVersion: 1.0\n")
    (whole / "INSTALLER").write_text("pip\n")
    no_stamp(copy)
    copy.make(PLATFORM, sys.executable)
    assert (half.exists(), whole.exists()) == (False, True)


@pytest.mark.long
def test_an_installation_for_the_user_alone_that_the_shell_asks_for_is_none(copy, monkeypatch):
    """pip refuses one in a virtual environment."""
    monkeypatch.setenv("PIP_USER", "1")
    no_stamp(copy)
    copy.make(PLATFORM, sys.executable)
    assert copy.bootstraps(PLATFORM) == []


@pytest.mark.long
def test_after_an_upgrade_it_is_ready_again(copy):
    right = copy.stamps[PLATFORM].read_text()
    upgraded_python(copy)
    copy.make(PLATFORM, sys.executable)
    assert copy.stamps[PLATFORM].read_text() == right
    assert copy.bootstraps(PLATFORM) == []


@pytest.mark.long
def test_an_installation_is_for_running_too_and_without_the_tests_of_large_packages(copy):
    right = {target: stamp.read_text() for target, stamp in copy.stamps.items()}
    packages = site_packages(copy.runs)
    removed = [packages / "numpy/tests/test_one.py", packages / "pandas/core/tests/data/table.csv"]
    kept = [packages / "numpy/testing/one.py", packages / "pandas/core/tests.py", packages / "another/tests/one.py"]
    for file in removed + kept:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    no_stamp(copy)
    copy.make(DEV, sys.executable)
    assert {target: stamp.read_text() for target, stamp in copy.stamps.items()} == right
    assert copy.bootstraps(PLATFORM) == copy.bootstraps(DEV) == []
    assert not any(file.parent.exists() for file in removed)
    assert all(file.exists() for file in kept)


def test_each_pattern_of_slow_files_names_one():
    folders = [folder for folder in settings.BASE_DIR.iterdir() if folder.is_dir() and folder.name[0] != "."]
    files = [str(path.relative_to(settings.BASE_DIR)) for folder in folders for path in folder.rglob("test_*.py")]
    for pattern in SLOW:
        assert any(fnmatch(file, pattern) for file in files), pattern


def test_every_file_that_visits_the_shared_platform_is_among_its_visitors():
    """Else a second one would be started, in another worker."""
    asking = re.compile(r"^def \w+\((\w+, )*shared[,:)]", re.MULTILINE)
    folders = [folder for folder in settings.BASE_DIR.iterdir() if folder.is_dir() and folder.name[0] != "."]
    files = [path for folder in folders for path in folder.rglob("test_*.py") if asking.search(path.read_text())]
    assert {str(path.relative_to(settings.BASE_DIR)) for path in files} == set(VISITORS)

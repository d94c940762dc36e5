"""`make` prepares .venv when it must and leaves it alone when it need not: with the real Makefile and tools, in a copy.

.venv's Python stands for the one that runs these tests; nothing is installed, since all that is required is there.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from django.conf import settings

BOOTSTRAP = "tools/bootstrap.py"


class Copy:
    """A folder with the Makefile, whose .venv is a link to one beside it."""

    def __init__(self, folder: Path):
        self.folder = folder / "copy"
        self.venv = folder / "venv"
        (self.venv / "bin").mkdir(parents=True)
        self.folder.mkdir()
        (self.folder / ".venv").symlink_to(self.venv)
        (self.folder / "requirements.txt").write_text(f"django=={version('django')}\n")
        shutil.copy(settings.BASE_DIR / "Makefile", self.folder)
        shutil.copytree(settings.BASE_DIR / "tools", self.folder / "tools")
        self.stamp = self.venv / ".ready"
        self.python = self.venv / "bin" / "python"
        self.called = folder / "called"
        self.recorder = self.program(folder / "recorder", f'echo "$@" >>{self.called}')
        self.program(self.python, f'exec {sys.executable} "$@"')
        requirements = hashlib.sha256((self.folder / "requirements.txt").read_bytes()).hexdigest()
        self.stamp.write_text(f"{requirements} {platform.python_version()}\n")

    @staticmethod
    def program(path: Path, line: str) -> Path:
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
        return path

    def make(self, python: str | Path) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
        command = ["make", "venv", f"PYTHON={python}"]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr

    def asked_for(self) -> list[str]:
        """What `make venv` runs the Python for that would make .venv anew."""
        self.make(self.recorder)
        return self.called.read_text().splitlines() if self.called.exists() else []


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path)


def test_what_is_right_is_left_alone(copy):
    before = copy.stamp.stat().st_mtime_ns
    os.utime(copy.folder / "requirements.txt")  # its age says nothing
    assert copy.asked_for() == []
    assert copy.stamp.stat().st_mtime_ns == before


def no_stamp(copy: Copy) -> None:
    copy.stamp.unlink()


def other_requirements(copy: Copy) -> None:
    (copy.folder / "requirements.txt").write_text("django\n")


def upgraded_python(copy: Copy) -> None:
    copy.stamp.write_text(copy.stamp.read_text().split()[0] + " 3.11.0\n")


def python_without_its_packages(copy: Copy) -> None:
    copy.program(copy.python, f'exec {sys.executable} -S "$@"')


def python_is_gone(copy: Copy) -> None:
    copy.python.unlink()
    copy.python.symlink_to("/nonexistent/python3")


CHANGES = [no_stamp, other_requirements, upgraded_python, python_without_its_packages, python_is_gone]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_right_is_made_anew(copy, change):
    change(copy)
    assert copy.asked_for() == [BOOTSTRAP]


def test_after_an_upgrade_it_is_right_again(copy):
    right = copy.stamp.read_text()
    upgraded_python(copy)
    copy.make(sys.executable)
    assert copy.stamp.read_text() == right
    assert copy.asked_for() == []

"""The Python of runs is not the platform's: which one it is, what is wrong with one, what runs see of the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from dataclasses import replace
from pathlib import Path

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

import runners
from kernel import storage
from kernel.environment import default_run_python
from runners import confine, interpreter, tail
from runners.local import LocalRunner

from .helpers import end_of, spec


@pytest.fixture(scope="module")
def empty(tmp_path_factory) -> str:
    """Return the interpreter of an environment without packages, that every user may enter."""
    home = tmp_path_factory.mktemp("runs") / "venv"
    venv.create(home, symlinks=True)
    for folder in (home.parent, home.parent.parent, home.parent.parent.parent):
        folder.chmod(folder.stat().st_mode | 0o011)
    return str(home / "bin" / "python")


SEES = """
import importlib.util, json, os, sys
found = [name for name in ("django", "numpy", "pip") if importlib.util.find_spec(name)]
def readable(path):
    try:
        return bool(open(path).close)
    except OSError:
        return False
print(json.dumps([sys.prefix, found, [path for path in {paths!r} if readable(path)]]))
"""


def test_a_run_sees_its_own_interpreter_and_not_the_platforms_packages(empty, tmp_path):
    confinement = confine.decide(python=empty)
    runner = LocalRunner(tmp_path / "runs", confinement)
    code = SEES.format(paths=[str(Path(__import__(name).__file__)) for name in ("django", "psycopg")])
    runner.start(spec(tmp_path, "", command=[runner.python, "-c", code], owner=7))
    assert end_of(runner).succeeded, tail(tmp_path / "job-1-1.log")
    prefix, found, seen = json.loads((tmp_path / "job-1-1.log").read_text())
    assert (prefix, found) == (str(Path(empty).parents[1]), [])
    assert seen == [] or confinement.isolation == "none"


def test_what_it_has_is_asked_of_itself(empty):
    known = interpreter.of(empty)
    assert (known.prefixes[0], known.executable) == (str(Path(empty).parents[1]), os.path.realpath(empty))
    assert [Path(path).name for path in known.packages] == ["site-packages"]
    assert known.version_of("django") is None
    assert interpreter.of(sys.executable).version_of("Django") == __import__("django").__version__


def test_one_without_the_packages_of_runs_is_refused_with_the_command_that_installs_them(empty, settings, tmp_path):
    settings.RUN_PYTHON, settings.MLP_ROOT, settings.MLP_RUNNER = empty, tmp_path, "local"
    with pytest.raises(ImproperlyConfigured) as refused:
        runners.get()
    words = str(refused.value)
    assert words.startswith(f"MLP_RUN_PYTHON: {empty} lacks httptools, numpy, ")
    assert words.endswith(f"run: {empty} -m pip install -r {settings.BASE_DIR}/requirements-runs.txt")


def program(path: Path, line: str) -> str:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return str(path)


OLD = {**interpreter.facts.facts([]), "release": "3.9.2"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"echo '{json.dumps(OLD)}'", "is Python 3.9.2, 3.11 or newer is required"),
        ("echo broken >&2; exit 3", "cannot be used as the Python of runs: broken"),
        ("echo no JSON", "cannot be used as the Python of runs"),
        ("echo '{}'", "cannot be used as the Python of runs: it printed '{}'"),
        ("echo 1", "cannot be used as the Python of runs: it printed '1'"),
        ("exit 4", "cannot be used as the Python of runs: exit code 4"),
    ],
)
def test_what_is_no_python_for_runs_is_refused_by_the_name_of_the_setting(tmp_path, line, words):
    with pytest.raises(ImproperlyConfigured, match=f"MLP_RUN_PYTHON: .*{words}"):
        interpreter.of(program(tmp_path / "python", line)).require_usable()


def test_a_program_that_runs_do_not_see_is_refused_with_the_one_that_they_see(empty, tmp_path):
    """Such as a shim of pyenv, or a link outside of the environment."""
    shim = program(tmp_path / "python", f'exec {empty} "$@"')
    words = f"MLP_RUN_PYTHON: {shim} starts the Python of .*; name its own program, such as {Path(empty).parent}/python"
    with pytest.raises(ImproperlyConfigured, match=words):
        replace(interpreter.of(shim), missing=()).require_usable()
    replace(interpreter.of(empty), missing=()).require_usable()


@pytest.mark.parametrize("value", ["python3", "/nonexistent/python", "/etc/passwd", "/usr"])
def test_a_setting_that_names_no_program_is_refused(value):
    command = [sys.executable, "-c", "import mlp.run_settings"]
    given = {"cwd": settings.BASE_DIR, "env": os.environ | {"MLP_RUN_PYTHON": value}}
    done = subprocess.run(command, **given, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith(
        f"MLP_RUN_PYTHON must be the absolute path of a program, not {value!r}"
    )


def test_one_in_the_root_folder_hides_no_path_of_users(settings):
    settings.RUN_PYTHON = "/python3"
    assert storage.without_root("/usr/lib/python3/x.py") == "/usr/lib/python3/x.py"


def test_the_default_is_the_environment_of_runs_where_there_is_one(tmp_path):
    assert default_run_python(tmp_path) == sys.executable
    (tmp_path / ".runs-venv" / "bin").mkdir(parents=True)
    (tmp_path / ".runs-venv" / "bin" / "python").symlink_to("/nonexistent/python3")
    assert default_run_python(tmp_path) == sys.executable
    (tmp_path / ".runs-venv" / "bin" / "python").unlink()
    made = program(tmp_path / ".runs-venv" / "bin" / "python", "exit 0")
    assert default_run_python(tmp_path) == made

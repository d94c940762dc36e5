"""The lock files agree with the requirements: the same pins, everything they depend on, a hash for each."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from django.conf import settings
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from operations.backup.bucket import open_place
from operations.backup.places import BackupError
from tools import ready

ROOT = Path(settings.BASE_DIR)
UNLOCKED = "torch"
EXTRAS = ("kafka", "ldap", "opensearch", "s3")
LOCKED = {
    "requirements.lock": ("requirements.txt", *(f"requirements-{extra}.txt" for extra in EXTRAS)),
    "requirements-runs.lock": ("requirements-runs.txt",),
}
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def requirements(name: str) -> list[Requirement]:
    lines = (ROOT / name).read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "-r "))]


def locked(lock: str) -> list[tuple[Requirement, str]]:
    """Return each entry of a lock file with the text of its hashes."""
    text = re.sub(r"^#.*\n", "", (ROOT / lock).read_text(), flags=re.MULTILINE)
    entries = re.split(r"\n(?=\S)", text.strip())
    return [(Requirement(entry.split("\\\n", 1)[0]), entry) for entry in entries]


def locked_versions(lock: str) -> dict[str, str]:
    """Return the versions that are installed on this Python, by name."""
    entries = [entry for entry, _ in locked(lock) if not entry.marker or entry.marker.evaluate()]
    return {canonicalize_name(entry.name): str(entry.specifier) for entry in entries}


@pytest.mark.parametrize("lock", LOCKED)
def test_the_lock_has_the_pins_of_the_requirements(lock):
    pins = {
        canonicalize_name(requirement.name): str(requirement.specifier)
        for file in LOCKED[lock]
        for requirement in requirements(file)
    }
    pins.pop(UNLOCKED)
    versions = locked_versions(lock)
    assert {name: versions.get(name) for name in pins} == pins, "run: make lock"


@pytest.mark.parametrize("lock", LOCKED)
def test_every_entry_has_its_hashes(lock):
    entries = locked(lock)
    assert len(entries) > 20
    assert [entry.name for entry, text in entries if not HASH.search(text) or "==" not in str(entry.specifier)] == []


@pytest.mark.parametrize("lock", LOCKED)
def test_the_lock_has_all_dependencies_and_nothing_else(lock):
    """With --require-hashes pip refuses a dependency that the file lacks."""
    reached: dict[str, set[str]] = {}
    waiting = [
        requirement for file in LOCKED[lock] for requirement in requirements(file) if requirement.name != UNLOCKED
    ]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in reached and requirement.extras <= reached[name]:
            continue
        extras = reached.setdefault(name, set())
        extras |= requirement.extras
        needed = [Requirement(line) for line in requires(name) or []]
        for dependency in needed:
            values = [{"extra": extra} for extra in ("", *extras)]
            if not dependency.marker or any(dependency.marker.evaluate(value) for value in values):
                waiting.append(dependency)
    assert set(reached) == set(locked_versions(lock)), "run: make lock"


@pytest.mark.parametrize("lock", LOCKED)
def test_the_lock_leaves_out_packages_with_several_builds(lock):
    assert UNLOCKED not in {entry.name for entry, _ in locked(lock)}
    assert UNLOCKED in {requirement.name for requirement in requirements(LOCKED[lock][0])}


def test_what_platform_and_runs_both_have_is_one_version():
    """It stands on the disk once: the platform sees the packages of runs."""
    ours, theirs = ({each.name: str(each.specifier) for each in requirements(files[0])} for files in LOCKED.values())
    assert {"torch", "numpy"} <= set(ours) & set(theirs)
    assert {name: ours[name] for name in set(ours) & set(theirs)} == {
        name: theirs[name] for name in set(ours) & set(theirs)
    }
    ours, theirs = map(locked_versions, LOCKED)
    assert {name: (ours[name], theirs[name]) for name in set(ours) & set(theirs) if ours[name] != theirs[name]} == {}


@pytest.mark.parametrize(
    ("extra", "module", "variables"),
    [
        ("kafka", "kafka", {"KAFKA_URL": "kafka://127.0.0.1:9092"}),
        ("ldap", "ldap3", {"MLP_LDAP_URL": "ldaps://127.0.0.1", "MLP_LDAP_USER_BASE": "dc=example"}),
        ("opensearch", "opensearchpy", {"MLP_AIOPS_LOGSTORE": "opensearch"}),
        ("s3", "obstore", {"MLP_AIOPS_S3_BUCKET": "models"}),
    ],
)
def test_a_setting_that_needs_a_missing_extra_names_the_command(extra, module, variables):
    """The module cannot be imported in that process, as where the extra is not installed."""
    program = f"import sys; sys.modules[{module!r}] = None; import mlp.settings"
    given = {"cwd": ROOT, "env": os.environ | variables, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", program], **given)
    words = done.stderr.splitlines()[-1]
    assert next(iter(variables)) in words
    assert words.endswith(f"run: {sys.executable} -m pip install -r {ROOT}/requirements-{extra}.txt")


def test_a_bucket_for_backups_names_the_command_of_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(BackupError, match=r"s3://bucket/prefix needs .* -m pip install -r \S+requirements-s3\.txt"):
        open_place("s3://bucket/prefix")


def test_runs_have_all_that_their_packages_require():
    """An installation of the platform must leave them as they are, whichever versions it needs."""
    done = subprocess.run([settings.RUN_PYTHON, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert not ready.RUNS_VENV.startswith(ready.VENV)


def test_development_packages_are_not_in_requirements_txt():
    run = {requirement.name for requirement in requirements("requirements.txt")}
    development = {requirement.name for requirement in requirements("requirements-dev.txt")}
    assert not run & development
    assert {"pytest", "playwright", "ruff"} <= development

"""requirements.lock agrees with requirements.txt: the same pins, everything they depend on, a hash for each."""

from __future__ import annotations

import re
from importlib.metadata import requires
from pathlib import Path

from django.conf import settings
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(settings.BASE_DIR)
UNLOCKED = "torch"
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def requirements(name: str) -> list[Requirement]:
    lines = (ROOT / name).read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "-r "))]


def locked() -> list[tuple[Requirement, str]]:
    """Return each entry of the lock file with the text of its hashes."""
    text = re.sub(r"^#.*\n", "", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE)
    entries = re.split(r"\n(?=\S)", text.strip())
    return [(Requirement(entry.split("\\\n", 1)[0]), entry) for entry in entries]


def locked_versions() -> dict[str, str]:
    """Return the versions that are installed on this Python, by name."""
    entries = [entry for entry, _ in locked() if not entry.marker or entry.marker.evaluate()]
    return {canonicalize_name(entry.name): str(entry.specifier) for entry in entries}


def test_the_lock_has_the_pins_of_the_requirements():
    pins = {
        canonicalize_name(requirement.name): str(requirement.specifier)
        for requirement in requirements("requirements.txt")
    }
    pins.pop(UNLOCKED)
    versions = locked_versions()
    assert {name: versions.get(name) for name in pins} == pins, "run: make lock"


def test_every_entry_has_its_hashes():
    entries = locked()
    assert len(entries) > 60
    assert [entry.name for entry, text in entries if not HASH.search(text) or "==" not in str(entry.specifier)] == []


def test_the_lock_has_all_dependencies_and_nothing_else():
    """With --require-hashes pip refuses a dependency that the file lacks."""
    reached: dict[str, set[str]] = {}
    waiting = [requirement for requirement in requirements("requirements.txt") if requirement.name != UNLOCKED]
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if name in reached and one.extras <= reached[name]:
            continue
        extras = reached.setdefault(name, set())
        extras |= one.extras
        needed = [Requirement(line) for line in requires(name) or []]
        for dependency in needed:
            values = [{"extra": extra} for extra in ("", *extras)]
            if not dependency.marker or any(dependency.marker.evaluate(value) for value in values):
                waiting.append(dependency)
    assert set(reached) == set(locked_versions()), "run: make lock"


def test_the_lock_leaves_out_packages_with_several_builds():
    assert UNLOCKED not in {entry.name for entry, _ in locked()}
    assert UNLOCKED in {requirement.name for requirement in requirements("requirements.txt")}


def test_development_packages_are_not_in_requirements_txt():
    run = {requirement.name for requirement in requirements("requirements.txt")}
    development = {requirement.name for requirement in requirements("requirements-dev.txt")}
    assert not run & development
    assert {"pytest", "playwright", "ruff"} <= development

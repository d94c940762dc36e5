"""What `up` loads for all parts in Python: what they need, nothing heavy beside it, and nothing that a fork may not
share.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from django.conf import settings
from django.core import checks
from django.core.checks.registry import registry
from django.core.management import get_commands, load_command_class
from django.core.management.base import SystemCheckError

from mlp.tests.patience import LIMIT_S
from supervision import outside, setup
from supervision.parts import MANAGE, platform_parts

# aiohttp belongs to the client of Kubernetes, twisted to Daphne; the others are loaded where something is computed.
HEAVY = ("aiohttp", "twisted", "kubernetes", "torch", "numpy", "pandas", "optuna", "mlflow")
LOADS = f"""
import json, os, sys, threading
import django

django.setup()
from supervision import forking, run
before = set(os.listdir("/proc/self/fd"))
forking.load(run.LOADED)
after = set(os.listdir("/proc/self/fd"))
print(json.dumps({{
    "modules": sorted(sys.modules),
    "heavy": [name for name in {HEAVY!r} if name in sys.modules],
    "threads": threading.active_count(),
    "opened": sorted(after - before),
}}))
"""


def commands() -> list[str]:
    """Return the parts that are commands of `manage.py`."""
    given = [part.command for part in platform_parts() if part.loaded and MANAGE in part.command]
    return sorted({command[command.index(MANAGE) + 1] for command in given})


@pytest.fixture(scope="module")
def loaded() -> dict:
    """Return what is there in a process of its own once it has loaded what `up` loads."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "mlp.settings"}
    done = subprocess.run(
        [sys.executable, "-c", LOADS],
        cwd=settings.BASE_DIR,
        env=environment,
        timeout=2 * LIMIT_S,
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


def test_no_part_has_in_memory_what_only_some_need(loaded):
    assert loaded["heavy"] == []


def test_nothing_is_open_and_nothing_runs_before_the_fork(loaded):
    """Parts that shared a connection would mix up its answers; a thread would be missing in them."""
    assert (loaded["threads"], loaded["opened"]) == (1, [])


def test_every_command_is_loaded_once_for_all(loaded):
    expected = {f"{get_commands()[name]}.management.commands.{name}" for name in commands()}
    assert len(expected) >= 4
    assert expected - set(loaded["modules"]) == set()


@pytest.mark.parametrize("name", commands())
def test_a_part_does_not_check_the_code_when_it_starts(name):
    assert load_command_class(get_commands()[name], name).requires_system_checks == ()


def test_the_set_up_checks_it_before_it_changes_anything(monkeypatch):
    def wrong(app_configs, **options) -> list[checks.Error]:
        return [checks.Error("the code does not fit", id="tests.E001")]

    monkeypatch.setattr(outside, "require", lambda: None)
    monkeypatch.setattr(registry, "registered_checks", {*registry.registered_checks, wrong})
    wrong.tags = ()
    with pytest.raises(SystemCheckError, match="the code does not fit"):  # the database cannot be reached here
        setup.steps()

"""The most that a worker or an application may request, where an operator has raised it: read once, at the start."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from django.conf import settings

from mlp.tests.tiers import later

TRY = """
import json
from apps.serializers import AppIn
from jobs.doctor.serializers import RerunIn
from jobs.serializers import JobIn
from resources.serializers import CapacityIn, LimitIn, TryIn

def refused(kind, **amounts):
    form = kind(data=amounts)
    form.is_valid()
    return sorted(set(form.errors) & set(amounts))

found = {}
for kind in (JobIn, RerunIn, AppIn, TryIn, CapacityIn, LimitIn):
    most = refused(kind, cpu=64, ram=256_000, gpu=32)
    found[kind.__name__] = [most, refused(kind, cpu=64.5, ram=256_001, gpu=33)]
print(json.dumps(found))
"""
KINDS = ["cpu", "gpu", "ram"]


@pytest.mark.parametrize("raised", [True, later(False)])
def test_requests_of_all_kinds_follow_the_operators_limits(raised):
    """Those of tenants, too: what they have may always be as much as the machine has."""
    more = {"MLP_MAX_CPU": "64", "MLP_MAX_RAM_MIB": "256000", "MLP_MAX_GPU": "32"} if raised else {}
    done = subprocess.run(
        [sys.executable, "manage.py", "shell", "--no-imports", "-c", TRY], cwd=settings.BASE_DIR, capture_output=True,
        text=True, env={**os.environ, **more}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    refusals = json.loads(done.stdout)
    assert refusals.pop("CapacityIn") == refusals.pop("LimitIn") == [[], []]
    assert set(refusals) == {"JobIn", "RerunIn", "AppIn", "TryIn"}
    assert all(refused == [[] if raised else KINDS, KINDS] for refused in refusals.values()), refusals

"""The subject table matches the subscriptions of the services, and docs/aiops-wire.md is generated from it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from django.conf import settings

from aiops.services.registry import SERVICES, make
from aiops.wire.subjects import SUBJECTS

ROOT = Path(settings.BASE_DIR)


def test_the_page_is_current():
    spec = importlib.util.spec_from_file_location("aiops_wire", ROOT / "tools" / "aiops_wire.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page(), "run .venv/bin/python tools/aiops_wire.py"


@pytest.mark.parametrize("name", SERVICES)
def test_every_subscription_matches_the_table(name):
    service = make(name)
    for subject, route in service.subjects.items():
        queue = route.queue if hasattr(route, "queue") else route[1]
        assert subject in SUBJECTS, f"{name} hears {subject}, which the table does not know"
        entry = SUBJECTS[subject]
        documented = {**dict.fromkeys(entry.subscriber.split(", "), entry.queue), **dict(entry.also)}
        assert documented.get(name) == queue, (name, subject)


@pytest.mark.long
def test_every_subject_of_ours_has_a_subscriber():
    heard = {subject for name in SERVICES for subject in make(name).subjects}
    ours = {name for name, entry in SUBJECTS.items() if not entry.subscriber.startswith("(")}
    assert ours == heard

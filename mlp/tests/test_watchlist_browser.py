"""The watchlist in a real browser: it shows how far a training is by itself."""

from __future__ import annotations

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from aiops import lifecycle
from aiops.models import TrainingRun
from kernel import after_commit, keyvalue

from .browser_world import in_another_thread, log_in

pytestmark = pytest.mark.django_db(transaction=True)

ORDER = {"payload": {"uuid": "0d8c6e2e-1f4b-4b0a-9f0e-0a1b2c3d4e5f", "parameters": {"workloads": {}}}}


def test_the_progress_of_a_training_comes_by_itself(page, context, site, staff, tasks, browser_errors):
    def begin() -> None:
        lifecycle.create_run(order=ORDER, by="test")
        keyvalue.put_json("model-training-statistics", "modelTrainingStatus", {"status": "training", "statistics": {}})

    in_another_thread(begin)
    log_in(context, site, staff)
    page.goto("/aiops/watchlist")
    shown = page.locator("[data-region=training] progress + span")
    expect(shown).to_have_text("0 %")

    def move() -> None:
        TrainingRun.objects.update(percent=37, heartbeat=timezone.now())
        after_commit.wake("aiops", 0)

    in_another_thread(move)
    expect(shown).to_have_text("37 %")
    assert browser_errors == []

"""The page of a sweep in a real browser: its plots are drawn, and grow with the results."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from automation.models import Sweep, Trial
from automation.sweeps import lifecycle
from jobs.models import Job
from kernel import after_commit
from mlp.operators.tests.admin_world import put, put_sweep

from .browser_world import in_another_thread, open_live

pytestmark = [pytest.mark.e2e]


def add_result(sweep: Sweep, number: int, loss: float) -> None:
    values = {"lr": 0.1 + number / 10, "depth": number}
    row = Trial.objects.create(sweep=sweep, number=number, params=values)
    lifecycle.settle(row.pk, "complete", values=[loss])


@pytest.fixture
def sweep(alice):
    sweep = put_sweep(alice, put(Job, alice, "best", "finished"))
    parameters = [[name, {"type": "float", "low": 0, "high": 9, "log": False}] for name in ("lr", "depth")]
    Sweep.objects.filter(pk=sweep.pk).update(parameters=parameters, reason="", trials_wanted=9)
    Trial.objects.filter(sweep=sweep).delete()
    sweep.refresh_from_db()
    for number, loss in enumerate((4.0, 2.0, 3.0)):
        add_result(sweep, number, loss)
    lifecycle.note_results(sweep.pk, [1], {"loss": {"lr": 0.8, "depth": 0.2}})
    return sweep


@pytest.mark.long
def test_the_plots_are_drawn_and_grow(alice_page, sweep, browser_errors):
    open_live(alice_page, "/sweeps/tune")
    progress = alice_page.locator("[data-figure=progress]")
    expect(progress.locator(".spot")).to_have_count(3)
    expect(progress.locator(".best-line")).to_have_count(1)
    expect(alice_page.locator("[data-figure=parallel] .run")).to_have_count(3)
    expect(alice_page.locator("[data-slices] .spot")).to_have_count(6)
    expect(alice_page.locator("[data-figure=contour] .cell").first).to_be_attached()
    expect(alice_page.locator("#trial-1 .tag")).to_have_text("best")

    def better() -> None:
        add_result(sweep, 3, 1.0)
        lifecycle.note_results(sweep.pk, [3], {})
        after_commit.changed(sweep.user.username, "sweep", sweep.name)

    in_another_thread(better)
    expect(progress.locator(".spot")).to_have_count(4)
    expect(alice_page.locator("#trial-3 .tag")).to_have_text("best")
    expect(alice_page.locator("[data-region=facts] .big")).to_have_text("1")
    assert browser_errors == []


def test_a_sweep_is_begun_by_the_form_paused_and_extended(alice_page, home, browser_errors):
    alice_page.goto("/sweeps?new=1")
    for field, text in {"name": "search", "entry": "train.py", "metric": "loss", "cpu": "0.1", "ram": "100"}.items():
        alice_page.fill(f"#{field}", text)
    alice_page.fill("#space", "lr: {type: float, low: 1, high: 0}")
    alice_page.get_by_role("button", name="Begin the sweep").first.click()
    expect(alice_page.locator(".banner.is-bad")).to_contain_text("space.lr: low is 1.0")
    browser_errors.clear()  # the refusal's 403
    alice_page.fill("#space", "lr: {type: float, low: 0, high: 1}")
    alice_page.get_by_role("button", name="Begin the sweep").first.click()
    alice_page.wait_for_url("**/sweeps/search")
    alice_page.get_by_role("button", name="Pause").click()
    expect(alice_page.locator("h1 .state")).to_have_text("paused")
    alice_page.locator("#extend > summary").click()
    alice_page.fill("#more-trials", "5")
    alice_page.get_by_role("button", name="Extend").click()
    expect(alice_page.locator("[data-region=facts]")).to_contain_text("0 of 25 trials")
    assert browser_errors == []

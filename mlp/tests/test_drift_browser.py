"""The page of drift in a real browser: on a narrow screen, and from one window to another."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from apps.drift.tests.conftest import adder, app, check, midnight, put
from apps.models import DriftCheck

__all__ = ["adder", "app", "check", "put"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long, pytest.mark.usefixtures("tasks")]


def test_the_page_fits_a_narrow_screen_and_shows_the_window_that_is_chosen(alice_page, app, put, check):
    put(9, 200)  # of 60 rows the answers of one day differ by chance
    for days_ago, shift in ((3, 0), (2, 30), (1, 0)):
        put(days_ago, 200, shift=shift)
    check()
    alice_page.set_viewport_size({"width": 390, "height": 800})
    alice_page.goto(f"/apps/{app.name}/drift")
    assert alice_page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect(alice_page.locator("[data-region=features]")).to_contain_text("0 of 3 features drifted")
    alice_page.locator(".drift-windows .is-drift").click()
    expect(alice_page.locator("[data-region=features]")).to_contain_text("2 of 3 features drifted")
    expect(alice_page.locator("[data-region=features] tbody tr").first).to_contain_text("age")
    alice_page.fill("#since", midnight(5).isoformat())
    alice_page.fill("#until", midnight(6).isoformat())
    alice_page.click("button[value=save]")
    expect(alice_page.locator("#until-error")).to_contain_text("must be after the begin")
    assert DriftCheck.objects.get().on

"""The forms of schedules in a real browser: the next runs are shown while the cron expression is typed."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from automation.models import Schedule
from mlp.operators.tests.admin_world import put_schedule

pytestmark = [pytest.mark.e2e]


def test_the_next_runs_follow_what_is_typed(alice_page, alice, browser_errors):
    alice_page.goto("/schedules?new=1")
    form = alice_page.locator("form[data-schedule]")
    box, zone = form.locator("[data-next-times]"), form.locator("[name=time_zone]")
    zone.fill("Asia/Shanghai")
    form.locator("[name=cron]").fill("30 14 1 1 *")
    expect(box.locator("li")).to_have_count(3)
    expect(box.locator("li").first).to_contain_text("Jan 1")
    expect(box.locator("li").first).to_contain_text("02:30 PM")
    expect(box).to_contain_text("Asia/Shanghai")
    first = box.locator("time").first.get_attribute("datetime")
    assert first.endswith("-01-01T06:30:00.000Z")
    form.locator("[name=on]").select_option("dataset_ready")
    expect(box).to_be_hidden()
    assert browser_errors == []


@pytest.mark.long
def test_a_saved_schedule_shows_them_and_an_expression_that_is_refused_says_why(alice_page, alice):
    Schedule.objects.filter(pk=put_schedule(alice).pk).update(cron="0 3 * * *", time_zone="UTC", event={})
    alice_page.goto("/schedules/night")
    alice_page.locator("summary", has_text="Change times").click()
    box = alice_page.locator("[data-next-times]")
    expect(box.locator("li")).to_have_count(3)
    alice_page.locator("[name=cron]").fill("61 3 * * *")
    expect(box.locator("[data-problem]")).to_contain_text("cron")
    expect(box.locator("li")).to_have_count(0)

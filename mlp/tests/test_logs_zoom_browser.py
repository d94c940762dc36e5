"""The chart of log lines in a browser: a time range is chosen by dragging, with keys, and with the fields."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import expect

from aiops import logstore
from aiops.intake import accept

pytestmark = pytest.mark.django_db(transaction=True)

RANGE = re.compile(r"since=(\d+)&until=(\d+)")


@pytest.fixture
def chart(alice_page):
    """Return the bars of a chart that has lines in each of the last hours."""
    now = int(time.time() * 1000)
    logstore.get().append(
        [
            accept.line(f"line {n}", namespace="alice", deployment="web", at_ms=now - n * 600_000)
            for n in range(1, 140)
        ]
    )  # fmt: skip
    alice_page.goto("/aiops", wait_until="networkidle")
    return alice_page.locator("svg.spans a[data-since]")


def chosen(page) -> tuple[int, int]:
    page.wait_for_url(RANGE)
    return tuple(map(int, RANGE.search(page.url).groups()))


@pytest.mark.long
def test_dragging_over_bars_zooms_in(alice_page, chart, browser_errors):
    first, last = (chart.nth(place) for place in (10, 20))
    wanted = int(first.get_attribute("data-since")), int(last.get_attribute("data-until"))
    boxes = [bar.locator("rect.room").bounding_box() for bar in (first, last)]
    middles = [(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in boxes]
    alice_page.mouse.move(*middles[0])
    alice_page.mouse.down()
    alice_page.mouse.move(*middles[1], steps=4)
    alice_page.mouse.up()
    assert chosen(alice_page) == wanted
    expect(alice_page.get_by_text("Zoom out")).to_be_visible()
    assert browser_errors == []


@pytest.mark.long
def test_keys_choose_a_range(alice_page, chart, browser_errors):
    chart.nth(30).focus()
    for _ in range(3):
        alice_page.keyboard.press("Shift+ArrowRight")
    wanted = int(chart.nth(30).get_attribute("data-since")), int(chart.nth(33).get_attribute("data-until"))
    alice_page.keyboard.press("Enter")
    assert chosen(alice_page) == wanted
    assert browser_errors == []


def test_the_fields_hold_the_range_in_the_readers_time(alice_page, chart, browser_errors):
    alice_page.fill("#from", "2026-01-02T03:04")
    alice_page.fill("#to", "2026-01-02T04:04")
    alice_page.get_by_role("button", name="Show").click()
    since, until = chosen(alice_page)
    assert until - since == 3_600_000
    assert alice_page.evaluate("new Date(2026, 0, 2, 3, 4).getTime()") == since
    expect(alice_page.locator("#from")).to_have_value("2026-01-02T03:04")
    assert browser_errors == []

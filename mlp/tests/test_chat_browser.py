"""The chat form of a language model's page in a real browser: text as it is made, Stop, answers that are no HTML."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from apps.tests.conftest import adder
from apps.tests.test_language_gateway import gate, spoken
from apps.tests.test_language_pages import address
from apps.tests.test_language_server import release
from kernel.tests.nats_tools import until

from .browser_world import loads

__all__ = ["adder", "address", "gate", "spoken"]

pytestmark = pytest.mark.django_db(transaction=True)
WAIT_MS = 20_000


def test_the_answer_grows_and_is_text(alice_page, address, gate, browser_errors):
    alice_page.goto(address)
    alice_page.fill("#max_tokens", "20")
    loaded = loads(alice_page)
    said, state = alice_page.locator("[data-answer] pre"), alice_page.locator("[data-answer] .state")
    stop, send = alice_page.locator("[data-stop]"), alice_page.locator("[data-try] button.primary")
    expect(stop).to_be_hidden()
    alice_page.fill("#input", f"wait {gate} é<b>")
    send.click()
    expect(said).to_have_text("é", timeout=WAIT_MS)
    expect(stop).to_be_visible()
    expect(send).to_be_disabled()
    release(gate, 1, 2, 3)
    expect(said).to_have_text("é<b>", timeout=WAIT_MS)
    expect(state).to_have_text("200")
    expect(stop).to_be_hidden()
    alice_page.fill("#input", "fail")
    send.click()
    expect(said).to_have_text("the model failed: RuntimeError: out of memory", timeout=WAIT_MS)
    alice_page.evaluate("document.querySelector('#input').value = ''")
    send.click()
    expect(alice_page.locator("#input-error")).to_have_text("must not be empty", timeout=WAIT_MS)
    assert loaded == []
    assert [trouble for trouble in browser_errors if "403" not in trouble] == []


def test_stop_ends_the_answer_and_keeps_its_text(alice_page, address, gate, browser_errors):
    alice_page.goto(address)
    alice_page.fill("#max_tokens", "20")
    said, state = alice_page.locator("[data-answer] pre"), alice_page.locator("[data-answer] .state")
    alice_page.fill("#input", f"wait {gate} ab")
    alice_page.locator("[data-try] button.primary").click()
    expect(said).to_have_text("a", timeout=WAIT_MS)
    alice_page.locator("[data-stop]").click()
    expect(state).to_have_text("Stopped")
    expect(said).to_have_text("a")
    until(gate.with_name("gate.cancelled").exists)
    alice_page.fill("#input", "hello")
    alice_page.locator("[data-try] button.primary").click()
    expect(said).to_have_text("hello", timeout=WAIT_MS)
    assert browser_errors == []

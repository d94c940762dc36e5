"""The chat form of a language model's page in a real browser: its answers are text, and no HTML. That they come piece
by piece is tested behind nginx, in apps/tests/test_chat_stream.py: the server of the browser tests sends them as a
whole.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from apps.tests.conftest import adder
from apps.tests.test_language_gateway import spoken
from apps.tests.test_language_pages import address

from .browser_world import loads

__all__ = ["adder", "address", "spoken"]

pytestmark = pytest.mark.django_db(transaction=True)
WAIT_MS = 20_000


def test_an_answer_is_text_and_failures_are_shown(alice_page, address, browser_errors):
    alice_page.goto(address)
    alice_page.fill("#max_tokens", "20")
    loaded = loads(alice_page)
    said, state = alice_page.locator("[data-answer] pre"), alice_page.locator("[data-answer] .state")
    stop, send = alice_page.locator("[data-stop]"), alice_page.locator("[data-try] button.primary")
    expect(stop).to_be_hidden()
    alice_page.fill("#input", "é<b>")
    send.click()
    expect(said).to_have_text("é<b>", timeout=WAIT_MS)
    expect(state).to_have_text("200")
    expect(stop).to_be_hidden()
    expect(send).to_be_enabled()
    alice_page.fill("#input", "fail")
    send.click()
    expect(said).to_have_text("the model failed: RuntimeError: out of memory", timeout=WAIT_MS)
    alice_page.fill("#input", "")
    send.click()
    expect(alice_page.locator("#input-error")).to_have_text("must not be empty", timeout=WAIT_MS)
    assert loaded == []
    assert [trouble for trouble in browser_errors if "403" not in trouble] == []


@pytest.mark.long
def test_stop_ends_the_request(alice_page, address, browser_errors, tmp_path):
    alice_page.goto(address)
    alice_page.fill("#max_tokens", "20")
    alice_page.fill("#input", f"wait {tmp_path / 'gate'} ab")
    alice_page.locator("[data-try] button.primary").click()
    alice_page.locator("[data-stop]").click()
    expect(alice_page.locator("[data-answer]")).to_contain_text("Stopped")
    expect(alice_page.locator("[data-stop]")).to_be_hidden()
    assert browser_errors == []

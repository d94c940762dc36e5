"""Sharing in a real browser: the dialog by keyboard, its errors, a link for somebody without an account, its end."""

from __future__ import annotations

import os
import re
from datetime import date, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect

from accounts.models import Share
from jobs.models import Job
from mlp.operators.tests.admin_world import put

from .browser_world import in_another_thread

pytestmark = pytest.mark.django_db(transaction=True)
PICTURES = os.environ.get("MLP_PICTURES", "")
PHONE = {"width": 375, "height": 740}


def picture(page, name: str) -> None:
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"{name}.png")


@pytest.mark.long
def test_a_job_is_shared_by_the_dialog_and_withdrawn(alice_page, alice, bob, browser, site, browser_errors):
    page = alice_page
    in_another_thread(lambda: put(Job, alice, "fit", "finished"))
    page.goto("/jobs/fit")
    page.get_by_role("link", name="Share", exact=True).focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Share fit")
    expect(dialog.get_by_role("radio", name="A user")).to_be_checked()
    dialog.get_by_label("Username").focus()
    page.keyboard.type("nobody")
    page.keyboard.press("Enter")
    expect(dialog.get_by_text("no active user has this name")).to_be_visible()
    picture(page, "share-error")
    expect(dialog.get_by_label("Username")).to_be_focused()
    dialog.get_by_label("Username").fill("bob")
    page.keyboard.press("Enter")
    rows = dialog.locator("tbody tr")
    expect(rows).to_contain_text(["bob"])
    dialog.get_by_role("radio", name="Everybody in the tenant").check()
    expect(dialog.get_by_label("Username")).to_be_hidden()
    dialog.get_by_label("Right").select_option("clone")
    dialog.get_by_role("button", name="Share").click()
    expect(rows).to_contain_text(["read and clone", "bob"])
    dialog.get_by_role("radio", name="Anyone with a link").check()
    dialog.locator("#share-expires").fill(str(date.today() + timedelta(days=3)))
    dialog.get_by_role("button", name="Share").click()
    expect(rows).to_have_count(3)
    link = dialog.locator("#share-link").inner_text()
    picture(page, "share-link")
    ends = Share.objects.get(audience="link").expires
    assert ends.date() == date.today() + timedelta(days=3)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("link", name="Share", exact=True)).to_be_focused()

    theirs = browser.new_context(base_url=site.url, viewport=PHONE, color_scheme="dark", locale="zh-CN")
    guest = theirs.new_page()
    guest.goto(link)
    guest.wait_for_url("**/u/alice/jobs/fit")
    expect(guest.locator("[data-shared]")).to_contain_text("alice")
    picture(guest, "share-guest-phone-dark-zh")
    assert guest.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]

    page.set_viewport_size(PHONE)
    page.get_by_role("link", name="Share", exact=True).click()
    expect(rows).to_have_count(3)
    picture(page, "share-phone")
    box = dialog.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE["width"]
    rows.filter(has_text="anyone with the link").get_by_role("button", name="Revoke").click()
    expect(rows).to_have_count(2)
    expect(guest).to_have_url(re.compile("/shared/link$"))  # the open page has left
    expect(guest.locator("h1")).to_have_text("链接无效")
    theirs.close()
    page.keyboard.press("Escape")
    page.reload()
    assert "404" not in str(browser_errors)

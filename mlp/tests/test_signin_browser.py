"""Second factors in a real browser, with its virtual authenticator; and the pages of sign-in on a phone."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyotp
import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from playwright.sync_api import expect

from accounts.models import User
from conftest import PASSWORD

pytestmark = pytest.mark.django_db(transaction=True)
PICTURES = os.environ.get("MLP_PICTURES", "")


def picture(page, name: str) -> None:
    """Store pictures of the page: wide, on a phone, dark, and in Chinese."""
    if not PICTURES:
        return
    for size, scheme in (((1200, 900), "light"), ((360, 740), "dark")):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=Path(PICTURES) / f"{name}-{scheme}.png", full_page=True)
    page.set_viewport_size({"width": 1200, "height": 900})


@pytest.fixture
def place(site, alice) -> str:
    """Return the site's address by name: browsers use passkeys at no bare address. It hashes as a real one does."""
    password = PBKDF2PasswordHasher().encode(PASSWORD, "salt", iterations=1)
    User.objects.filter(pk=alice.pk).update(password=password)
    return site.url.replace("127.0.0.1", "localhost")


@pytest.fixture
def key(page, context):
    """Give the browser a virtual authenticator that verifies its user; what is returned empties it."""
    session = context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    options = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True,
               "isUserVerified": True, "automaticPresenceSimulation": True}  # fmt: skip
    authenticator = session.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    return lambda: session.send("WebAuthn.clearCredentials", authenticator)


def log_in(page, place: str) -> None:
    page.goto(f"{place}/regist_login")
    page.get_by_label("Username").fill("alice")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in", exact=True).click()


def test_a_passkey_is_added_and_logs_in_as_second_factor_and_alone(page, place, key, alice, browser_errors):
    log_in(page, place)
    page.wait_for_url("**/index")
    page.goto(f"{place}/account/security")
    picture(page, "security")
    page.get_by_role("button", name="Add passkey").click()
    expect(page.locator("pre")).to_have_text(re.compile("([a-z2-9]{5}-[a-z2-9]{5}\\s*){10}"))
    picture(page, "codes")
    page.get_by_role("link", name="I have saved them").click()
    page.wait_for_url("**/index")
    page.goto(f"{place}/account/security")
    expect(page.get_by_text("not used yet")).to_be_visible()
    page.get_by_role("button", name="Log out").first.click()
    log_in(page, place)
    page.wait_for_url("**/second_factor")
    picture(page, "second")
    page.get_by_role("button", name="Use a passkey").click()
    page.wait_for_url("**/index")
    page.get_by_role("button", name="Log out").first.click()
    page.wait_for_url("**/regist_login")
    picture(page, "login")
    page.get_by_role("button", name="Log in with a passkey").click()
    page.wait_for_url("**/index")
    assert browser_errors == []


@pytest.mark.long
def test_a_passkey_that_the_device_does_not_have_is_named(page, place, key, alice, context):
    log_in(page, place)
    page.goto(f"{place}/account/security")
    page.get_by_role("button", name="Add passkey").click()
    expect(page.locator("pre")).to_be_visible()
    page.goto(f"{place}/account/security")
    page.get_by_role("button", name="Log out").first.click()
    log_in(page, place)
    page.wait_for_url("**/second_factor")
    key()  # the device has lost it
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("alert")).to_contain_text("Cancelled")


@pytest.mark.long
def test_an_app_is_added_and_asked_for(page, place, alice, browser_errors):
    log_in(page, place)
    page.wait_for_url("**/index")
    page.goto(f"{place}/account/security")
    secret = page.locator("p code").inner_text().replace(" ", "")
    app = pyotp.TOTP(secret)
    page.get_by_label("Code").fill(app.now())
    page.get_by_role("button", name="Add app").click()
    code = page.locator("pre").inner_text().split()[0]
    page.get_by_role("button", name="Log out").first.click()
    log_in(page, place)
    page.get_by_label("Code of your authenticator app").fill(code)
    page.keyboard.press("Enter")
    page.wait_for_url("**/index")
    assert browser_errors == []

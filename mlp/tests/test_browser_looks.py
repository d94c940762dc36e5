"""Every page in a real browser: it renders without an error, is accessible, fits a phone, in both themes."""

from __future__ import annotations

from pathlib import Path

import axe_playwright_python
import pytest
from django.test import Client
from playwright.sync_api import expect

from .page_world import PAGES, fill
from .tiers import EACH

pytestmark = pytest.mark.django_db(transaction=True)

AXE = next(Path(axe_playwright_python.__file__).parent.rglob("axe.min.js")).read_text()
# Returns the broken rules and how many were kept. The reports on what was kept, a megabyte a page, are left out. Style
# sheets are not fetched again: no rule that is on reads them.
RUN = """async options => {
    const report = await axe.run({...options, preload: {assets: ["media"]}, resultTypes: ["violations"]});
    const serious = report.violations.filter(rule => ["serious", "critical"].includes(rule.impact));
    return [serious.map(rule => rule.id), report.passes.length];
}"""
PHONE = 360  # pixels
# Waits until no colour is on its way to another.
FADED = """() => Promise.allSettled(
    document.getAnimations().filter(one => one instanceof CSSTransition).map(one => one.finished)
)"""


def desk(page, scheme: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 720})
    page.emulate_media(color_scheme=scheme)


def width_on_a_phone(page) -> int:
    page.set_viewport_size({"width": PHONE, "height": 740})
    return page.locator("html").evaluate("root => root.scrollWidth")


def serious(page, **options) -> list[str]:
    """Return the rules of axe-core that the page breaks badly."""
    rules, passed = page.evaluate(RUN, options)
    assert passed, page.url
    return rules


class TestLooks:
    def test_the_theme_is_remembered(self, alice_page):
        alice_page.emulate_media(color_scheme="light")
        alice_page.goto("/index")
        root, switch = alice_page.locator("html"), alice_page.locator("[data-theme-switch]")
        light = alice_page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
        for _ in range(3):
            switch.click()
            if root.get_attribute("data-theme") == "dark":
                break
        expect(root).to_have_attribute("data-theme", "dark")
        assert alice_page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor") != light
        for address in ("/index", "/jobs"):
            alice_page.goto(address)
            expect(root).to_have_attribute("data-theme", "dark")
            assert alice_page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor") != light

    @pytest.mark.long
    def test_the_language_is_remembered(self, alice_page):
        alice_page.goto("/jobs?state=running")
        alice_page.click("button[name=language]")
        expect(alice_page.locator("html")).to_have_attribute("lang", "zh-hans")
        assert alice_page.url.endswith("/jobs?state=running")
        alice_page.goto("/index")
        expect(alice_page.locator("html")).to_have_attribute("lang", "zh-hans")
        alice_page.click("button[name=language]")
        expect(alice_page.locator("html")).to_have_attribute("lang", "en")

    @pytest.mark.parametrize("step", EACH)
    def test_every_page_renders_without_errors_is_accessible_and_fits_a_phone(
        self, alice_page, alice, browser_errors, step
    ):
        """axe-core reports no serious problem: names, roles, keyboard, and the contrast in both themes. At 360 pixels
        the body never scrolls sideways; tables may, in their own box.
        """
        fill(alice, evil=True)
        alice_page.add_init_script(AXE)
        problems, wide = {}, {}
        for address in list(PAGES)[::step]:
            desk(alice_page, "light")
            alice_page.goto(address, wait_until="load")
            problems[address] = serious(alice_page)
            alice_page.emulate_media(color_scheme="dark")
            alice_page.evaluate(FADED)
            problems[f"{address} (dark)"] = serious(alice_page, runOnly=["color-contrast"])
            wide[address] = width_on_a_phone(alice_page)
            assert browser_errors == [], address
        assert {address: rules for address, rules in problems.items() if rules} == {}
        assert {address: width for address, width in wide.items() if width > PHONE} == {}

    def test_the_api_reference_fits_a_phone(self, alice_page, browser_errors):
        alice_page.goto("/api/v1/docs", wait_until="load")
        assert width_on_a_phone(alice_page) <= PHONE
        assert browser_errors == []

    @pytest.mark.parametrize("address", ["/regist_login", "/nothing"])
    def test_public_pages_fit_a_phone(self, page, site, browser_errors, address):
        page.set_viewport_size({"width": 360, "height": 740})
        page.goto(address)
        assert page.locator("html").evaluate("root => root.scrollWidth") <= 360
        assert [trouble for trouble in browser_errors if "404" not in trouble] == []

    def test_the_pages_work_without_javascript(self, browser, site, alice, home):
        context = browser.new_context(java_script_enabled=False, base_url=site.url)
        page = context.new_page()
        page.goto("/index")
        client = Client()
        client.force_login(alice)
        context.add_cookies([{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": site.url}])
        page.goto("/jobs?new=1")
        page.fill("form [name=name]", "plain")
        page.fill("[name=entry]", "train.py")
        page.locator("form:has([name=entry]) button.primary").click()
        page.wait_for_url("**/jobs/plain")
        context.close()

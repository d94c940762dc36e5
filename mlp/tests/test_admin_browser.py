"""The admin in a real browser: it draws itself without an error, fits a phone, its live parts and buttons work."""

from __future__ import annotations

import os
import shutil

import pytest

from accounts.models import User
from jobs.models import Job

from .admin_world import fill

pytestmark = pytest.mark.skipif(
    shutil.which("chromium") is None and not os.environ.get("CI"),
    reason="chromium is not installed: the browser tests are left out",
)

PASSWORD = "correct horse battery"


@pytest.fixture
def world(transactional_db, alice, staff, make_user):
    make_user("carol", active=False)
    return fill(alice, staff)


@pytest.fixture
def problems(page):
    """What the browser complained about."""
    found: list[str] = []
    page.on("console", lambda message: found.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("response", lambda answer: found.append(answer.url) if answer.status >= 400 else None)
    return found


@pytest.fixture
def operator(page, live_server, world, problems):
    """A page with the operator logged in."""
    page.goto(f"{live_server.url}/admin/")
    page.fill("#id_username", "oscar")
    page.fill("#id_password", PASSWORD)
    page.click("button[type=submit]")
    page.wait_for_url(f"{live_server.url}/admin/")
    return page


@pytest.mark.parametrize(("size", "scheme"), [((1440, 900), "light"), ((390, 844), "dark")], ids=["desk", "phone"])
def test_every_page_draws_without_an_error_and_fits(operator, live_server, world, problems, size, scheme):
    operator.set_viewport_size({"width": size[0], "height": size[1]})
    operator.emulate_media(color_scheme=scheme)
    pages = ["/admin/"]
    for label in world:
        app, model = label.split(".")
        pages += [f"/admin/{app}/{model}/", f"/admin/{app}/{model}/{world[label].pk}/change/"]
    for address in pages:
        operator.goto(live_server.url + address)
        operator.wait_for_selector("#content", state="visible")  # hidden until the theme's scripts have run
        too_wide = operator.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert too_wide <= 0, f"{address} is {too_wide} px too wide"
    assert operator.evaluate("document.documentElement.classList.contains('dark')") == (scheme == "dark")
    assert problems == []


def test_the_overview_asks_the_parts_and_lets_a_user_in(operator, live_server):
    operator.wait_for_selector("#parts .mlp-parts li")
    assert operator.locator(".mlp-people li").count() == 1
    operator.click(".mlp-people button")
    operator.wait_for_url(f"{live_server.url}/admin/")
    assert operator.locator(".mlp-people").count() == 0
    assert User.objects.get(username="carol").is_active


def test_a_job_is_cancelled_with_two_clicks(operator, live_server, world):
    operator.goto(f"{live_server.url}/admin/jobs/job/{world['jobs.job'].pk}/change/")
    operator.click("[data-verb=cancel]")
    operator.click(".mlp-ask button")
    operator.wait_for_selector("text=is now error")
    assert operator.locator(".mlp-history >> text=operator:oscar").count() == 1
    assert Job.objects.get().reason == "cancelled"

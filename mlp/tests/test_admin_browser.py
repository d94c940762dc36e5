"""The admin in a real browser: no errors, fits a phone, live updates and buttons work."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from accounts import lifecycle as accounts
from accounts.models import User
from jobs import lifecycle
from jobs.models import Job
from kernel.after_commit import changed
from mlp.operators.tests.admin_world import fill, put

from .browser_world import LIVE_MS, asks_while_idle, in_another_thread, loads, log_in, open_live
from .tiers import later

pytestmark = pytest.mark.django_db(transaction=True)

OWN = ["/admin/", "/admin/audit/", "/admin/logs/", "/admin/settings/", "/admin/largest/"]


@pytest.fixture
def world(site, alice, staff, make_user):
    objects = {}
    in_another_thread(lambda: make_user("carol", active=False))
    in_another_thread(lambda: objects.update(fill(alice, staff)))
    return objects


@pytest.fixture
def operator(page, context, site, world, staff, browser_errors):
    """A page of a browser in which an operator is logged in."""
    log_in(context, site, staff)
    page.goto("/admin/")
    return page


SIZES = {"light": (1440, 900), "dark": (360, 780)}


@pytest.mark.parametrize("step", [36, later(1)])
def test_every_page_renders_without_errors_and_fits(operator, world, browser_errors, step):
    """On a phone in the dark theme, where it is loaded, and then on a desk in the light one."""
    pages = list(OWN)
    for label in world:
        app, model = label.split(".")
        pages += [f"/admin/{app}/{model}/", f"/admin/{app}/{model}/{world[label].pk}/change/"]
    wide = {}
    for address in pages[::step]:
        look(operator, "dark")
        operator.goto(address)
        operator.wait_for_selector("#content", state="visible")  # hidden until the theme's scripts have run
        assert operator.evaluate("document.documentElement.classList.contains('dark')"), address
        for scheme in ("dark", "light"):
            look(operator, scheme)
            too_wide = operator.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            if too_wide > 0:
                wide[address, scheme] = too_wide
        assert browser_errors == [], address
    assert wide == {}
    look(operator, "light")
    operator.goto("/admin/")
    operator.wait_for_selector("#content", state="visible")
    assert not operator.evaluate("document.documentElement.classList.contains('dark')")


def look(page, scheme: str) -> None:
    width, height = SIZES[scheme]
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme)


@pytest.mark.long
def test_the_overview_is_updated_without_polling(operator, world, alice, browser_errors):
    operator.clock.install()
    operator.reload()
    operator.wait_for_selector("#parts .mlp-parts li")
    expect(operator.locator("[data-region=latest]")).to_contain_text("alice/train")
    operator.wait_for_load_state("networkidle")
    loaded = loads(operator)
    assert [url for url in asks_while_idle(operator) if "/parts/" not in url] == []
    in_another_thread(lambda: lifecycle.fail(world["jobs.job"].pk, "exit code 7", "test"))
    expect(operator.locator("[data-region=failed]")).to_contain_text("exit code 7", timeout=LIVE_MS)
    in_another_thread(lambda: accounts.register(username="dave", password="correct horse", by="test", active=False))
    expect(operator.locator(".mlp-people")).to_contain_text("dave", timeout=LIVE_MS)
    assert loaded == []
    assert browser_errors == []


@pytest.mark.long
def test_the_overview_shows_a_lost_connection_and_an_ended_session(operator, site, staff):
    line = operator.locator("[data-link-state]")
    operator.wait_for_selector("#parts .mlp-parts li")
    site.stop()
    expect(line).to_contain_text("Connection lost", timeout=LIVE_MS)
    site.start()
    expect(line).to_be_hidden(timeout=2 * LIVE_MS)
    User.objects.filter(pk=staff.pk).update(state="NotActive")
    in_another_thread(lambda: changed("oscar", "user", "oscar"))
    expect(line).to_contain_text("Your session has ended", timeout=LIVE_MS)


@pytest.mark.long
def test_a_former_operator_keeps_access_to_the_own_pages_only(operator, context, staff):
    job = []
    in_another_thread(lambda: job.append(put(Job, staff, "mine", "running")))
    own = context.new_page()
    own.goto("/jobs/mine")
    expect(own.locator("main")).to_contain_text("mine")
    operator.wait_for_selector("#parts .mlp-parts li")
    in_another_thread(lambda: accounts.set_staff(username="oscar", staff=False, by="test"))
    expect(operator.locator("[data-link-state]")).to_contain_text("Your session has ended", timeout=LIVE_MS)
    in_another_thread(lambda: lifecycle.fail(job[0].pk, "exit code 7", "test"))
    expect(own.locator("main")).to_contain_text("exit code 7", timeout=LIVE_MS)
    expect(own.locator("[data-link-state]")).to_be_hidden(timeout=LIVE_MS)


def test_the_overview_queries_components_and_approves_a_user(operator):
    operator.wait_for_selector("#parts .mlp-parts li")
    operator.wait_for_selector("#isolation-title")
    assert operator.locator(".mlp-people li").count() == 1
    operator.click(".mlp-people button")
    expect(operator.locator(".mlp-people")).to_have_count(0)
    assert User.objects.get(username="carol").is_active


def test_a_job_is_cancelled_with_two_clicks(operator, world):
    operator.goto(f"/admin/jobs/job/{world['jobs.job'].pk}/change/")
    operator.click("[data-verb=cancel]")
    operator.click(".mlp-ask button")
    operator.wait_for_selector("text=is now cancelled")
    assert operator.locator(".mlp-history >> text=operator:oscar").count() == 1
    assert Job.objects.get().reason == "cancelled"


@pytest.mark.long
def test_a_list_is_updated_live_and_keeps_the_selection(operator, world, alice, browser_errors):
    open_live(operator, "/admin/jobs/job/")
    rows, counter = operator.locator("#result_list .data-row"), operator.locator(".action-counter")
    train, other = rows.filter(has_text="train"), rows.filter(has_text="other")
    expect(rows).to_have_count(1)
    loaded = loads(operator)

    in_another_thread(lambda: put(Job, alice, "other", "creating"))
    expect(rows).to_have_count(2, timeout=LIVE_MS)
    expect(operator.locator(".mlp-count")).to_contain_text("2 jobs")

    other.locator(".action-select").check()
    expect(counter).to_have_text("1 of 2 selected")  # the admin's own script knows the new rows
    in_another_thread(lambda: lifecycle.fail(world["jobs.job"].pk, "exit code 7", "test"))
    expect(train).to_contain_text("exit code 7", timeout=LIVE_MS)  # put in place
    expect(other.locator(".action-select")).to_be_checked()

    in_another_thread(lambda: put(Job, alice, "third", "running"))
    in_another_thread(lambda: lifecycle.fail(Job.objects.get(name="other").pk, "out of memory", "test"))
    expect(other).to_contain_text("out of memory", timeout=LIVE_MS)
    expect(rows).to_have_count(2)  # another row would move under the operator's hand
    other.locator(".action-select").uncheck()
    expect(rows).to_have_count(3, timeout=LIVE_MS)

    operator.locator("#action-toggle").check()
    expect(counter).to_have_text("3 of 3 selected")
    assert loaded == []
    assert browser_errors == []


def test_an_objects_page_is_updated_live_until_it_is_deleted(operator, world, alice, browser_errors):
    in_another_thread(lambda: put(Job, alice, "other", "creating"))
    job = Job.objects.get(name="other")
    operator.goto(f"/admin/jobs/job/{job.pk}/change/")
    content = operator.locator("#content-main")
    expect(content).to_contain_text("other")
    loaded = loads(operator)
    in_another_thread(lambda: lifecycle.fail(job.pk, "exit code 7", "test"))
    expect(content.locator(".mlp-badge").first).to_have_text("failed", timeout=LIVE_MS)
    expect(operator.locator(".mlp-history tbody tr")).to_have_count(2)
    expect(operator.locator("[data-verb=delete]")).to_be_visible()
    expect(operator.locator("[data-verb=cancel]")).to_have_count(0)
    assert loaded == []
    in_another_thread(lambda: (Job.objects.filter(pk=job.pk).delete(), changed("alice", "job", "other")))
    operator.wait_for_url("**/admin/jobs/job/", timeout=LIVE_MS)
    assert browser_errors == []

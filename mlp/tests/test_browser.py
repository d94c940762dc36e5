"""The pages in a real browser with real HTTP and websocket servers: user journeys and live metrics."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.utils import timezone
from playwright.sync_api import expect

from aiops import logstore
from aiops.intake import accept, tail
from conftest import PASSWORD
from jobs import lifecycle
from jobs.metrics import recording
from jobs.models import Job
from kernel.after_commit import changed
from kernel.bus import Delivery
from mlp.operators.tests.admin_world import put

from .browser_world import LIVE_MS, in_another_thread, loads
from .page_world import fill

pytestmark = pytest.mark.django_db(transaction=True)

LOST = re.compile("connection lost", re.IGNORECASE)


def report(epoch: int, accuracy: float, progress: int, job: str = "fit") -> None:
    """Record one report of alice's job, as the ingest process does."""
    data = f'{{"epoch": {epoch}, "accuracy": {accuracy}, "loss": {1 - accuracy}, "progress": {progress}}}'
    message = Delivery(recording.subject("alice", job), data.encode(), f"{job}-{epoch}", epoch, timezone.now())
    in_another_thread(lambda: recording.record([message]))


def running(alice, name: str = "fit") -> Job:
    return put(Job, alice, name, "running")


def shows(card, epoch: int, accuracy: float, progress: int, timeout: int = LIVE_MS) -> None:
    """Wait until the job's card shows these values."""
    label = re.compile(rf"Epoch {epoch}\b.* {re.escape(str(accuracy))}0*\b")
    expect(card.locator("[data-chart] [role=img]")).to_have_attribute("aria-label", label, timeout=timeout)
    expect(card).to_contain_text(f"{progress} %", timeout=timeout)
    expect(card.locator("progress")).to_have_js_property("value", progress)


class TestJourneys:
    def test_register_log_out_log_in(self, page, site, browser_errors):
        page.goto("/")
        page.wait_for_url(re.compile("/regist_login"))
        page.fill("[name=username]", "carol")
        page.fill("[name=password]", PASSWORD)
        page.click("button[value=register]")
        expect(page.locator("body")).to_contain_text("Hello, carol")
        page.click("text=Take the guided tour")
        page.click("text=Add example dataset")
        expect(page.locator("main")).to_contain_text("ready")
        page.click("form[action='/logout'] button")
        page.wait_for_url("**/regist_login")
        page.goto("/jobs")
        page.wait_for_url("**/regist_login?next=/jobs")
        page.fill("[name=username]", "carol")
        page.fill("[name=password]", PASSWORD)
        page.press("[name=password]", "Enter")  # the first button: log in
        page.wait_for_url("**/jobs")
        assert browser_errors == []

    def test_a_wrong_password_keeps_the_name(self, page, site, alice):
        page.goto("/regist_login")
        page.fill("[name=username]", "alice")
        page.fill("[name=password]", "not hers")
        page.click("button[value=login]")
        expect(page.locator("main")).to_contain_text("wrong username or password")
        expect(page.locator("[name=username]")).to_have_value("alice")
        expect(page.locator("[name=password]")).to_have_value("")

    def test_the_example_becomes_a_job(self, alice_page, browser_errors):
        alice_page.goto("/scripts/new?example=1")
        alice_page.fill("[name=path]", "first.py")
        alice_page.locator("main form[method=post] button.primary").first.click()
        alice_page.wait_for_url("**/scripts/edit/first.py")
        alice_page.goto("/jobs?new=1&entry=first.py")
        alice_page.fill("form [name=name]", "example")
        alice_page.locator("form:has([name=entry]) button.primary").dblclick()
        alice_page.wait_for_url("**/jobs/example")
        expect(alice_page.locator("main")).to_contain_text("first.py")
        assert Job.objects.get().entry == "first.py"
        assert browser_errors == []

    def test_form_errors_are_shown_at_their_fields(self, alice_page):
        alice_page.goto("/jobs?new=1")
        alice_page.fill("form [name=name]", "mine")
        alice_page.fill("[name=entry]", "nothing.py")
        alice_page.locator("form:has([name=entry]) button.primary").click()
        expect(alice_page.locator("main")).to_contain_text("the script nothing.py does not exist")
        expect(alice_page.locator("[name=entry]")).to_have_attribute("aria-invalid", "true")
        expect(alice_page.locator("form [name=name]")).to_have_value("mine")

    def test_deletion_requires_confirmation(self, alice_page, alice, browser_errors):
        put(Job, alice, "done", "finished")
        alice_page.goto("/jobs/done")
        delete = alice_page.locator("form[action='/jobs/done/delete'] button").first
        delete.click()
        alice_page.locator("#confirm button[value=no]").click()
        assert Job.objects.get().state == "finished"
        delete.click()
        alice_page.locator("#confirm-yes").click()
        alice_page.wait_for_url("**/jobs")
        assert Job.objects.get().state == "deleting"
        assert browser_errors == []


class TestLive:
    def test_metrics_are_updated_live_on_the_index(self, alice_page, alice, browser_errors):
        running(alice)
        report(1, 0.125, 10)
        alice_page.goto("/index")
        card = alice_page.locator("[data-live]")
        shows(card, 1, 0.125, 10)
        loaded = loads(alice_page)
        for epoch, accuracy, progress in ((2, 0.5, 40), (3, 0.75, 73)):
            report(epoch, accuracy, progress)
            shows(card, epoch, accuracy, progress)
        expect(card.locator("[data-chart] svg").first).to_be_visible()
        assert loaded == []
        assert browser_errors == []

    def test_charts_of_compared_jobs_have_titles_in_the_users_language(self, alice_page, alice, site, browser_errors):
        alice_page.context.add_cookies([{"name": settings.LANGUAGE_COOKIE_NAME, "value": "zh-hans", "url": site.url}])
        for name in ("fit", "second"):
            running(alice, name)
            report(1, 0.25, 5, job=name)
        alice_page.goto("/compare?job=fit&job=second")
        expect(alice_page.locator("[data-compare] figcaption span")).to_have_text(["准确率", "损失"])
        assert alice_page.locator("tbody th[scope=row]", has_text="准确率").count() == 1
        assert browser_errors == []

    def test_metrics_of_several_jobs_are_separate(self, alice_page, alice):
        for name in ("fit", "second"):
            running(alice, name)
        alice_page.goto("/index")
        report(1, 0.25, 5)
        report(1, 0.75, 5, job="second")
        shows(alice_page.locator("[data-job=second]"), 1, 0.75, 5)
        shows(alice_page.locator("[data-job=fit]"), 1, 0.25, 5)

    def test_the_end_of_a_job_is_shown_live(self, alice_page, alice, browser_errors):
        job = running(alice)
        report(1, 0.5, 50)
        alice_page.goto("/jobs/fit")
        shows(alice_page.locator("[data-live]"), 1, 0.5, 50)
        in_another_thread(lambda: lifecycle.fail(job.pk, "exit code 7", "test"))
        expect(alice_page.locator("main")).to_contain_text("exit code 7", timeout=LIVE_MS)
        expect(alice_page.locator("form[action='/jobs/fit/delete']").first).to_be_visible()
        assert browser_errors == []

    def test_updates_wait_while_a_dialog_is_open(self, alice_page, alice, browser_errors):
        job = running(alice)
        alice_page.goto("/jobs/fit")
        alice_page.locator("form[action='/jobs/fit/cancel'] button").first.click()
        expect(alice_page.locator("dialog[open]")).to_be_visible()
        with alice_page.expect_response("**/jobs/fit"):
            in_another_thread(lambda: lifecycle.fail(job.pk, "exit code 7", "test"))
        alice_page.keyboard.press("Escape")
        expect(alice_page.locator("main")).to_contain_text("exit code 7")
        assert browser_errors == []

    def test_an_open_index_keeps_a_few_ended_jobs(self, alice_page, alice, browser_errors):
        alice_page.goto("/index")
        cards = alice_page.locator("[data-live]")
        for number in range(8):
            name = f"fit{'abcdefgh'[number]}"
            job = running(alice, name)
            in_another_thread(lambda name=name: changed("alice", "job", name))
            card = alice_page.locator(f"[data-job={name}]")
            expect(card).to_be_visible()
            in_another_thread(lambda job=job: lifecycle.fail(job.pk, "exit code 7", "test"))
            expect(card).to_have_attribute("data-state", "error")
        expect(cards).to_have_count(6)
        expect(alice_page.locator("[data-job=fith]")).to_be_visible()
        expect(alice_page.locator("[data-job=fita]")).to_have_count(0)
        assert browser_errors == []

    def test_a_refresh_keeps_focus_selection_and_scroll_position(self, alice_page, alice, browser_errors):
        first, second = running(alice, "first"), running(alice, "second")
        alice_page.set_viewport_size({"width": 900, "height": 320})
        alice_page.goto("/jobs")
        row = alice_page.locator("tr", has=alice_page.get_by_role("link", name="first", exact=True))
        row.get_by_role("checkbox").check()
        link = row.get_by_role("link", name="first")
        link.focus()
        node = link.element_handle()
        scrolled = alice_page.evaluate("scrollY")
        assert scrolled > 0
        in_another_thread(lambda: lifecycle.fail(first.pk, "exit code 7", "test"))
        expect(row).to_contain_text("exit code 7", timeout=LIVE_MS)
        in_another_thread(lambda: put(Job, alice, "third", "running"))
        expect(alice_page.get_by_role("link", name="third")).to_be_visible(timeout=LIVE_MS)
        expect(link).to_be_focused()
        assert node.evaluate("(node) => node.isConnected && node === document.activeElement")
        expect(row.get_by_role("checkbox")).to_be_checked()
        assert alice_page.evaluate("scrollY") == scrolled
        assert second.state == "running"
        assert browser_errors == []

    def test_a_refresh_keeps_open_details_and_selected_text(self, alice_page, alice, browser_errors):
        job = running(alice)
        report(1, 0.5, 50)
        alice_page.goto("/jobs/fit")
        in_another_thread(lambda: lifecycle.fail(job.pk, "exit code 7", "test"))
        numbers = alice_page.locator("details.card.panel")
        numbers.locator("summary").click()
        alice_page.evaluate("getSelection().selectAllChildren(document.querySelector('h1'))")
        said = alice_page.evaluate("getSelection().toString()")
        in_another_thread(lambda: lifecycle.delete_job(user=alice, name="fit", by="test"))
        expect(alice_page.locator("h1 .state")).to_have_class("state state-deleting", timeout=LIVE_MS)
        expect(numbers).to_have_attribute("open", "")
        assert alice_page.evaluate("getSelection().toString()").split()[0] == said.split()[0]
        assert browser_errors == []

    def test_an_idle_page_has_one_websocket_and_does_not_poll(self, alice_page, alice, browser_errors):
        for name in ("fit", "second"):
            running(alice, name)
        opened: list[str] = []
        alice_page.on("websocket", lambda socket: opened.append(socket.url))
        alice_page.goto("/index", wait_until="networkidle")
        asked: list[str] = []
        alice_page.on("request", lambda request: asked.append(request.url))
        alice_page.wait_for_timeout(3000)
        assert asked == []
        in_another_thread(lambda: put(Job, alice, "third", "running"))
        expect(alice_page.locator("[data-job=third]")).to_be_visible(timeout=LIVE_MS)
        assert [urlsplit(url).path for url in opened] == ["/ws/live"]
        assert browser_errors == []

    def test_a_notification_updates_the_open_page(self, alice_page, alice):
        job = running(alice)
        alice_page.goto("/jobs")
        in_another_thread(lambda: lifecycle.fail(job.pk, "exit code 7", "test"))
        expect(alice_page.locator("[data-region=bell] .count")).to_contain_text("1", timeout=LIVE_MS)

    def test_a_log_grows(self, alice_page, alice):
        fill(alice)
        alice_page.goto("/jobs/fit")
        expect(alice_page.locator("[data-log]")).to_contain_text("epoch 1")
        log = settings.MLP_ROOT / "jobs" / "alice" / "fit" / "log" / "job.log"
        with log.open("a") as file:
            file.write("<b>epoch 2</b>\n")
        expect(alice_page.locator("[data-log]")).to_contain_text("<b>epoch 2</b>", timeout=LIVE_MS)

    def test_log_lines_appear_and_their_verdicts_are_updated_in_place(self, alice_page, alice, browser_errors):
        logstore.get().append([accept.line("epoch one", namespace="alice", deployment="fit")])
        alice_page.goto("/aiops", wait_until="networkidle")
        loaded = loads(alice_page)
        rows = alice_page.locator("[data-tail] tbody tr")
        expect(rows).to_have_count(1)
        in_another_thread(
            lambda: accept.store([accept.line("disk gone", namespace="alice", deployment="fit", id="odd")])
        )
        expect(rows).to_have_count(2, timeout=LIVE_MS)
        expect(rows.first).to_contain_text("disk gone")
        expect(rows.first).to_contain_text("not judged yet")
        logstore.get().update_many([("odd", {"anomaly_level": "Anomaly"})])
        in_another_thread(lambda: tail.send_verdicts([("odd", "Anomaly")]))
        expect(rows.first.locator(".state-error")).to_be_visible(timeout=LIVE_MS)
        alice_page.uncheck("[data-live-switch]")
        in_another_thread(lambda: accept.store([accept.line("later", namespace="alice", deployment="fit")]))
        alice_page.locator("tr", has_text="disk gone").locator("a").click()
        alice_page.wait_for_url("**/aiops/line?id=odd")
        assert len(loaded) == 1
        assert browser_errors == []

    def test_an_anomaly_appears_on_the_page_of_its_job(self, alice_page, alice, browser_errors):
        put(Job, alice, "fit", "running")
        alice_page.goto("/jobs", wait_until="networkidle")
        odd = accept.line("disk gone", namespace="alice", deployment="fit", id="odd")
        logstore.get().append([odd])
        logstore.get().update_many([("odd", {"anomaly_level": "Anomaly"})])
        in_another_thread(lambda: tail.send_verdicts([("odd", "Anomaly")]))
        expect(alice_page.locator("[data-mark=fit]")).to_contain_text("1 anomaly", timeout=LIVE_MS)
        alice_page.goto("/jobs/fit")
        expect(alice_page.locator(".anomalies")).to_contain_text("disk gone")
        assert browser_errors == []

    def test_a_lost_connection_is_shown_and_restored(self, alice_page, alice, site):
        running(alice)
        report(1, 0.125, 10)
        alice_page.goto("/index")
        shows(alice_page.locator("[data-live]"), 1, 0.125, 10)
        loaded = loads(alice_page)
        site.stop()
        expect(alice_page.get_by_text(LOST).filter(visible=True).first).to_be_visible(timeout=LIVE_MS)
        report(2, 0.625, 20)
        site.start()
        shows(alice_page.locator("[data-live]"), 2, 0.625, 20, timeout=2 * LIVE_MS)
        expect(alice_page.locator("[data-link-state]")).to_be_hidden(timeout=LIVE_MS)
        assert loaded == []

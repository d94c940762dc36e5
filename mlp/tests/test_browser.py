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
from aiops.models import WatchedWorkload
from conftest import PASSWORD
from jobs import lifecycle
from jobs.models import Job
from jobs.summaries import params
from kernel import storage
from kernel.after_commit import changed
from kernel.bus import Delivery
from mlp.operators.tests.admin_world import put
from tracking.metrics import recording

from .browser_world import LIVE_MS, asks_while_idle, in_another_thread, loads
from .page_world import fill, fill_media

pytestmark = pytest.mark.django_db(transaction=True)

LOST = re.compile("connection lost", re.IGNORECASE)


def report(epoch: int, accuracy: float, progress: int, job: str = "fit") -> None:
    """Record one report of alice's job, as the ingest process does."""
    data = f'{{"epoch": {epoch}, "accuracy": {accuracy}, "loss": {1 - accuracy}, "progress": {progress}}}'
    message = Delivery(recording.subject("alice", job), data.encode(), f"{job}-{epoch}", epoch, timezone.now())
    in_another_thread(lambda: recording.record([message]))


def running(alice, name: str = "fit", args: tuple[str, ...] = ()) -> Job:
    job = put(Job, alice, name, "running")
    job.args = list(args)
    job.save()
    params.keep_arguments(job)
    return job


def shows(card, epoch: int, accuracy: float, progress: int, timeout: int = LIVE_MS) -> None:
    """Wait until the job's card shows these values."""
    label = re.compile(rf"last {re.escape(str(accuracy))} at {epoch},")
    expect(card.locator("figure [role=img]").first).to_have_attribute("aria-label", label, timeout=timeout)
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
        assert Job.objects.get().trashed is None
        delete.click()
        alice_page.locator("#confirm-yes").click()
        alice_page.wait_for_url("**/jobs")
        assert Job.objects.get().trashed is not None
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
        expect(card.locator("figure canvas").first).to_be_visible()
        assert loaded == []
        assert browser_errors == []

    @pytest.mark.long
    def test_charts_of_compared_jobs_have_titles_in_the_users_language(self, alice_page, alice, site, browser_errors):
        alice_page.context.add_cookies([{"name": settings.LANGUAGE_COOKIE_NAME, "value": "zh-hans", "url": site.url}])
        for name in ("fit", "second"):
            running(alice, name)
            report(1, 0.25, 5, job=name)
        alice_page.goto("/compare?job=fit&job=second")
        expect(alice_page.locator("[data-compare] .plot-name")).to_have_text(["准确率", "损失"])
        assert alice_page.locator("tbody th[scope=row]", has_text="准确率").all_inner_texts() == [
            "准确率",
            "准确率（最高）",
        ]
        assert browser_errors == []

    @pytest.mark.long
    def test_the_plots_of_a_comparison_select_runs(self, alice_page, alice, browser_errors):
        """An axis narrowed by the keyboard fades the other runs in both plots; the axes are in the page's address."""
        for name, rate, optimizer in (("fit", "0.1", "adam"), ("second", "0.001", "sgd"), ("third", "0.01", "sgd")):
            running(alice, name, args=("--lr", rate, "--optimizer", optimizer, "--seed=1"))
            report(1, float(rate), 5, job=name)
        alice_page.goto("/compare?job=fit&job=second&job=third")
        expect(alice_page.locator("[data-parallel] .run")).to_have_count(3)
        names = ["lr", "optimizer", "accuracy"]
        assert alice_page.locator("[data-parallel] text.axis-name").all_text_contents() == names
        axis = alice_page.locator("[data-parallel] .grip").first
        axis.focus()
        for _ in range(3):
            axis.press("ArrowDown")
        expect(alice_page.locator("[data-selected]")).to_have_text("2 of 3 runs selected")
        expect(alice_page.locator("[data-scatter] .spot.faint")).to_have_attribute("aria-label", re.compile("^fit, "))
        alice_page.select_option("[data-scatter-y]", "argument.optimizer")
        alice_page.reload()
        expect(alice_page.locator("[data-scatter] text.axis-name").last).to_have_text("optimizer")
        alice_page.click("text=Only differences")
        expect(alice_page.locator("tbody th[scope=row]", has_text="seed")).to_have_count(0)
        expect(alice_page.locator("tbody th[scope=row]", has_text="optimizer")).to_be_visible()
        assert browser_errors == []

    @pytest.mark.long
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

    @pytest.mark.long
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

    @pytest.mark.long
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

    @pytest.mark.long
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
        alice_page.clock.install()
        alice_page.goto("/index", wait_until="networkidle")
        assert asks_while_idle(alice_page) == []
        in_another_thread(lambda: put(Job, alice, "third", "running"))
        expect(alice_page.locator("[data-job=third]")).to_be_visible(timeout=LIVE_MS)
        assert [urlsplit(url).path for url in opened] == ["/ws/live"]
        assert browser_errors == []

    def test_a_notification_updates_the_open_page(self, alice_page, alice):
        job = running(alice)
        alice_page.goto("/jobs")
        in_another_thread(lambda: lifecycle.fail(job.pk, "exit code 7", "test"))
        expect(alice_page.locator("[data-region=bell] .count")).to_contain_text("1", timeout=LIVE_MS)

    @pytest.mark.long
    def test_media_follow_the_slider_and_new_steps_appear(self, alice_page, alice, browser_errors):
        job = running(alice)
        folder = storage.job_dir("alice", "fit")
        fill_media(folder, "seen")
        alice_page.goto("/jobs/fit/media")
        card = alice_page.locator("[data-medium='text:val/text']")
        slider, step = card.get_by_role("slider"), card.locator("[data-step]")
        expect(card).to_contain_text("Step 2")
        slider.press("ArrowLeft")
        expect(card.locator("h3")).to_have_text("Step 1")
        expect(step).to_have_text("1")
        assert "at=text" in alice_page.url
        table = alice_page.locator("[data-medium='table:val/table']")
        for order in ("ascending", "descending"):
            table.get_by_role("link", name="seen").click()
            expect(table.locator("[aria-sort]")).to_have_attribute("aria-sort", order)
        expect(table.locator("tbody tr").first).to_contain_text("8")
        image = alice_page.locator("[data-medium='image:val/image'] img")
        assert image.evaluate("image => image.naturalWidth") == 4
        fill_media(folder, "seen", steps=5)
        in_another_thread(lambda: changed("alice", "job", job.name, moving=True))
        expect(alice_page.locator("[data-medium='histogram:val/histogram'] [data-step]")).to_have_text(
            "4", timeout=LIVE_MS
        )
        expect(card.locator("h3")).to_have_text("Step 1")  # chosen, so it stays
        expect(slider).to_have_js_property("max", "4")
        expect(slider).to_have_value("1")
        slider.press("End")
        expect(card.locator("h3")).to_have_text("Step 4")
        assert "at=text" not in alice_page.url
        pages: list = []
        parts: list = []
        page, part = re.compile(r"/jobs/fit/media\?"), re.compile(r"/jobs/fit/media/part\?")
        alice_page.route(page, lambda route: pages.append(route))
        alice_page.route(part, lambda route: parts.append(route))
        fill_media(folder, "seen", steps=6)
        with alice_page.expect_request(page):
            in_another_thread(lambda: changed("alice", "job", job.name, moving=True))
        with alice_page.expect_request(part):
            slider.press("ArrowLeft")
        pages[0].continue_()  # a page that was asked for before the choice
        expect(slider).to_have_js_property("max", "5")
        expect(step).to_have_text("3")
        parts[0].continue_()
        expect(card.locator("h3")).to_have_text("Step 3")
        alice_page.unroute_all(behavior="ignoreErrors")

    @pytest.mark.long
    def test_a_log_grows(self, alice_page, alice):
        fill(alice)
        alice_page.goto("/jobs/fit")
        expect(alice_page.locator("[data-log]")).to_contain_text("epoch 1")
        log = settings.MLP_ROOT / "jobs" / "alice" / "fit" / "log" / "job.log"
        with log.open("a") as file:
            file.write("<b>epoch 2</b>\n")
        expect(alice_page.locator("[data-log]")).to_contain_text("<b>epoch 2</b>", timeout=LIVE_MS)

    def test_log_lines_appear_and_their_verdicts_are_updated_in_place(self, alice_page, alice, browser_errors):
        WatchedWorkload.objects.create(namespace="alice", deployment="fit")
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

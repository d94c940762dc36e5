"""Charts in a real browser: zoom, legend, smoothing, axes, values that are not finite, full screen, live points."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone
from playwright.sync_api import expect

import runners
from jobs import environment, lifecycle
from jobs.models import Job, Project, RunMetric, Value
from kernel.after_commit import changed
from kernel.bus import Delivery
from mlp.operators.tests.admin_world import put
from mlp.tests.tiers import few
from runners.tests.helpers import spec
from tracking.metrics import recording

from .browser_world import LIVE_MS, in_another_thread

pytestmark = pytest.mark.django_db(transaction=True)

LONG = """
INSERT INTO metric_value (job_id, name, step, value, at, attempt, msg_id)
SELECT %s, 'norm', i, CASE WHEN i >= 30000 THEN 'NaN' ELSE 2 + sin(i / 500.0 + %s) END,
    now() + i * interval '1 ms', 1, 'n' || i
FROM generate_series(0, 39999) AS i
"""


def report(job: str, number: int, body: dict) -> None:
    kind = recording.values_subject if "values" in body else recording.subject
    message = Delivery(kind("alice", job), json.dumps(body).encode(), f"{job}-{number}", number, timezone.now())
    in_another_thread(lambda: recording.record([message]))


def chart_of(page, name: str):
    return page.locator(f"figure[data-names='[\"{name}\"]']")


def label(chart):
    return chart.locator("[role=img]")


def drag(page, chart, begin: float, end: float) -> None:
    box = chart.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + begin * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], box["y"] + 60, steps=4)
    page.mouse.up()


@pytest.mark.long
def test_charts_of_compared_runs(alice_page, alice, browser_errors):
    page = alice_page
    for shift, name in enumerate(("fit", "second")):
        job = put(Job, alice, name, "running")
        Job.objects.filter(pk=job.pk).update(started=timezone.now() - timedelta(minutes=5))
        with connection.cursor() as cursor:
            cursor.execute(LONG, [job.pk, shift])
    page.goto("/compare?job=fit&job=second")
    chart = chart_of(page, "norm")
    expect(label(chart)).to_have_attribute(
        "aria-label", re.compile("second: 40,000 values, last NaN at 39,999, lowest 1")
    )
    expect(page.locator("[data-alarms]")).to_contain_text("fit: norm became NaN at step 30000")

    with page.expect_response(lambda answer: "from=" in answer.url and "/jobs/second/" in answer.url) as answered:
        drag(page, chart, 0.30, 0.302 + 0.02)
    finer = answered.value.json()[0]
    assert finer["bucket"] < 5
    assert 10_000 < finer["step"][0] < finer["step"][-1] < 15_000
    expect(page.locator("[data-reset]")).to_be_visible()
    chart.locator(".u-over").dblclick()
    expect(page.locator("[data-reset]")).to_be_hidden()

    chart.locator("[role=img]").focus()
    page.keyboard.press("Home")
    expect(chart.locator(".tip")).to_contain_text("Step 0")
    page.keyboard.press("+")
    expect(page.locator("[data-reset]")).to_be_visible()
    page.keyboard.press("0")

    page.locator("[data-run=fit]").click()
    expect(label(chart)).not_to_have_attribute("aria-label", re.compile("fit:"))
    page.get_by_role("button", name="only fit").click()
    expect(label(chart)).to_have_attribute("aria-label", re.compile("fit:"))
    expect(label(chart)).not_to_have_attribute("aria-label", re.compile("second:"))

    page.locator("[data-smooth]").fill("0.6")
    page.locator("[data-x]").select_option("relative")
    page.locator("[data-log-y]").check()
    page.keyboard.press("Tab")
    chart.locator("[role=img]").focus()
    page.keyboard.press("End")
    expect(chart.locator(".tip")).to_contain_text(re.compile(r"After 5:\d\d"))
    chart.hover()
    with page.expect_download() as saved:
        chart.get_by_role("button", name="Save as SVG").click()
    svg = saved.value.path().read_text()
    assert svg.count("<polyline") == 2  # the raw line and the smoothed one
    assert ">norm<" in svg
    chart.get_by_role("button", name="Full screen").click()
    expect(page.locator("figure:fullscreen")).to_be_visible()
    page.evaluate("document.exitFullscreen()")
    page.reload()
    expect(page.locator("[data-smooth-value]")).to_have_text("0.6")
    expect(page.locator("[data-x]")).to_have_value("relative")
    assert browser_errors == []


def test_a_running_job_gets_its_new_points_only(alice_page, alice, browser_errors):
    page = alice_page
    put(Job, alice, "fit", "running")
    report("fit", 1, {"epoch": 1, "accuracy": 0.25, "loss": 1, "progress": 10})
    report("fit", 2, {"step": 1, "values": {"lr": 0.5}})
    page.goto("/jobs/fit")
    accuracy, lr = chart_of(page, "accuracy"), chart_of(page, "lr")
    expect(label(accuracy)).to_have_attribute("aria-label", re.compile(r"1 value, last 0.25 at 1,"))
    expect(label(lr)).to_have_attribute("aria-label", re.compile(r"last 0.5 at 1,"))
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    report("fit", 3, {"epoch": 2, "accuracy": 0.5, "loss": 0.5, "progress": 40})
    report("fit", 4, {"step": 2, "values": {"lr": 0.125, "norm": "NaN"}})
    expect(label(accuracy)).to_have_attribute("aria-label", re.compile(r"2 values, last 0.5 at 2,"))
    expect(label(lr)).to_have_attribute("aria-label", re.compile(r"2 values, last 0.125 at 2,"))
    expect(page.locator("[data-live] progress")).to_have_js_property("value", 40)
    expect(page.locator("[data-alarms]")).to_contain_text("norm became NaN at step 2")
    assert not [url for url in fetched if "/points" in url or "/series" in url]
    assert browser_errors == []


@pytest.mark.long
@pytest.mark.parametrize("values", few([[0.8, 0.0123], [1e-300, 1e300], [5e-324, 1]], 1))
def test_a_logarithmic_axis_has_marks_wherever_it_begins(alice_page, alice, browser_errors, values):
    page = alice_page
    put(Job, alice, "fit", "running")
    for step, value in enumerate(values, 1):
        report("fit", step, {"step": step, "values": {"norm": value}})
    page.goto("/jobs/fit")
    page.locator("[data-log-y]").check()
    page.locator("[data-log-x]").check()
    expect(label(chart_of(page, "norm"))).to_have_attribute("aria-label", re.compile(f"{len(values)} values"))
    chart_of(page, "norm").locator("[role=img]").focus()
    page.keyboard.press("End")
    expect(chart_of(page, "norm").locator(".tip")).to_contain_text(f"Step {len(values)}")
    page.reload()
    expect(page.locator("[data-log-y]")).to_be_checked()
    assert browser_errors == []


def test_a_change_before_the_websocket_opens_is_not_missed(alice_page, alice, browser_errors):
    job = put(Job, alice, "fit", "running")

    def change_first(socket):
        in_another_thread(lambda: lifecycle.cancel(user=alice, name="fit", by="alice"))
        socket.connect_to_server()

    alice_page.route_web_socket(re.compile("/ws/live"), change_first)
    alice_page.goto("/jobs/fit")
    expect(alice_page.locator("h1 .state-cancelled")).to_be_visible()
    assert job.state == "running"
    assert browser_errors == []


def test_a_projects_board_has_charts_that_grow_and_are_arranged(alice_page, alice, browser_errors):
    page = alice_page
    project = Project.objects.create(user=alice, name="vision", board=[{"kind": "count", "title": "Runs"}])
    for name in ("fit", "second"):
        job = put(Job, alice, name, "running")
        Job.objects.filter(pk=job.pk).update(started=timezone.now() - timedelta(minutes=5), project=project)
        report(name, 1, {"epoch": 1, "accuracy": 0.5, "loss": 2.0, "progress": 10})
        report(name, 2, {"step": 1, "values": {"norm": 3}})
    page.goto("/projects/vision")
    page.locator("#panel > summary").click()
    expect(page.locator("#panel-text")).to_be_hidden()
    page.get_by_role("checkbox", name="loss", exact=True).check()
    page.get_by_role("checkbox", name="norm", exact=True).check()
    page.get_by_role("button", name="Add panel").click()
    chart = page.locator("[data-panel] figure")
    expect(label(chart)).to_have_attribute("aria-label", re.compile("fit norm: 1 value, last 3"))
    expect(page.locator("[data-panel] [data-legend] [data-run]")).to_have_text(["second", "fit"])

    report("fit", 3, {"epoch": 2, "accuracy": 0.6, "loss": 1.5, "progress": 20})
    expect(label(chart)).to_have_attribute("aria-label", re.compile(r"fit Loss: 2 values, last 1\.5 at 2"))

    titles = page.locator("[data-panels] h2")
    page.locator("[data-move]").nth(1).focus()
    page.keyboard.press("ArrowLeft")
    expect(titles).to_have_text(["loss, norm", "Runs"])
    expect(page.locator("[aria-busy]")).to_have_count(0)
    expect(page.locator("[data-move]").first).to_be_focused()
    handle, target = page.locator("[data-move]").first.bounding_box(), titles.nth(1).bounding_box()
    page.mouse.move(handle["x"] + 4, handle["y"] + 4)
    page.mouse.down()
    page.mouse.move(target["x"] + 200, target["y"] + 10, steps=5)
    page.mouse.up()
    expect(titles).to_have_text(["Runs", "loss, norm"])
    expect(page.locator("[aria-busy]")).to_have_count(0)  # stored
    page.reload()
    expect(titles).to_have_text(["Runs", "loss, norm"])
    expect(label(chart)).to_have_attribute("aria-label", re.compile(r"fit Loss: 2 values, last 1\.5 at 2"))

    panel, corner = page.locator("[data-panel-number]").nth(1), page.locator("[data-size]").nth(1)
    box = corner.bounding_box()
    page.mouse.move(box["x"] + 8, box["y"] + 8)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 218, steps=5)
    page.mouse.up()
    expect(panel).to_have_class(re.compile("span-3"))
    expect(page.locator("[data-editing], [aria-busy]")).to_have_count(0)  # stored
    corner.press("ArrowDown")
    expect(panel).to_have_attribute("data-rows", "3")
    expect(page.locator("[data-editing], [aria-busy]")).to_have_count(0)
    project.refresh_from_db()
    assert (project.board[1]["columns"], project.board[1]["rows"]) == (3, 3)

    page.get_by_role("button", name="Show second in charts").click()
    expect(page.locator("[data-panel][data-runs*=second]")).to_have_count(0)
    expect(label(chart)).to_have_attribute("aria-label", re.compile(r"fit: 2 values|fit Loss: 2 values"))
    page.get_by_role("button", name="Colour of fit in charts").click()
    page.get_by_role("menuitemradio", name="Colour 8").click()
    expect(page.locator("[data-panel][data-runs*='\"colour\": 7']")).to_have_count(1)


@pytest.mark.long
def test_the_run_under_the_pointer_is_lit_in_charts_and_in_the_table(alice_page, alice):
    page, project = alice_page, Project.objects.default_of(alice)
    for place, name in enumerate(("low", "high")):
        job = put(Job, alice, name, "finished")
        Job.objects.filter(pk=job.pk).update(project=project)
        Value.objects.bulk_create(
            Value(job=job, name="f1", step=step, value=place, at=timezone.now(), msg_id=f"{step}") for step in range(9)
        )
        RunMetric.objects.create(job=job, user=alice, name="f1", last=place, min=place, max=place, count=9, step=8)
    project.board = [{"kind": "chart", "metrics": ["f1"], "columns": 4}]
    project.save()
    page.goto(f"/projects/{project.name}")
    chart = page.locator("[data-panel-number] figure.chart")
    expect(label(chart)).to_have_attribute("aria-label", re.compile("high: 9 values"))

    rows = {name: page.locator(f"tr[data-run='alice/{name}']") for name in ("low", "high")}
    plain = picture(chart)
    rows["low"].hover()
    expect(rows["low"]).to_have_class("is-lit")
    lit = picture(chart)
    rows["high"].hover()
    expect(rows["high"]).to_have_class("is-lit")
    assert len({plain, lit, picture(chart)}) == 3

    chart.scroll_into_view_if_needed()
    box = chart.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.9)
    expect(rows["low"]).to_have_class("is-lit")
    expect(chart.locator(".tip .key").first).to_have_text("low 0")
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.1)
    expect(rows["high"]).to_have_class("is-lit")
    expect(chart.locator(".tip .key").first).to_have_text("high 1")
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("tr.is-lit")).to_have_count(0)
    assert picture(chart) == plain


def picture(chart) -> str:
    """Return what is drawn, when the browser has drawn all that it was asked for."""
    return chart.locator("canvas").evaluate("""canvas => new Promise((done) => {
        requestAnimationFrame(() => requestAnimationFrame(() => done(canvas.toDataURL())));
    })""")


@pytest.mark.long
def test_a_trial_that_is_pruned_loses_its_bar_on_the_open_page(alice_page, alice, browser_errors):
    put(Job, alice, "fit", "running")
    report("fit", 1, {"epoch": 1, "accuracy": 0.123456, "loss": 1, "progress": 40})
    alice_page.goto("/jobs/fit")
    card = alice_page.locator("[data-live]")
    expect(card.locator("progress")).to_have_js_property("value", 40)
    value = chart_of(alice_page, "accuracy").locator("b").first
    expect(value).to_have_text("0.1235")
    expect(value).to_have_attribute("title", "0.123456")

    def prune() -> None:
        lifecycle.cancel(user=alice, name="fit", by="sweep", reason="ended early at step 1", outcome="pruned")

    in_another_thread(prune)
    expect(card).to_have_attribute("data-state", "pruned")
    expect(card.locator("progress")).to_be_hidden()
    expect(card.locator("[data-progress-words]")).to_be_hidden()
    assert browser_errors == []


@pytest.mark.long
def test_an_ended_job_shows_the_peak_of_what_it_used(alice_page, alice):
    for name, state, expected in (("done", "finished", "Peak: 900.5"), ("going", "running", "40")):
        job = put(Job, alice, name, state)
        Job.objects.filter(pk=job.pk).update(started=timezone.now())
        path = environment.usage_path(job)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f'{{"after": {after}, "ram": {ram}}}\n' for after, ram in enumerate((100, 900.5, 40))))
        alice_page.goto(f"/jobs/{name}")
        value = chart_of(alice_page, "ram").locator("b").first
        expect(value).not_to_be_empty()
        assert value.inner_text() == expected


@pytest.mark.long
def test_the_processes_of_a_job_come_with_it_and_go_with_it(alice_page, alice, tmp_path, browser_errors):
    job = put(Job, alice, "fit", "creating")
    alice_page.goto("/jobs/fit")
    region = alice_page.locator("[data-region=processes]")
    expect(region.locator("*")).to_have_count(0)
    runner = runners.get()
    command = [runner.python, "-I", "-S", "-c", "import time; time.sleep(600)"]
    runner.start(spec(tmp_path, "", command=command, owner=alice.pk))

    def start() -> None:
        Job.objects.filter(pk=job.pk).update(state="running", run_name="job-1-1", started=timezone.now())
        changed("alice", "job", "fit")

    in_another_thread(start)
    expect(region.locator("td code")).to_contain_text("time.sleep(600)", timeout=LIVE_MS)
    with alice_page.expect_response("**/jobs/fit/processes"):  # again, as its script asks for it
        alice_page.evaluate("document.body.dispatchEvent(new Event('processes'))")
    assert runner.stop_all(0) == []
    in_another_thread(lambda: lifecycle.fail(job.pk, "killed", "test"))
    expect(region.locator("*")).to_have_count(0, timeout=LIVE_MS)
    assert browser_errors == []

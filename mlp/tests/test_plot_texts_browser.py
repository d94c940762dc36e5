"""Texts of charts in a real browser: names, marks and values stand beside each other, whatever they are called."""

from __future__ import annotations

import json
import os
import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.templatetags.static import static
from django.utils import timezone
from playwright.sync_api import expect

from automation.models import Trial
from jobs.models import Job, RunMetric, Value
from jobs.summaries import params
from mlp.operators.tests.admin_world import put, put_sweep
from mlp.tests.tiers import later

pytestmark = pytest.mark.django_db(transaction=True)

PICTURES = os.environ.get("MLP_PICTURES", "")
METRIC = "validation/top5 accuracy of the exponential moving average of the weights"
# Returns the pairs of an SVG's texts that cover each other, and the texts that its edges cut.
FAULTS = """svg => {
    const frame = svg.getBoundingClientRect(), faults = [];
    const boxed = (text) => [text.firstChild?.data, text.getBoundingClientRect()];
    const texts = [...svg.querySelectorAll("text")].map(boxed);
    texts.forEach(([one, a], index) => {
        const [across, down] = [a.left < frame.left - 1 || a.right > frame.right + 1, a.bottom > frame.bottom + 1];
        if (across || down || a.top < frame.top - 1)
            faults.push(`${one} is cut`);
        for (const [other, b] of texts.slice(index + 1)) {
            const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
            const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
            if (across > 1 && down > 3) faults.push(`${one} over ${other}`);
        }
    });
    return faults;
}"""

# Returns the rows of a chart's tip that stand over its edges, with the tip itself, and whether the page is too wide.
TIP = """figure => {
    const tip = figure.querySelector(".tip"), frame = figure.getBoundingClientRect();
    const inner = (row) => {
        const range = document.createRange();
        range.selectNodeContents(row.lastChild);
        return range.getBoundingClientRect();
    };
    const boxes = [tip.getBoundingClientRect(), ...[...tip.querySelectorAll(".key")].map(inner)];
    const outside = boxes.filter((box) => box.left < frame.left - 1 || box.right > frame.right + 1);
    return outside.concat(document.documentElement.scrollWidth > innerWidth ? [innerWidth] : []);
}"""


@pytest.fixture
def runs(alice) -> str:
    """Return the query of runs with long names, words as arguments, and values that differ in their last digits."""
    for place in range(8):
        schedule = f"cosine annealing with warm restarts, variant {place}"
        args = ["--optimizer-and-schedule", schedule, "--lr", f"{10.0**-place:g}", "--width", str(10**place)]
        job = put(Job, alice, f"run{'abcdefgh'[place]}", "finished")
        Job.objects.filter(pk=job.pk).update(args=args, title=f"{schedule} on all of the data, once more")
        job.refresh_from_db()
        params.keep_arguments(job)
        values, times = (
            [1_000_000.1 + place / 100, 1_000_000.3],
            [timezone.now() + timedelta(seconds=s) for s in (0, 150)],
        )
        Value.objects.bulk_create(
            Value(job=job, name=METRIC, step=step, value=value, at=times[step], msg_id=f"{step}")
            for step, value in enumerate(values)
        )
        last, low, high = values[1], values[0], values[1]
        RunMetric.objects.create(job=job, user=alice, name=METRIC, last=last, min=low, max=high, count=2, step=1)
    return "&".join(f"job=run{letter}" for letter in "abcdefgh")


@pytest.mark.parametrize(("width", "theme"), [later(1280, "light"), (390, "dark")])
def test_texts_of_plots_do_not_cover_each_other(alice_page, runs, width, theme, browser_errors):
    page = alice_page
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"/compare?{runs}")
    expect(page.locator("[data-parallel] .run")).to_have_count(8)
    parallel, scatter = page.locator("[data-parallel] svg"), page.locator("[data-scatter] svg")
    assert parallel.evaluate(FAULTS) == []
    optimizer, metric = "argument.optimizer-and-schedule", f"metric.{METRIC}"
    for across, up in ((optimizer, "argument.lr"), ("argument.width", metric), (metric, optimizer)):
        page.select_option("[data-scatter-x]", across)
        page.select_option("[data-scatter-y]", up)
        if PICTURES:
            page.locator("[data-plots]").screenshot(path=Path(PICTURES) / f"{width}-{across[:12]}-{up[:12]}.png")
        assert scatter.evaluate(FAULTS) == [], (across, up)
    chart = page.locator("figure:has(.tip)").first
    expect(chart.locator("[role=img]")).to_have_attribute("aria-label", re.compile(": 2 values"))  # its lines are there
    box = chart.locator(".u-over").bounding_box()
    for across in (1, box["width"] - 1):
        chart.locator(".u-over").hover(position={"x": across, "y": box["height"] / 2})
        expect(chart.locator(".tip")).to_be_visible()
        assert chart.evaluate(TIP) == [], "names are cut, values are not"
    assert browser_errors == []


def test_marks_of_a_timeline_stand_within_it(alice_page, alice, browser_errors):
    sweep = put_sweep(alice, put(Job, alice, "best", "finished"))
    now = timezone.now()
    for number in range(2, 22):
        Trial.objects.create(sweep=sweep, number=number, params={}, state="complete", values=[1.0],
                             started=now - timedelta(minutes=100 - 5 * number), ended=now)  # fmt: skip
    Trial.objects.filter(number=2).update(started=now - timedelta(minutes=100))
    page = alice_page
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto("/sweeps/tune")
    expect(page.locator("[data-figure=timeline] .bar").nth(10)).to_be_attached()
    assert page.locator("[data-figure=timeline] svg").evaluate(FAULTS) == []
    assert browser_errors == []


@pytest.mark.parametrize("axis", ["step", later("time")])
def test_marks_of_an_axis_differ_however_close_its_values_are(alice_page, runs, axis, browser_errors):
    page = alice_page
    page.goto(f"/compare?{runs}")
    page.locator("[data-x]").select_option(axis)
    chart = page.locator(f"figure[data-names='{json.dumps([METRIC])}']")
    chart.hover()
    with page.expect_download() as saved:
        chart.get_by_role("button", name="Save as SVG").click()
    page.set_content(saved.value.path().read_text())
    for anchor in ("end", "middle"):
        marks = page.locator(f"svg svg text[text-anchor={anchor}]").all_text_contents()
        assert len(set(marks)) == len(marks) > 1, marks
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"marks-{axis}.png")
    body = page.locator("svg > svg").first
    assert body.evaluate(FAULTS) == []
    assert browser_errors == []


@pytest.mark.parametrize(("language", "second"), [later("en", "s"), ("zh-hans", "秒")])
def test_durations_are_in_the_language_of_the_page(site, alice_page, language, second):
    alice_page.context.add_cookies([{"name": settings.LANGUAGE_COOKIE_NAME, "value": language, "url": site.url}])
    alice_page.goto("/index")
    durations = "async (url) => { const charts = await import(url); return [0, 1.5, 3723].map(charts.duration); }"
    shown = alice_page.evaluate(durations, site.url + static("mlp/charts/format.js"))
    assert shown == [f"0 {second}", f"1.5 {second}", "1:02:03"]
    marks = "async (url) => { const charts = await import(url); return charts.ticksOf('time', [0, 0.25, 0.5, 0.75]); }"
    marks = alice_page.evaluate(marks, site.url + static("mlp/charts/format.js"))
    assert len(set(marks)) == 4, "of a moment, too: an axis of one point is a second long"

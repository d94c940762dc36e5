"""Pages do not move while they load: the sum of Chromium's layout shifts stays below 0.05 (1 is the whole window)."""

from __future__ import annotations

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from jobs.models import Job, Project, RunMetric, RunParam, Value
from mlp.operators.tests.admin_world import put
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db(transaction=True)
MAX = 0.05
# Those within half a second of an input are the user's.
SHIFTS = """() => new Promise((done) => {
    let sum = 0;
    new PerformanceObserver((list) => {
        for (const one of list.getEntries()) if (!one.hadRecentInput) sum += one.value;
    }).observe({ type: "layout-shift", buffered: true });
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => done(sum), 0)));
})"""


@pytest.fixture
def runs(alice):
    """Twelve runs of a project, each with three series."""
    project = Project.objects.default_of(alice)
    for place in range(12):
        job = put(Job, alice, f"run-{place}", "running" if place == 11 else "finished")
        Job.objects.filter(pk=job.pk).update(project=project, started=timezone.now(), args=["--lr", f"0.{place}"])
        RunParam.objects.create(job=job, user=alice, name="lr", text=f"0.{place}", number=place / 10)
        for name in ("f1", "loss_train", "norm"):
            RunMetric.objects.create(job=job, user=alice, name=name, last=place, min=0, max=place, count=30, step=29)
            Value.objects.bulk_create(
                Value(job=job, name=name, step=step, value=place / (step + 1), at=timezone.now(), msg_id=str(step))
                for step in range(30)
            )


@pytest.mark.parametrize("width", few([1280, 360], 1))
@pytest.mark.parametrize(
    ("address", "charts"),
    few(
        [
            ("/jobs", 0),
            ("/jobs/run-11", 3),
            ("/projects/default", 2),
            ("/compare?job=run-1&job=run-2&job=run-3", 3),
            ("/jobs/run-1/log", 0),
        ],
        1,
    ),
)
def test_a_page_does_not_move_while_it_loads(alice_page, runs, address, charts, width):
    alice_page.set_viewport_size({"width": width, "height": 800})
    alice_page.goto(address)
    drawn = alice_page.locator("figure.chart canvas")
    if charts:
        expect(drawn.nth(charts - 1)).to_be_attached()  # those out of sight are drawn later
    else:
        alice_page.wait_for_load_state("networkidle")
    assert alice_page.evaluate(SHIFTS) <= MAX

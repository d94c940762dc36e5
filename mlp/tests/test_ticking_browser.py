"""What time alone changes on a page of what runs: it moves without a reload, and without an event."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from jobs.models import Job
from kernel import storage
from mlp.operators.tests.admin_world import put

from .browser_world import LIVE_MS

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def running(alice) -> Job:
    job = put(Job, alice, "fit", "running")
    job.started, job.progress = timezone.now() - timedelta(hours=1), 25
    job.save()
    return job


class Refreshes:
    """Holds back what a page asks for by itself: an answer would set its durations to what they really are."""

    def __init__(self, page):
        self.hold = True
        self.held: list = []
        page.route("**/*", self._route)

    def _route(self, route) -> None:
        if self.hold and route.request.resource_type == "fetch":
            self.held.append(route)
        else:
            route.continue_()

    def let_go(self) -> None:
        self.hold = False
        for route in self.held:
            route.continue_()


@pytest.mark.long
def test_the_remaining_time_in_the_list_is_counted_down(alice_page, running, browser_errors):
    Refreshes(alice_page)
    alice_page.clock.install()
    alice_page.goto("/jobs")
    left = alice_page.locator("table [data-ticking]")
    expect(left).to_have_text(re.compile("^about (3 h 0|2 h 59) min left$"), timeout=LIVE_MS)
    alice_page.clock.fast_forward("01:30:00")
    expect(left).to_have_text(re.compile("^about 1 h (30|2[0-9]) min left$"), timeout=LIVE_MS)
    assert browser_errors == []


def test_a_running_jobs_page_counts_and_finds_new_output(alice_page, running, browser_errors):
    refreshes = Refreshes(alice_page)
    alice_page.clock.install()
    alice_page.goto("/jobs/fit")
    ran = alice_page.locator(".page-head [data-ticking]").first
    expect(ran).to_have_text(re.compile("^running for 1 h [0-9] min$"), timeout=LIVE_MS)
    alice_page.clock.fast_forward("01:30:00")
    expect(ran).to_have_text(re.compile("^running for 2 h 3[0-9] min$"), timeout=LIVE_MS)
    (storage.job_dir("alice", "fit") / "ckpt").mkdir(parents=True)
    (storage.job_dir("alice", "fit") / "ckpt" / "epoch-3.pt").write_text("weights")
    refreshes.let_go()
    alice_page.clock.fast_forward("00:16")
    expect(alice_page.locator("main")).to_contain_text("epoch-3.pt", timeout=LIVE_MS)
    assert browser_errors == []

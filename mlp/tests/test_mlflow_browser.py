"""The page of a run that an MLflow client reports, and the page that connects a client, in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from accounts import lifecycle as accounts
from jobs.models import Job
from tracking.mlflow.snippets import LIBRARIES, text
from tracking.mlflow.tests.conftest import Mlflow
from tracking.mlflow.tests.test_tracking import point, start

from .browser_world import in_another_thread, open_live

pytestmark = [pytest.mark.e2e]


@pytest.mark.long
def test_the_charts_of_a_clients_run_are_drawn(alice_page, alice, browser_errors):
    mlflow = Mlflow(accounts.token_of(alice))
    run = start(mlflow, run_name="far")
    points = [point(f"k{place % 3}", place / 7, step=place // 3 - 3) for place in range(30)]
    mlflow.call("post", "runs/log-batch", run_id=run, metrics=points)
    alice_page.goto(f"/jobs/{Job.objects.get(run_id=run).name}")
    alice_page.locator("[data-charts] canvas").first.wait_for()
    assert browser_errors == []


def test_a_snippet_is_copied_with_the_token_and_the_first_run_is_seen_to_arrive(alice_page, alice, browser_errors):
    token = accounts.token_of(alice)
    alice_page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_live(alice_page, "/connect?for=keras")
    alice_page.get_by_text("Notebook", exact=True).click()
    snippet = alice_page.locator("pre:visible")
    expect(snippet).to_have_attribute("id", "keras-notebook")
    hidden = snippet.locator(".masked")
    assert hidden.evaluate("element => getComputedStyle(element).fontSize") == "0px"
    alice_page.locator(".snippet:visible [data-copy]").click()
    copied = alice_page.evaluate("navigator.clipboard.readText()")
    assert copied == text(LIBRARIES[4], "notebook", alice_page.url.partition("/connect")[0]).whole(token).strip()
    alice_page.get_by_label("Show token").check()
    expect(hidden).to_have_css("font-size", re.compile("^1"))
    in_another_thread(lambda: start(Mlflow(token), run_name="far away"))
    expect(alice_page.get_by_role("heading", name="Your first run has arrived")).to_be_visible()
    expect(snippet).to_have_attribute("id", "keras-notebook")  # as chosen, though the page was fetched again
    alice_page.get_by_role("link", name="far away").click()
    expect(alice_page).to_have_url(re.compile("/jobs/faraway[a-z]{10}$"))
    assert browser_errors == []

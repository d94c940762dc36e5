"""From a finished job to a model and a responding application, in a real browser with real workers and runs."""

from __future__ import annotations

import shutil
import threading

import dramatiq
import pytest
from django.db import connection
from playwright.sync_api import expect

import apps.reconcile
import models_app.reconcile
import runners
from apps.models import Application
from apps.tests.conftest import ADDER
from jobs.models import Job
from kernel import storage
from kernel.broker import broker
from mlp.operators.tests.admin_world import put
from mlp.tests.patience import LIMIT_S

from .browser_world import loads

pytestmark = pytest.mark.django_db(transaction=True)

WAIT_MS = 1000 * LIMIT_S


@pytest.fixture
def working(site):
    """Run the workers and the reconcile loop, as the platform does."""
    stop = threading.Event()

    def reconcile() -> None:
        while not stop.wait(0.3):
            models_app.reconcile.run()
            apps.reconcile.run()
        connection.close()

    worker = dramatiq.Worker(broker(), queues={"default", "files"}, worker_threads=2, worker_timeout=100)
    worker.start()
    loop = threading.Thread(target=reconcile)
    loop.start()
    yield
    stop.set()
    loop.join()
    worker.stop()
    runners.get().stop_all(grace=0)
    shutil.rmtree(storage.root() / "apps", ignore_errors=True)


@pytest.mark.long
def test_two_clicks_lead_from_a_finished_job_to_an_application_that_answers(alice_page, alice, browser_errors, working):
    put(Job, alice, "fit", "finished")
    folder = storage.job_dir("alice", "fit") / "net"
    folder.mkdir(parents=True)
    (folder / "predictor.py").write_text(ADDER)

    alice_page.goto("/jobs/fit")
    alice_page.click("form[action='/models'] button")
    alice_page.wait_for_url("**/models/fit")
    loaded = loads(alice_page)
    deploy = alice_page.locator("form[action='/apps'] button")
    expect(deploy).to_be_visible(timeout=WAIT_MS)  # by itself, once the model is proven to load
    assert loaded == []

    deploy.click()
    alice_page.wait_for_url("**/apps/fit")
    expect(alice_page.locator("h1 .state")).to_have_text("ready", timeout=WAIT_MS)
    loaded = loads(alice_page)
    expect(alice_page.locator("#input")).to_have_value('{"x": [0.5]}')
    alice_page.fill("#input", '{"x": [0.5, 41]}')
    alice_page.click("[data-try] button")
    expect(alice_page.locator("[data-answer]")).to_contain_text("[1.5, 42.0]", timeout=WAIT_MS)
    expect(alice_page.locator("[data-answer] .best")).to_contain_text("42")
    expect(alice_page.locator("[data-log]")).to_contain_text("serving fit")
    expect(alice_page.locator("[data-requests]")).to_have_text(
        "1", timeout=WAIT_MS
    )  # the gateway counts the request and updates the page
    alice_page.fill("#input", "{")
    alice_page.click("[data-try] button")
    expect(alice_page.locator("[data-answer]")).to_contain_text("must be JSON")
    expect(alice_page.locator("#input")).to_have_attribute("aria-invalid", "true")
    assert loaded == []
    assert [trouble for trouble in browser_errors if "403" not in trouble] == []
    assert Application.objects.get().model.name == "fit"

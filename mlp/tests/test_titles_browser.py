"""Titles in a real browser: the form asks for one and proposes the name that the server makes from it."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from datasets.models import Dataset
from jobs.models import Job, RunMetric
from mlp.operators.tests.admin_world import put

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.long
def test_a_title_is_enough_and_is_changed_on_the_page(alice_page):
    alice_page.goto("/jobs?new=1")
    alice_page.fill("#title", "Größe 7 训练")
    expect(alice_page.locator("#name")).to_have_attribute("placeholder", "groe")
    alice_page.fill("#entry", "train.py")
    alice_page.click("form[data-draft=job] .submit button")
    alice_page.wait_for_url("**/jobs/groe")
    expect(alice_page.locator("h1")).to_contain_text("Größe 7 训练")
    alice_page.click("[data-region=labels] summary")
    alice_page.fill("#run-title", "baseline <2>")
    alice_page.click("[data-region=labels] details button")
    expect(alice_page.locator("h1")).to_contain_text("baseline <2>")
    alice_page.goto("/jobs")
    expect(alice_page.locator("th.name a")).to_have_text("baseline <2>")


@pytest.mark.long
def test_long_titles_are_cut_where_jobs_are_compared(alice_page, alice):
    for name in ("one", "two"):
        put(Job, alice, name, "finished")
    Job.objects.update(title="many words " * 18, progress=42)
    for name, last in {"fid": 0.1234567, "loss": 2}.items():
        job = Job.objects.get(name="one")
        RunMetric.objects.create(job=job, user=alice, name=name, last=last, min=last, max=last, count=1, step=1)
    alice_page.set_viewport_size({"width": 390, "height": 800})
    for address in ("/compare?job=one&job=two", "/jobs/one", "/jobs", "/jobs?new=1"):
        alice_page.goto(address)
        expect(alice_page.locator("main")).not_to_contain_text("#}")
        assert alice_page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
        if address == "/jobs":
            state = alice_page.locator("form[data-runs] tbody .state").first.bounding_box()
            assert state["x"] + state["width"] <= 390  # in sight beside the name
            below = alice_page.locator("form[data-runs] tbody .below-name")
            expect(below).to_have_text(["42 %", "42 % · fid 0.1235"])  # the first metric of the table's columns
            box = below.last.bounding_box()
            assert box["x"] + box["width"] <= 390
            alice_page.set_viewport_size({"width": 1280, "height": 800})
            expect(below.first).to_be_hidden()  # the columns say it
            alice_page.set_viewport_size({"width": 390, "height": 800})


def test_an_upload_with_a_title_alone_gets_a_free_name(alice_page, alice, tmp_path):
    put(Dataset, alice, "dataset", "ready")
    alice_page.goto("/datasets?new=1")
    alice_page.fill("#title", "训练")
    (tmp_path / "a.csv").write_text("1")
    alice_page.locator("input[type=file]:not([webkitdirectory])").set_input_files(tmp_path / "a.csv")
    with alice_page.expect_response(
        lambda response: response.request.method == "POST" and response.url.endswith("/datasets")
    ) as creation:
        alice_page.click("[data-upload-button]")
    assert creation.value.status == 201
    assert Dataset.objects.get(name="datasetb").title == "训练"

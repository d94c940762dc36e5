"""Forms in a real browser: double clicks, the back button, expired sessions, and servers that go away."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.sessions.models import Session
from playwright.sync_api import expect

from accounts.models import Preference, User
from conftest import PASSWORD
from datasets.models import Dataset
from jobs.models import Diagnosis, Job
from kernel import storage
from mlp.operators.tests.admin_world import put
from mlp.tests.tiers import few

from .browser_world import in_another_thread

pytestmark = pytest.mark.django_db(transaction=True)

JOB = {"name": "typed", "entry": "train.py", "args": "--epochs 3", "ram": "777", "env": "A=1\nB=two words"}
DATASET = {"name": "typed", "size": "12345"}
SETTINGS = {"email": "a@example.org"}
SCRIPT = {"path": "typed.py", "text": "print('a long\\nstory')\n"}
# address, the form, what is typed, where a success leads to, how many of the thing there are then
FORMS = {
    "job": ("/jobs?new=1", "form[data-draft=job]", JOB, "**/jobs/typed", lambda: Job.objects.count()),
    "dataset": ("/datasets?new=1", "form[data-draft=dataset]", DATASET, "**/datasets/typed", Dataset.objects.count),
    "script": ("/scripts/new", "form[data-draft]", SCRIPT, "**/scripts/edit/typed.py", lambda: len(written())),
    "settings": (
        "/settings", "form[data-draft=settings]", SETTINGS, "**/settings",
        Preference.objects.filter(email="a@example.org").count,
    ),
}  # fmt: skip


def written() -> list:
    return list(storage.home_dir("alice").glob("typed.py"))


class Form:
    """One of FORMS on alice's page."""

    def __init__(self, page, name: str):
        self.page = page
        self.address, selector, self.typed, self.target, self.count = FORMS[name]
        self.form = page.locator(selector)

    def open(self) -> None:
        self.page.goto(self.address)
        if self.form.locator("details.more").count():
            self.form.locator("details.more").evaluate_all("boxes => boxes.forEach((box) => { box.open = true; })")
        for name, value in self.typed.items():
            self.form.locator(f"[name={name}]").fill(value)

    def holds(self) -> None:
        for name, value in self.typed.items():
            expect(self.form.locator(f"[name={name}]")).to_have_value(value)

    def send(self, twice: bool = False) -> None:
        button = self.form.locator("button.primary").last
        if twice:
            button.dblclick()
        else:
            button.click()


@pytest.fixture(params=few(FORMS, 1))
def form(request, alice_page):
    return Form(alice_page, request.param)


def test_a_double_click_and_the_back_button_submit_once(form):
    form.open()
    form.send(twice=True)
    form.page.wait_for_url(form.target)
    expect(form.page.locator("main")).to_be_visible()
    assert form.count() == 1
    form.page.wait_for_load_state()
    form.page.go_back()
    expect(form.form).to_be_attached()
    form.form.locator("button.primary").last.evaluate("button => button.form.requestSubmit(button)")
    form.page.wait_for_load_state()
    assert form.count() == 1


def test_input_survives_an_expired_session(form, alice):
    known = PBKDF2PasswordHasher().encode(PASSWORD, "salt", 1000)  # the tests' own hasher is none of the server's
    form.open()
    User.objects.filter(pk=alice.pk).update(password=known)
    in_another_thread(lambda: Session.objects.all().delete())
    form.send()
    form.page.wait_for_url(re.compile(r"/regist_login\?next="))
    assert form.count() == 0
    form.page.fill("#username", "alice")
    form.page.fill("#password", PASSWORD)
    form.page.click("button[value=login]")
    form.page.wait_for_url(re.compile(r"/(jobs|datasets|scripts|settings)"))
    form.holds()
    form.send()
    form.page.wait_for_url(form.target)
    expect(form.page.locator("main")).to_be_visible()
    assert form.count() == 1


def test_input_survives_a_server_outage(form, site):
    form.open()
    site.stop()
    form.send()
    form.page.wait_for_url(re.compile("^chrome-error:"))
    site.start()
    form.page.goto(form.address)
    form.holds()
    form.send()
    form.page.wait_for_url(form.target)
    expect(form.page.locator("main")).to_be_visible()
    assert form.count() == 1


@pytest.mark.long
def test_input_survives_an_outdated_form_until_it_is_submitted(alice_page):
    form = Form(alice_page, "job")
    form.open()
    # the form's own token, not the cookie: an answer that is still on its way would bring that back
    form.form.locator("[name=csrfmiddlewaretoken]").evaluate("field => { field.value = 'x'.repeat(64); }")
    form.send()
    expect(alice_page.locator(".wrong .code")).to_have_text("403")
    alice_page.goto(form.address)
    form.holds()
    form.send()
    alice_page.wait_for_url(form.target)
    expect(alice_page.locator("main")).to_contain_text("train.py")
    alice_page.goto(form.address)
    expect(form.form.locator("[name=name]")).to_have_value("")


@pytest.mark.long
def test_a_failed_job_leads_to_its_line_and_is_run_again_with_more_memory(alice_page, alice, home):
    (home / "train.py").write_text("import numpy\n\nnumpy.zeros(10**12)\n")

    def fail():
        job = put(Job, alice, "hungry", "error")
        Diagnosis.objects.create(
            job=job, title="Out of memory", error="MemoryError", exception="MemoryError", file="train.py", line=3,
            code="numpy.zeros(10**12)", action="more_memory", facts={"more_ram": 1024},
        )  # fmt: skip

    in_another_thread(fail)
    alice_page.goto("/jobs/hungry")
    alice_page.get_by_role("link", name="train.py:3").click()
    editor = alice_page.locator("[data-editor]")
    expect(editor).to_be_focused()
    assert editor.evaluate("one => one.value.slice(one.selectionStart, one.selectionEnd)") == "numpy.zeros(10**12)"
    alice_page.goto("/jobs/hungry")
    alice_page.get_by_role("button", name="Run again with 1024 MiB").click()
    alice_page.wait_for_url("**/jobs/hungryb")
    assert Job.objects.get(name="hungryb").ram == 1024


@pytest.mark.long
def test_the_code_of_a_job_is_shown_and_a_clone_runs_its_edited_text(alice_page):
    form = Form(alice_page, "job")
    form.open()
    form.send()
    alice_page.wait_for_url(form.target)
    alice_page.get_by_role("link", name="Code", exact=True).click()
    expect(alice_page.locator(".source .hb")).to_have_text("print")
    alice_page.locator(".source .line a").first.click()
    alice_page.wait_for_url(re.compile(r"#train\.py:L1$"))
    alice_page.get_by_role("link", name="Clone and edit").click()
    alice_page.locator("[name=script]").fill("print('edited')\n")
    form.form.locator("button.primary").last.click()
    alice_page.wait_for_url("**/jobs/typedb")
    alice_page.goto("/jobs/typed/code/diff?with=typedb")
    expect(alice_page.locator(".diff .new code")).to_have_text("+print('edited')")
    assert (storage.home_dir("alice") / "train.py").read_text() == "print('hello')\n"


@pytest.mark.parametrize("address", ["/scripts", "/datasets?new=1"])
def test_a_folder_that_is_dropped_is_chosen_with_all_that_is_in_it(alice_page, tmp_path, address):
    """By the browser's own drag events: no script can make one with a folder."""
    folder = tmp_path / "resnet"
    for path in ("train.py", "lib/deep/net.py", "lib/.DS_Store"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("pass\n")
    alice_page.goto(address)
    area = alice_page.locator("[data-drop]")
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    data = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
    devtools = alice_page.context.new_cdp_session(alice_page)
    for kind in ("dragEnter", "dragOver", "drop"):
        devtools.send("Input.dispatchDragEvent", {"type": kind, "data": data, **place})
    picked = alice_page.locator("[data-picked]")
    expect(picked).to_contain_text("2 · 10 B")
    expect(picked).to_contain_text(re.compile(r"\.DS_Store.* 1$"))

"""Why jobs failed: real scripts that fail, their diagnosis by REST, and the way in which it is stored."""

from __future__ import annotations

import json

import pytest
from django.utils import timezone

from accounts.delivery import as_object
from accounts.models import Notice, Share
from jobs import environment, lifecycle, reconcile
from jobs.doctor import diagnose
from jobs.models import Diagnosis, FailureRule, Job
from kernel import storage
from mlp.tests.page_world import EVIL, markup, visible_text, visitor
from mlp.tests.tiers import few, later

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks")]

MISSING = "import os\n\n\ndef load():\n    import cv2_missing.core\n\n\nload()\n"
CHAINED = """
try:
    {}["digits"]
except KeyError as problem:
    raise ValueError("no data") from problem
"""
CUDA = """Traceback (most recent call last):
  File "/scripts/train.py", line 3, in <module>
    model.to("cuda")
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB.
"""
FAILURES = {
    "module": (MISSING, "module", "form", 5, "import cv2_missing.core"),
    "file": ("open('data.csv')\n", "file", "upload_script", 1, "open('data.csv')"),
    "dataset": (
        "import os\nopen(os.environ['MLP_DATASETS'] + '/digits/train.csv')\n", "dataset", "dataset", 2,
        "open(os.environ['MLP_DATASETS'] + '/digits/train.csv')",
    ),
    "syntax": ("x = 1\ny = = 2\n", "syntax", "edit", 2, "y = = 2"),
    "read": ("open('/scripts/x', 'w')\n", None, None, 1, "open('/scripts/x', 'w')"),
    "nan": (
        "for n in range(3):\n    print('epoch', n + 11, 'nan' if n else 0.5)\nraise ValueError('loss is nan')\n",
        "nan", "chart", 3, "raise ValueError('loss is nan')",
    ),
    "chain": (CHAINED, "", "edit", 5, 'raise ValueError("no data") from problem'),
    "numpy": ("import numpy\nnumpy.zeros((2, 3)) @ numpy.zeros((2, 3))\n", "shapes", "edit", 2,
              "numpy.zeros((2, 3)) @ numpy.zeros((2, 3))"),
    "exit": ("import sys\nsys.exit(2)\n", "usage", "form", None, ""),
    "arguments": ("import argparse\nargparse.ArgumentParser().parse_args(['--what'])\n", "arguments", "form", None, ""),
    "segment": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "crash", "form", None, ""),
    "term": ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n", "interrupt", "again", None, ""),
}  # fmt: skip
QUICK = {"module", "dataset", "syntax", "nan", "exit", "segment"}  # the rules have quick tests: test_doctor_rules.py


def diagnosis_of(as_alice, name: str = "fit") -> dict:
    response = as_alice.call("get", f"users/alice/jobs/{name}/diagnosis")
    assert response.status_code == 200, response.content
    return response.json()


@pytest.mark.parametrize("case", few([case if case in QUICK else later(case) for case in FAILURES], 2))
def test_real_failures(submit, until, as_alice, case):
    script, rule, action, line, code = FAILURES[case]
    job = until(submit(script), "error")
    said = diagnosis_of(as_alice)
    assert (said["line"], said["code"]) == (line, code), (said, job.reason)
    assert said["file"] == ("train.py" if line else "")
    assert said["title"]
    if rule is not None:
        assert (said["rule"], said["action"]) == (rule, action), (said, job.reason)
    if case == "module":
        assert said["facts"]["package"] == "cv2-missing"
    if case == "nan":
        assert said["facts"]["epoch"] == 12
        assert "first seen in epoch 12" in said["explanation"]
    if case == "chain":
        assert (said["title"], said["error"]) == ("The script raised ValueError", "ValueError")
        assert "KeyError" not in said["exception"]
    assert str(storage.root()) not in json.dumps(said)
    assert as_alice.call("get", "users/alice/jobs/fit").json()["diagnosis"] == said["title"]


def test_out_of_memory_offers_twice_the_memory_within_the_capacity(submit, until, as_alice, default_tenant):
    job = until(submit("x = [bytearray(1 << 20) for _ in range(4000)]\n", ram=150), "error")
    said = diagnosis_of(as_alice)
    assert (said["rule"], said["action"], said["facts"]["more_ram"]) in [
        ("memory", "more_memory", 300), ("allocation", "more_memory", 300),
    ], job.reason  # fmt: skip
    response = as_alice.call("post", "users/alice/jobs/fit:rerun", {"ram": 300})
    assert response.status_code == 201, response.content
    assert (response.json()["name"], response.json()["ram"]) == ("fitb", 300)
    assert as_alice.refused("post", "users/alice/jobs/fit:rerun", {"ram": 9}).startswith("ram: ")
    assert as_alice.refused("post", "users/alice/jobs/fit:rerun", {"rom": 9}).startswith("rom: ")
    lifecycle.cancel(user=job.user, name="fitb", by="test")
    type(default_tenant).objects.update(ram=150, ram_inuse=0)
    assert diagnose.examine(Job.objects.get(pk=job.pk), "out of memory (requested 150 MiB)")["action"] == ""


@pytest.mark.parametrize("reason", ["out of memory (requested 512 MiB), exit code 1", "exit code 1"])
def test_a_gpu_that_is_full_is_no_lack_of_the_machines_memory(submit, until, as_alice, reason):
    """Whatever the end of the run looks like from outside: more memory for the job would not help."""
    job = submit()
    path = environment.log_path(job)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CUDA)
    diagnosis = diagnose.examine(job, reason)
    assert (diagnosis["rule"], diagnosis["title"], diagnosis["action"]) == (
        "gpu_memory",
        "The GPU is out of memory",
        "edit",
    )


def test_the_notice_has_the_diagnosis_and_a_second_look_changes_nothing(submit, until, as_alice):
    job = until(submit(MISSING), "error")
    notice = Notice.objects.get(kind="job", event="error")
    assert notice.advice == "The module cv2_missing is missing"
    assert as_object(notice)["diagnosis"] == "The module cv2_missing is missing"
    before = Diagnosis.objects.values().get()
    diagnose.diagnose(job.pk)
    assert Diagnosis.objects.values().get() == before


def test_a_failure_that_no_runner_saw_is_examined_later_and_after_a_kill(submit, as_alice, tasks):
    job = submit("print('hello')")
    tasks.queue.clear()
    lifecycle.fail(job.pk, "could not be started: no runner", by="test")
    tasks.queue.clear()  # the task is lost with its process
    assert "no such diagnosis" in as_alice.refused("get", "users/alice/jobs/fit/diagnosis")
    reconcile.run()
    assert diagnosis_of(as_alice)["rule"] == "not_started"
    assert not diagnose.undiagnosed(10)


def test_a_cancelled_job_and_a_running_one_have_none(submit, as_alice, alice):
    job = submit()
    assert "only a failed job has a diagnosis" in as_alice.refused("get", "users/alice/jobs/fit/diagnosis")
    lifecycle.cancel(user=alice, name="fit", by="test")
    reconcile.run()
    assert "no such diagnosis" in as_alice.refused("get", "users/alice/jobs/fit/diagnosis")
    assert not Diagnosis.objects.filter(job=job).exists()


def test_whatever_is_in_the_log_the_failure_is_recorded(submit, until, as_alice, monkeypatch):
    monkeypatch.setattr(diagnose, "last_exception", lambda *_: 1 / 0)
    until(submit("raise SystemExit(1)"), "error")
    assert diagnosis_of(as_alice)["title"] == "The script ended with an error"


def test_an_administrators_rule_comes_first_and_speaks_both_languages(submit, until, as_alice):
    FailureRule.objects.create(
        title="Licence server", title_zh="许可证服务器", example="no licence for x",
        pattern=r"no licence for (?P<tool>\w+)",
        explanation="Ask for %(tool)s.", explanation_zh="请申请 %(tool)s。", order=1,
    )  # fmt: skip
    until(submit("raise RuntimeError('no licence for abaqus')"), "error")
    said = diagnosis_of(as_alice)
    assert (said["title"], said["explanation"]) == ("Licence server", "Ask for abaqus.")
    assert said["facts"]["tool"] == "abaqus"
    assert Diagnosis.objects.get().local["zh-hans"]["explanation"] == "请申请 abaqus。"


@pytest.mark.long
def test_another_users_failure_looks_like_a_missing_job(submit, until, as_bob, as_staff):
    until(submit(MISSING), "error")
    for path in ("diagnosis", "queue"):
        assert as_bob.refused("get", f"users/alice/jobs/fit/{path}") == "job: no such job"
    assert as_bob.refused("post", "users/alice/jobs/fit:rerun", {}) == "job: no such job"
    assert as_staff.call("get", "users/alice/jobs/fit/diagnosis").status_code == 200
    assert timezone.now() >= Diagnosis.objects.get().at


class TestPages:
    def test_a_failed_jobs_page_begins_with_the_reason(self, submit, until, alice, bob):
        job = until(submit(CHAINED), "error")
        page = visitor(alice).get("/jobs/fit")
        text = visible_text(page)
        assert "The script raised ValueError" in text
        assert "ValueError: no data" in text
        assert "Raised from: KeyError: 'digits'" in text
        assert 'raise ValueError("no data") from problem' in text
        line = "/jobs/fit/code?file=train.py#train.py:L5"  # of the code that ran, whatever the script is by now
        assert line in [attrs.get("href") for _, attrs in markup(page).tags]
        assert 'id="train.py:L5"' in visitor(alice).get(line.partition("#")[0]).text
        Share.objects.create(owner=alice, kind="job", object_id=job.pk, name="fit", audience="user", user=bob)
        assert f'href="/u/alice{line}"' in visitor(bob).get("/u/alice/jobs/fit").text
        Job.objects.update(snapshot=None)
        assert "/scripts/edit/train.py#L5" in visitor(alice).get("/jobs/fit").text
        assert "/scripts/edit" not in visitor(bob).get("/u/alice/jobs/fit").text
        assert markup(page).inline == []
        assert "The script raised ValueError" in visible_text(visitor(alice).get("/jobs"))
        assert "The script raised ValueError" in visible_text(visitor(alice).get("/notifications"))

    def test_the_button_runs_it_again_with_twice_the_memory(self, submit, until, alice):
        job = until(submit("raise MemoryError('no')\n", ram=200), "error")
        browser = visitor(alice)
        assert "Run again with 400 MiB" in visible_text(browser.get("/jobs/fit"))
        assert browser.post("/jobs/fit/rerun", {"ram": "400"})["Location"] == "/jobs/fitb"
        rerun = Job.objects.get(name="fitb")
        assert (rerun.ram, rerun.entry, rerun.args) == (400, job.entry, job.args)
        refused = browser.post("/jobs/fit/rerun", {"ram": "99999"}, follow=True)
        assert "ram" in visible_text(refused)

    @pytest.mark.long
    def test_the_page_speaks_chinese(self, submit, until, alice):
        until(submit(MISSING), "error")
        text = visible_text(visitor(alice, HTTP_ACCEPT_LANGUAGE="zh-hans").get("/jobs/fit"))
        assert "缺少模块 cv2_missing" in text
        assert "软件包 cv2-missing" in text

    @pytest.mark.long
    def test_hostile_words_are_text(self, submit, until, alice):
        until(submit(f"raise RuntimeError({EVIL!r})\n"), "error")
        page = visitor(alice).get("/jobs/fit")
        assert markup(page).inline == []
        assert EVIL in visible_text(page)

    def test_a_queued_jobs_page_says_why(self, submit, alice, bob):
        Job.objects.bulk_create([Job(user=bob, tenant=bob.tenant, name="secret", entry="train.py", cpu=8, ram=100)])
        submit("pass", "mine", cpu=8)
        page = visitor(alice).get("/jobs/mine")
        text = visible_text(page)
        assert "Position 2 of 2 in the queue" in text
        assert "1 job of other users" in text
        assert "secret" not in text
        assert "Position 2." in visible_text(visitor(alice).get("/jobs"))

"""The processes of a running job over REST and on its page (docs/jobs.md)."""

from __future__ import annotations

import time

import pytest

import runners
from accounts.sharing import grants
from jobs import processes
from kernel.masking import HIDDEN
from mlp.tests.page_world import visible_text, visitor
from mlp.tests.patience import LIMIT_S, rest
from runners import RunnerError
from runners.processes import Now, WorkerUse

pytestmark = pytest.mark.django_db(transaction=True)

URL = "users/alice/jobs/fit/processes"
WORKS = "import time\nheld = bytearray(b'x') * (64 << 20)\nwhile True: sum(range(20_000)); time.sleep(0.01)"
ARGS = ["--password", "hunter22", "key:open-sesame", "<b>\n\x1b[31m", "x" * 600]


def seen(client, enough) -> dict:
    """Return the answer once it is enough."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        answer = client.call("get", URL)
        assert answer.status_code == 200, answer.content
        if enough(answer.json()):
            return answer.json()
        rest()
    raise AssertionError(answer.json())


def test_a_running_job_shows_its_processes_without_secrets(submit, until, as_alice, as_bob, alice):
    job = until(submit(WORKS, args=ARGS, env={"API_TOKEN": "open-sesame"}, cpu=0.5, ram=400), "running")
    answer = seen(as_alice, lambda answer: answer["cpu"] > 0 and answer["ram"] >= 64)
    (row,) = answer["processes"]
    assert f"train.py --password {HIDDEN} key:{HIDDEN} <b>  [31m xxx" in row["command"]
    assert (len(row["command"]), row["command"][-1]) == (processes.LONGEST, "…")
    assert (row["parent"], row["worker"], row["cpu"]) == (0, 0, answer["cpu"])
    assert 64 <= row["ram"] <= row["rss"] + 0.1 < 400
    assert answer["workers"] == [{"worker": 0, "cpu": answer["cpu"], "ram": answer["ram"], "processes": 1}]
    assert answer["limits"] == {"cpu": 0.5, "ram": 400.0, "gpu": 0.0}
    assert (answer["note"], answer["left_out"], answer["gpu"]) == ("", 0, None)

    assert as_bob.call("get", URL).status_code == 403
    grants.make(row=job, audience="user", user="bob", by="alice")
    (shared,) = as_bob.call("get", URL).json()["processes"]
    assert shared["command"].startswith("python")
    assert " " not in shared["command"]

    browser = visitor(alice)
    assert 'hx-get="/jobs/fit/processes"' in browser.get("/jobs/fit").content.decode()
    part = browser.get("/jobs/fit/processes")
    assert {"hunter22", "open-sesame", "<b>"}.isdisjoint(part.content.decode().split())
    assert f"--password {HIDDEN}" in visible_text(part)
    assert "mlp attach fit" in visible_text(part)
    assert "CPU" in visible_text(part)


def test_a_job_that_does_not_run_has_none(submit, until, as_alice, alice):
    until(submit("print('done')"), "finished")
    answer = as_alice.call("get", URL)
    assert (answer.status_code, answer.json()["msg"]) == (
        403,
        "state: the job is finished; only a running job has processes",
    )
    assert as_alice.call("get", "users/alice/jobs/none/processes").status_code == 403
    browser = visitor(alice)
    assert "jobs/fit/processes" not in browser.get("/jobs/fit").content.decode()
    assert browser.get("/jobs/fit/processes").content.strip() == b""


def test_what_is_known_of_workers_alone_is_shown_with_the_reason(submit, until, as_alice, alice, monkeypatch):
    until(submit("import time; time.sleep(600)"), "running")
    now = Now(1.0, workers=(WorkerUse(0, 0.5, 3 << 20), WorkerUse(1, 1.25, 5 << 20)), note="Not each process.")
    monkeypatch.setattr(runners.get(), "now", lambda name: now)
    answer = as_alice.call("get", URL).json()
    assert (answer["cpu"], answer["ram"], answer["processes"], answer["note"]) == (1.75, 8.0, [], "Not each process.")
    assert [worker["processes"] for worker in answer["workers"]] == [None, None]
    assert "1.25" in (shown := visible_text(visitor(alice).get("/jobs/fit/processes")))
    assert "Not each process." in shown

    def fails(name):
        raise RunnerError("the cluster is away")

    monkeypatch.setattr(runners.get(), "now", fails)
    answer = as_alice.call("get", URL)
    assert (answer.status_code, answer.json()["msg"]) == (503, "the cluster is away")
    assert "the cluster is away" in visible_text(visitor(alice).get("/jobs/fit/processes"))


@pytest.mark.long
def test_those_that_use_the_most_are_listed(submit, until, as_alice, monkeypatch):
    monkeypatch.setattr(processes, "LISTED", 1)
    script = "import subprocess, sys, time\nhold = 'import time; x = b\"x\" * (96 << 20); time.sleep(600)'\n"
    until(submit(script + "subprocess.Popen([sys.executable, '-c', hold]).wait()"), "running")
    answer = seen(as_alice, lambda answer: answer["left_out"] == 1 and answer["ram"] > 96 and answer["cpu"] == 0)
    assert [row["ram"] > 96 for row in answer["processes"]] == [True]
    assert answer["workers"][0]["processes"] == 2

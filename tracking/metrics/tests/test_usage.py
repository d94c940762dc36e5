"""The resource usage of a job over time, as measured by the runner: over REST, and on its page."""

from __future__ import annotations

import json

import pytest

from kernel import storage

pytestmark = pytest.mark.django_db(transaction=True)

WORK = """
import pathlib, sys, time
began = time.monotonic()
held = bytearray(b"x") * (96 << 20)
pathlib.Path("out.bin").write_bytes(held[:24 << 20])
busy, end, share = began + 1.6, began + 300, 0
log = pathlib.Path("log/usage.jsonl")
def measured():  # the disk is measured by itself, more rarely
    text = log.read_text() if log.exists() else ""
    return not text.count("after") < 4 and any(f'"disk": {mib}' in text for mib in range(24, 40))
while time.monotonic() < end and not measured():
    if time.monotonic() < busy:  # for the first two samples
        sum(range(100000))
        share = time.process_time() / (time.monotonic() - began)
    else:
        time.sleep(0.05)
pathlib.Path("share").write_text(str(share))
sys.exit(int(sys.argv[1]))
"""


def usage_of(client, query: str = "?points=100") -> dict:
    answer = client.call("get", f"users/alice/jobs/fit/usage{query}")
    assert answer.status_code == 200
    assert answer["X-Total-Count"] == str(len(answer.json()))
    return {series["name"]: series for series in answer.json()}


@pytest.mark.long
def test_cpu_memory_and_disk_are_measured(as_alice, submit, until):
    until(submit(WORK, ram=512, args=["0"]), "finished")
    used = usage_of(as_alice)
    assert list(used) == ["cpu", "ram", "disk"]  # a job without a GPU uses none
    share = float((storage.job_dir("alice", "fit") / "share").read_text())  # of a processor, on this machine today
    assert 0.5 * share < used["cpu"]["max"] < 1.5
    assert 96 <= used["ram"]["max"] < 250
    assert 24 <= used["disk"]["max"] < 40
    seconds = [step for step, _value, _attempt in used["ram"]["points"]]
    assert seconds == sorted(seconds)
    assert len(seconds) == used["ram"]["count"] >= 4
    assert usage_of(as_alice, "")["ram"]["points"] == []


@pytest.mark.long
def test_each_attempt_has_its_own_points(as_alice, submit, until, monkeypatch):
    monkeypatch.setattr("jobs.lifecycle.BACKOFF_S", (0,))
    folder = storage.job_dir("alice", "fit")
    idle = WORK.replace("began + 1.6", "began")
    again = idle.replace('.count("after") < 4', '.count("after") < 2 * int(__import__("os").environ["MLP_ATTEMPT"])')
    until(submit(again, retries=1, args=["1"]), "error")
    assert (folder / "log" / "usage.jsonl").exists()
    assert {attempt for _step, _value, attempt in usage_of(as_alice)["cpu"]["points"]} == {1, 2}


def test_a_script_that_writes_the_file_does_no_harm(as_alice, submit, until):
    until(submit("print('short')"), "finished")
    path = storage.job_dir("alice", "fit") / "log" / "usage.jsonl"
    rows = [
        '{"after": 1, "cpu": 0.5, "ram": "<script>"}',
        "{",
        "[1]",
        '{"after": "x"}',
        '{"after": 2, "cpu": 1, "gpu": 7}',
    ]
    path.write_text("\n".join(rows))
    assert {name: series["count"] for name, series in usage_of(as_alice).items()} == {"cpu": 2, "gpu": 1}
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert usage_of(as_alice) == {}


def test_thinned_points_keep_the_peaks(as_alice, submit, until):
    until(submit("print('short')"), "finished")
    rows = [{"after": second, "cpu": 3.5 if second == 777 else 0.1} for second in range(2000)]
    (storage.job_dir("alice", "fit") / "log" / "usage.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (cpu,) = usage_of(as_alice).values()
    assert (cpu["count"], cpu["max"]) == (2000, 3.5)
    assert len(cpu["points"]) == 100
    assert [777, 3.5, 1] in cpu["points"]


@pytest.mark.parametrize("query", ["?points=-1", "?points=x", "?points=2001"])
def test_invalid_parameters_are_refused(as_alice, submit, query):
    submit("print('short')")
    answer = as_alice.call("get", f"users/alice/jobs/fit/usage{query}")
    assert answer.status_code == 403
    assert "points" in answer.json()["msg"]

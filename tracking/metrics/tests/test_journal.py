"""Reports that the platform had not taken when a job's process ended: read from the journal in the job's folder.

No gateway runs here, so that each job meets an outage from its first report to its end.
"""

from __future__ import annotations

import json

import pytest

from jobs import lifecycle
from jobs.models import Metrics, Value
from kernel import storage
from kernel.tests.nats_tools import until as wait_for
from mlp.tests.tiers import few
from tracking.metrics import journal

pytestmark = pytest.mark.django_db(transaction=True)

REPORTS = """
import os
os.environ["MLP_REPORT_FLUSH_S"] = "0"
import mlp_report
for epoch in range(3):
    mlp_report.report(epoch=epoch, accuracy=0.5, loss=epoch / 2, learning_rate=0.1 * epoch)
"""
KILLED = f"{REPORTS}\nimport signal\nos.kill(os.getpid(), signal.SIGKILL)"
RUN = "0123456789abcdef"


def left() -> list[str]:
    return sorted(path.name for path in (storage.job_dir("alice", "fit") / "metrics").iterdir())


def stored() -> tuple[list[int], list[tuple[str, int]]]:
    """Return the epochs of the metrics in the order of their numbers, and the steps of the values."""
    epochs = list(Metrics.objects.order_by("seq").values_list("epoch", flat=True))
    return epochs, sorted(Value.objects.values_list("name", "step"))


@pytest.mark.parametrize(("text", "state"), [(REPORTS, "finished"), (KILLED, "error")])
def test_what_a_run_could_not_send_is_stored_after_its_end(submit, until, as_alice, text, state):
    until(submit(text), state)
    assert stored() == ([0, 1, 2], [("learning_rate", step) for step in range(3)])
    assert [row["loss"] for row in as_alice.call("get", "users/alice/jobs/fit/metrics").json()] == [1.0, 0.5, 0.0]
    assert left() == []


@pytest.mark.parametrize("end", few(["cancel", "timeout"], 1))
def test_what_a_run_could_not_send_is_stored_when_it_is_stopped(submit, until, as_alice, end):
    text = f"{REPORTS}\nopen('ready', 'w').close()\nimport time\nwhile True: time.sleep(0.05)"
    job = until(submit(text), "running")
    wait_for(lambda: (storage.job_dir("alice", "fit") / "ready").exists())
    if end == "cancel":
        assert as_alice.call("put", "users/alice/jobs/fit:cancel").status_code == 200
    else:
        lifecycle.fail(job.pk, "the time limit is exceeded", "reconcile")
    until(job, "error")
    assert stored() == ([0, 1, 2], [("learning_rate", step) for step in range(3)])
    assert left() == []


@pytest.mark.long
def test_each_attempt_has_its_own(submit, until):
    until(submit(KILLED, retries=1), "error")
    assert list(Metrics.objects.order_by("seq").values_list("attempt", "epoch")) == [
        (attempt, epoch) for attempt in (1, 2) for epoch in range(3)
    ]


HOSTILE = f"""
import json, os
os.chdir("metrics")
good = json.dumps(["m", 0, {{"epoch": 7, "accuracy": 0, "loss": 0, "progress": 0}}]) + "\\n"
lines = ["", "null", "[]", "{{", '["m",0]', '["x",0,{{}}]', '["m",-1,{{}}]', '["m","0",{{}}]', "[" * 5000, "\\ud800",
         '["m",1,{{"epoch":1,"accuracy":0,"loss":NaN,"progress":0}}]', '["m",2,{{"epoch":2,"user":"bob"}}]',
         '["m",3,{{"epoch":3,"accuracy":0,"loss":0,"progress":0,"user":"bob","name":"x"}}]', "x" * 200000]
with open("report.1.{RUN}.jsonl", "w", errors="surrogatepass") as file:
    file.write("\\n".join(lines) + "\\n" + good)
os.symlink("../../../../kept.jsonl", "report.1.{RUN[:-1]}0.jsonl")
os.mkfifo("report.1.{RUN[:-1]}1.jsonl")
os.mkdir("report.1.{RUN[:-1]}2.jsonl")
open("report.2.{RUN}.jsonl", "w").write(good)
"""


def test_whatever_a_script_writes_there_its_job_ends(submit, until):
    """And of a link that leads to other reports, which only the platform may read, nothing is stored."""
    row = {"epoch": 9, "accuracy": 0, "loss": 0, "progress": 0}
    (storage.root() / "kept.jsonl").write_text(json.dumps(["m", 0, row]) + "\n")
    until(submit(HOSTILE), "finished")
    assert stored() == ([7], [])
    assert left() == [f"report.1.{RUN[:-1]}2.jsonl"]


def test_what_is_read_again_is_stored_once(submit, until):
    """A crash after the reports were stored, before the journal was removed."""
    job = until(submit("import time\nwhile True: time.sleep(0.05)"), "running")
    row = {"epoch": 0, "accuracy": 0, "loss": 0, "progress": 0}
    lines = [["m", 0, row], ["m", 1, {**row, "epoch": 1}], ["v", 0, {"step": 4, "values": {"rate": 1}}]]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    for _ in range(2):
        (storage.job_dir("alice", "fit") / "metrics" / f"report.1.{RUN}.jsonl").write_text(text)
        assert journal.collect(job, None)
        assert left() == []
        assert stored() == ([0, 1], [("rate", 4)])


def test_a_journal_full_of_nothing_is_left_soon(submit, until, monkeypatch):
    """Its job's end must not keep the platform from looking after others."""
    read = []
    real = journal._report
    monkeypatch.setattr(journal, "_report", lambda *arguments: read.append(1) or real(*arguments))
    until(submit(f"open('metrics/report.1.{RUN}.jsonl', 'w').write('1\\n' * 1_000_000)"), "finished")
    assert len(read) == journal.MAX_INVALID
    assert left() == []

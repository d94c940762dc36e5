"""Notebooks in a real kernel, installed as for a user: parameters, output, metrics, an exception, a kill."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from jobs import reconcile
from jobs.models import Job
from kernel import storage
from mlp.tests.page_world import visitor

from .books import book, cell

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]

INSTALLED_S = 600
TRAINS = (
    cell(
        ["# Träning ![loss](attachment:a.png)"],
        "markdown",
        attachments={"a.png": {"image/png": "AAAA"}},
        metadata={"tags": None, "papermill": None},
    ),
    cell(["lr = 1\n", "name = 'none'"], metadata={"tags": ["parameters"]}, outputs=[{"output_type": "error"}]),
    "import os, helper\nprint('lr', lr * 2, name, helper.WORD, '模型')",
    "import mlp_report\nmlp_report.report(epoch=1, loss=0.5, accuracy=0.5, progress=50)\n6 * 7",
    "os.system('echo from a shell')",
    "try:\n    input('?')\nexcept Exception as problem:\n    print('no', type(problem).__name__)",
    "print('x' * 2_000_000)",
)
FAILS = ("print('before')", "def f():\n    raise ValueError('boom')\nf()", "print('never')")
KILLED = ("print('kept')", "import os\nos.kill(os.getppid(), 9)", "print('never')")
STOPPED = ("print('kept')", "import os\nos.kill(os.getppid(), 15)\nos.kill(os.getpid(), 15)", "print('never')")
DIES = ("print('kept')", "import os\nos.kill(os.getpid(), 11)")
LEAVES = ("import sys", "sys.exit(0)", "print('never')")


@pytest.fixture
def kernels(tmp_path, settings):
    """Make a folder with the packages of notebooks the administrator's index."""
    folder = tmp_path / "wheels"
    command = [sys.executable, "-m", "pip", "download", "-q", "-d", str(folder), *settings.NOTEBOOK_PACKAGES]
    subprocess.run(command, check=True)
    settings.PIP_INDEX_URL = folder.as_uri()


def outcome(tasks, as_alice, home, name: str, cells: tuple, **fields) -> Job:
    """Run a notebook, with what no tool writes in its metadata, to its end and return its job."""
    (home / f"{name}.ipynb").write_text(book(*cells, papermill="before", kernelspec="python3", language_info=3))
    body = {"name": name, "entry": f"{name}.ipynb", "ram": 900, **fields}
    answer = as_alice.call("post", "users/alice/jobs", body)
    assert answer.status_code == 201, answer.content
    row, end = Job.objects.get(name=name), time.monotonic() + INSTALLED_S
    while row.state not in ("finished", "error") or row.run_name:
        assert time.monotonic() < end, (row.state, row.reason)
        tasks.run()
        reconcile.run()
        row.refresh_from_db()
    return row


def executed(name: str) -> list[str]:
    """Return what the cells of the executed notebook have put out, a JSON text each."""
    path = storage.job_dir("alice", name) / f"{name}.ipynb"
    found = json.loads(path.read_text())
    return [json.dumps(each.get("outputs", []), ensure_ascii=False) for each in found["cells"]]


def log(name: str) -> str:
    return (storage.job_dir("alice", name) / "log" / "job.log").read_text()


def test_a_notebook_runs_to_its_end_and_keeps_what_it_has_done_when_it_does_not(tasks, as_alice, alice, home, kernels):
    (home / "helper.py").write_text("WORD = 'helped'")
    row = outcome(tasks, as_alice, home, "train", TRAINS, args=["--lr", "0.1", "--name=it's"])
    assert row.state == "finished", row.reason
    assert log("train").splitlines()[:5] == ["lr 0.2 it's helped 模型", "42", "from a shell", "0", "no "
                                             "StdinNotImplementedError"]  # fmt: skip
    assert list(row.metrics.values_list("loss", flat=True)) == [0.5]
    outputs = executed("train")
    assert len(outputs) == len(TRAINS) + 1, "the cell with the parameters follows the tagged one"
    assert "lr 0.2 it's helped 模型" in outputs[3]
    assert outputs[1] == "[]", "earlier outputs are not those of this run"
    assert len(outputs[7]) < 1_100_000
    assert "the rest is in the log" in outputs[7]
    left = {path.name for path in storage.job_dir("alice", "train").iterdir()}
    assert left == {"ckpt", "log", "metrics", "train.ipynb"}

    row = outcome(tasks, as_alice, home, "fails", FAILS)
    assert (row.state, row.reason.splitlines()[0]) == ("error", "cell 2: ValueError: boom")
    assert log("fails").endswith("ValueError: boom\n")
    assert "ValueError" in row.failure
    assert ["before" in each for each in executed("fails")] == [True, False, False]
    page = visitor(alice).get("/jobs/fails").content.decode()
    assert 'id="cell-2"' in page
    assert "before" in page

    row = outcome(tasks, as_alice, home, "killed", KILLED)
    assert row.state == "error"
    assert "cell" not in row.reason.splitlines()[0]
    assert ["kept" in each for each in executed("killed")] == [True, False, False]

    row = outcome(tasks, as_alice, home, "stopped", STOPPED)
    assert (row.state, "cell" in row.reason.splitlines()[0]) == ("error", False)
    assert ["kept" in each for each in executed("stopped")] == [True, False, False]

    row = outcome(tasks, as_alice, home, "dies", DIES)
    assert row.reason.splitlines()[0] == "cell 2: the kernel ended"
    assert ["kept" in each for each in executed("dies")] == [True, False]
    row = outcome(tasks, as_alice, home, "leaves", LEAVES)
    assert row.state == "finished"
    assert "never" not in log("leaves")

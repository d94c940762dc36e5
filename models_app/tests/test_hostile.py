"""Models whose code misbehaves must not block their own end or other users' models."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

import runners
from jobs.models import Job
from kernel import copying, storage
from mlp.operators.tests.admin_world import put
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few
from models_app import launching, lifecycle, reconcile
from models_app.models import Model
from resources import tcc
from runners.tests.helpers import end_of, spec

from .conftest import ADDER

pytestmark = pytest.mark.django_db(transaction=True)

# The folder of the check is the model's to write in: here it writes the result itself, and ends the check.
LIAR = """
import os, sys
result = {result}
with open(os.path.join(sys.argv[2], "inspection.json"), "w") as file:
    file.write(result)
os._exit(0)
"""


@pytest.mark.parametrize(
    ("result", "words"),
    few(
        [
            ('"[" * 200_000', "nested too deeply"),
            ('"{\\"inputs\\": " + "[" * 100 + "]" * 100 + "}"', "nested too deeply"),
            ('"{\\"inputs\\": [NaN]}"', "not a finite number"),
            ('"{\\"inputs\\": [1e999]}"', "not a finite number"),
            (r'"{\"inputs\": [\"\\u0000\"]}"', "cannot be stored"),
            (r'"{\"format\": \"\\ud800\"}"', "cannot be stored"),
            ('"[]"', "not a JSON object"),
            ('"{\\"inputs\\": [\\"" + "x" * 300_000 + "\\"]}"', "larger than 256 KiB"),
        ],
        2,
    ),
)
def test_an_unstorable_result_is_an_error_with_a_reason(uploaded, make_model, settled, result, words):
    model = settled(make_model(uploaded("net/predictor.py", LIAR.format(result=result))))
    assert model.state == "error"
    assert model.reason.startswith("does not load: the result of the load check is not valid: ")
    assert words in model.reason


def test_a_missing_result_is_an_error_with_a_reason(uploaded, make_model, settled):
    model = settled(make_model(uploaded("net/predictor.py", "import os\nos._exit(0)")))
    assert (model.state, model.reason) == ("error", "does not load: the load check left no result")


def test_a_result_that_is_a_link_is_not_followed(uploaded, make_model, settled):
    """It would lead out of the folder of the check, to what only the platform may read."""
    secret = storage.root() / "secret"
    secret.write_text("forbidden")
    code = f"import os, sys\nos.symlink({str(secret)!r}, sys.argv[2] + '/inspection.json')\nos._exit(0)"
    model = settled(make_model(uploaded("net/predictor.py", code)))
    assert (model.state, model.reason) == ("error", "does not load: the load check left no result")


CROWD = """
import threading
for number in range({count}):
    threading.Thread(target=threading.Event().wait, args=(60,), daemon=True).start()
raise SystemExit(f"has {{threading.active_count()}} threads")
"""


@pytest.mark.parametrize(("count", "may"), [(10, True), (100, False)])
def test_a_check_has_a_limit_of_tasks(uploaded, make_model, settled, settings, count, may):
    """A job may have more, which a check of a model has no use for."""
    settings.MODEL_CHECK_TASKS = 40
    model = settled(make_model(uploaded("net/predictor.py", CROWD.format(count=count))))
    assert model.state == "error"
    assert (f"has {count + 1} threads" in model.reason) == may, model.reason
    assert may or "can't start new thread" in model.reason or "had more than 40 processes" in model.reason


def test_a_model_that_cannot_be_polled_does_not_block_others(uploaded, make_model, settled, monkeypatch):
    make_model(uploaded("net/predictor.py"), "first")
    second = make_model(uploaded("net/predictor.py"), "second")
    first = Model.objects.get(name="first").pk
    check, looks = launching.check, []

    def trouble(pk, follow=True):
        if pk != first:
            check(pk, follow)
        elif not follow:  # the worker's own messages are lost
            looks.append(pk)
            raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr("models_app.launching.check", trouble)
    assert settled(second).state == "ready"
    assert looks


def test_repeated_messages_do_not_disturb_a_long_copy(uploaded, make_model, tasks, monkeypatch):
    """Reconcile sends another message after a while, in case the first was lost; a worker has many threads."""
    model = make_model(uploaded("net/predictor.py"))
    begun, goes_on = threading.Event(), threading.Event()
    real = copying.open_files

    def slowly(source, *rest):
        begun.set()
        assert goes_on.wait(LIMIT_S)
        yield from real(source, *rest)

    def copy():
        try:
            launching.copy(model.pk)
        finally:
            connections.close_all()

    monkeypatch.setattr("kernel.copying.open_files", slowly)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(copy)
        assert begun.wait(LIMIT_S)
        monkeypatch.setattr("kernel.copying.open_files", real)
        launching.copy(model.pk)
        model.refresh_from_db()
        assert not model.copied
        goes_on.set()
        first.result(LIMIT_S)
    model.refresh_from_db()
    assert (model.state, model.copied) == ("creating", True)
    assert (storage.model_dir("alice", "net") / "predictor.py").exists()


def test_a_slow_load_check_has_one_message_in_the_queue(uploaded, make_model, tasks):
    """Each reconcile round enqueues a check too; if each of them had a successor, their number would grow."""
    model = make_model(uploaded("net/predictor.py", "import time\ntime.sleep(600)"))
    tasks.run_once()  # the copy
    assert tasks.waiting_after(reconcile.run) == [1] * 6
    lifecycle.fail(model.pk, "cancelled", by="test")
    sizes = []
    while not sizes or tasks.queue:
        sizes += tasks.waiting_after(reconcile.run, 1)
    assert max(sizes) <= 3  # the worker's last look, its clean, and what reconcile sends each round


def test_a_model_is_copied_once_the_program_that_wrote_it_has_ended(alice, make_model, settled, tasks):
    """Its job has reported its end. What it writes until it exits belongs to the model, also where that is larger."""
    job, folder = put(Job, alice, "fit", "finished"), storage.job_dir("alice", "fit")
    (folder / "net").mkdir(parents=True)
    (folder / "net" / "predictor.py").write_text("unfinished = ")
    run, code = f"job-{job.pk}-1", "import os, time\nwhile not os.path.exists('end'): time.sleep(0.01)"
    Job.objects.filter(pk=job.pk).update(run_name=run)
    runners.get().start(spec(folder, code, run, cwd=folder, log=folder / "log/job.log"))
    model = make_model("jobs/fit/net")
    tasks.run_once()
    model.refresh_from_db()
    assert (model.state, model.copied) == ("creating", False)
    assert model.reason == "waiting to start: the job fit has not exited yet"
    (folder / "net" / "predictor.py").write_text(ADDER)
    (folder / "end").touch()
    end_of(runners.get(), run)
    launching.copy(model.pk)
    model = settled(model)
    assert (model.state, model.reason, model.size) == ("ready", "", len(ADDER))
    assert tcc.allocated(alice.tenant)["rom"] == len(ADDER)

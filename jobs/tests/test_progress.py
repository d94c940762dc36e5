"""How far a job is and how long it still takes: from the script, from a training framework, from a bar in the log."""

from __future__ import annotations

import json
import math
import re
from datetime import timedelta

import pytest
from django.utils import timezone

from jobs import environment, lifecycle, progress_bar
from jobs.models import Job, Value
from mlp.tests.page_world import visible_text, visitor
from tracking.metrics.tests.test_metrics import ingesting, stream, wait_for  # noqa: F401 (fixtures)

pytestmark = pytest.mark.django_db(transaction=True)

HEARTBEAT, TRAINER = "users/alice/jobs/fit:heartbeat", "users/alice/jobs/fit:trainer"
SHOW = (
    "import json, os\nprint(json.dumps([dict(os.environ), open(os.environ['KUBEFLOW_TRAINER_SERVER_TOKEN']).read()]))"
)


@pytest.fixture
def running(alice):
    """A job whose process is of no interest, started 100 s ago."""
    return Job.objects.create(
        user=alice, tenant=alice.tenant, name="fit", entry="fit.py", cpu=1, ram=100, state="running", run_name="none",
        attempt=1, started=timezone.now() - timedelta(seconds=100),
    )  # fmt: skip


def status(percent: int, left: int, **metrics) -> dict:
    metrics = [{"name": name, "value": str(value)} for name, value in metrics.items()]
    now = timezone.now().isoformat()
    return {
        "trainerStatus": {
            "progressPercentage": percent,
            "estimatedRemainingSeconds": left,
            "metrics": metrics,
            "lastUpdatedTime": now,
        }
    }


def page(alice) -> str:
    return visible_text(visitor(alice).get("/jobs/fit"))


def test_the_page_says_who_knows_how_long_it_takes(as_alice, alice, running):
    as_alice.call("put", HEARTBEAT, {"state": "running", "progress": 50})
    assert re.search(r"about [1-9] min \d+ s left \(estimated from the progress\)", page(alice))
    as_alice.call("put", HEARTBEAT, {"state": "running", "progress": 50, "remaining": 300})
    shown = as_alice.call("get", "users/alice/jobs/fit").json()
    assert (0 < shown["remaining"] <= 300, shown["remaining_from"]) == (True, "script")
    assert "s left (reported by the script)" in page(alice)
    as_alice.call("post", TRAINER, status(20, 3600))
    assert re.search(r"about 5\d min \d+ s left \(reported by the training framework\)", page(alice))
    assert as_alice.call("get", "users/alice/jobs/fit").json()["progress"] == 50
    Job.objects.update(expected_end=timezone.now() - timedelta(seconds=1))
    assert " left (" not in page(alice)


class TestTrainer:
    def test_the_environment_and_the_token_file_lead_to_the_call(self, as_alice, api, submit, until):
        job = until(submit(f"{SHOW}\nimport time\nwhile True: time.sleep(.05)"), "running")
        wait_for(lambda: as_alice.call("get", "users/alice/jobs/fit/log").content)
        seen, token = json.loads(as_alice.call("get", "users/alice/jobs/fit/log").content)
        base = seen["MLP_API_URL"] + "/api/v1/"
        assert seen["KUBEFLOW_TRAINER_SERVER_URL"] == base + TRAINER
        assert token == seen["MLP_TOKEN"]
        assert api(token).call("post", TRAINER, status(30, 60)).status_code == 200
        job.refresh_from_db()
        assert (job.progress, job.progress_source) == (30, "trainer")
        assert environment.token_dir(job).is_dir()
        as_alice.call("put", "users/alice/jobs/fit:cancel")
        job = until(job, "error")
        assert not environment.token_dir(job).exists()

    def test_metrics_are_stored_once_under_the_names_of_tensorboard(self, as_alice, running, ingesting):  # noqa: F811
        logged = {"loss": 0.5, "eval_loss": 0.6, "lr rate%": 1e-3, "odd": "x"}
        for step in (5, 9):  # the same metrics again, with the status of a later step
            counters = {"current_step": step, "total_steps": 10, "current_epoch": step / 10}
            assert as_alice.call("post", TRAINER, status(step * 10, 5, **logged, **counters)).content == b'""'
        as_alice.call("post", TRAINER, status(100, 0, train_runtime=3, grad_norm="nan"))
        wait_for(lambda: Value.objects.filter(name="train/train_runtime").exists())
        stored = set(Value.objects.values_list("name", "step", "value"))
        values = {("train/loss", 5, 0.5), ("eval/loss", 5, 0.6), ("train/lr rate_", 5, 1e-3)}
        [norm] = [row for row in stored if row[0] == "train/grad_norm"]
        assert math.isnan(norm[2])
        assert stored - {norm} == values | {("train/train_runtime", 5, 3.0)}
        running.refresh_from_db()
        assert (running.progress, running.state) == (99, "running")

    def test_a_metric_that_the_script_reports_itself_is_stored_under_its_name_only(self, as_alice, running, ingesting):  # noqa: F811
        """As the callback for MLflow does, in the same script."""
        as_alice.call("post", "users/alice/jobs/fit/values", {"step": 5, "values": {"eval_loss": 0.6}})
        wait_for(lambda: Value.objects.exists())
        as_alice.call("post", TRAINER, status(50, 5, current_step=5, eval_loss=0.6, grad_norm=2))
        wait_for(lambda: Value.objects.filter(name="train/grad_norm").exists())
        assert set(Value.objects.values_list("name", flat=True)) == {"eval_loss", "train/grad_norm"}

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            ({}, "trainerStatus"),
            ({"trainerStatus": []}, "trainerStatus"),
            ({"trainerStatus": {"progressPercentage": 101}}, "progressPercentage"),
            ({"trainerStatus": {"progressPercentage": "5"}}, "progressPercentage"),
            ({"trainerStatus": {"estimatedRemainingSeconds": -1}}, "estimatedRemainingSeconds"),
            ({"trainerStatus": {"metrics": {"loss": 1}}}, "metrics"),
            ({"trainerStatus": {"metrics": [{"name": "loss", "value": 1}]}}, "value"),
            ({"trainerStatus": {"metrics": [{"name": "a", "value": "1"}] * 1001}}, "metrics"),
        ],
    )
    def test_what_is_wrong_is_named(self, as_alice, running, body, words):
        assert words in as_alice.refused("post", TRAINER, body)

    def test_only_while_it_runs_and_with_its_own_token(self, as_alice, as_bob, api, running):
        as_bob.refused("post", TRAINER, status(1, 1))
        lifecycle.cancel(user=running.user, name="fit", by="alice")
        assert as_alice.refused("post", TRAINER, status(1, 1)).startswith("state:")


BLOCKS = "███▋      "


def bar(percent: int, title: str = "", *, total: int = 100, spent: str = "00:30", left: str = "01:10") -> str:
    return f"\r{title}{percent:3d}%|{BLOCKS}| {percent * total // 100}/{total} [{spent}<{left}, 1.02it/s, loss=0.3]"


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("no bar, 50% of it", None),
        (bar(10) + bar(37), (37, 70)),
        (bar(37, left="?"), (37, None)),
        (bar(37, spent="00:01"), None),
        (bar(37, spent="1:00:30", left="2:00:00"), (37, 7200)),
        # nested: the outermost has been running for the longest
        (bar(20, "all: ", total=5) + "\n" + bar(80, "batches: ", spent="00:09") + "\x1b[A", (20, 70)),
        # one bar for each epoch: not the whole script, unless its title says which of how many
        (bar(90) + bar(3, spent="00:05"), None),
        (bar(50, "Epoch 3: "), None),
        (bar(50, "Epoch 2/4: ", spent="00:10", left="00:10"), (37, 50)),
        (bar(50, "Downloading: ") + bar(50, "Evaluating: ") + "\n" + bar(100, left="00:00"), None),
        ("%|" * 9000 + bar(7, spent="9" * 40), (7, 70)),
    ],
)
def test_the_outermost_bar_in_a_log_is_read(log, expected):
    assert progress_bar.progress_of(log) == expected


def test_a_bar_in_the_log_counts_only_where_the_script_reports_nothing(as_alice, alice, running):
    path = environment.log_path(running)
    path.parent.mkdir(parents=True)

    def look(text: str) -> Job:
        path.write_text(text)
        running.refresh_from_db()
        progress_bar.record(running)
        running.refresh_from_db()
        return running

    assert look(bar(40, left="1:01:10")).progress == 40
    assert "left (from the progress bar in the log)" in page(alice)
    assert look(bar(20)).progress == 40  # never backwards
    assert look(bar(100, "Epoch 4/4", left="00:00")).progress == 99  # nor at the end before it
    as_alice.call("put", HEARTBEAT, {"state": "running", "progress": 50})
    assert (look(bar(60, left="10:00")).progress, running.expected_end) == (99, None)

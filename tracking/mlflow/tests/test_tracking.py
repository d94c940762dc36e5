"""Experiments, runs, parameters, metrics, tags and inputs, as MLflow's clients call them."""

from __future__ import annotations

import math

import pytest
from django.utils import timezone

from accounts import lifecycle as accounts
from jobs import environment, launching, lifecycle, trash
from jobs.auth import job_token
from jobs.models import Job, Origin, Project, RunMetric, RunParam, State, Value
from kernel.models import StateChange
from mlp.tests.tiers import few
from resources.models import ResourceRequest

from .conftest import Mlflow

pytestmark = pytest.mark.django_db


def experiment(mlflow, name: str = "vision") -> str:
    return mlflow.call("post", "experiments/create", name=name)["experiment_id"]


def start(mlflow, experiment_id: str = "0", **fields) -> str:
    return mlflow.call("post", "runs/create", experiment_id=experiment_id, **fields)["run"]["info"]["run_id"]


def data(mlflow, run: str) -> dict:
    data = mlflow.call("get", "runs/get", run_id=run)["run"]["data"]
    return {
        "metrics": {metric["key"]: metric["value"] for metric in data["metrics"]},
        "params": {param["key"]: param["value"] for param in data["params"]},
        "tags": {tag["key"]: tag["value"] for tag in data["tags"]},
    }


def point(key: str = "loss", value=0.5, timestamp: int = 1_700_000_000_000, step: int = 0) -> dict:
    return {"key": key, "value": value, "timestamp": timestamp, "step": step}


def history(mlflow, run: str, key: str = "loss", **fields) -> list:
    points = mlflow.call("get", "metrics/get-history", run_id=run, metric_key=key, **fields)["metrics"]
    return [(entry["step"], entry["value"]) for entry in points]


def test_an_experiment_is_a_project(mlflow, alice):
    assert mlflow.refused("get", "experiments/get-by-name", experiment_name="vision") == "RESOURCE_DOES_NOT_EXIST"
    key = experiment(mlflow)
    assert mlflow.refused("post", "experiments/create", name="vision") == "RESOURCE_ALREADY_EXISTS"
    answer = mlflow.call("get", "experiments/get-by-name", experiment_name="vision")["experiment"]
    assert (answer["experiment_id"], answer["lifecycle_stage"]) == (key, "active")
    assert answer["artifact_location"] == f"mlflow-artifacts:/{key}"
    for tag in (("team", "red"), ("mlflow.note.content", "# Words"), ("mlflow.kind", "x")):
        mlflow.call("post", "experiments/set-experiment-tag", experiment_id=key, key=tag[0], value=tag[1])
    project = Project.objects.get(user=alice, name="vision")
    assert (project.tags, project.system_tags, project.readme) == ({"team": "red"}, {"mlflow.kind": "x"}, "# Words")
    mlflow.call("post", "experiments/update", experiment_id=key, new_name="sight")
    mlflow.call("post", "experiments/delete", experiment_id=key)
    assert mlflow.call("get", "experiments/get", experiment_id=key)["experiment"]["lifecycle_stage"] == "deleted"
    assert mlflow.call("get", "experiments/get-by-name", experiment_name="sight")["experiment"]["experiment_id"] == key
    assert mlflow.refused("post", "runs/create", experiment_id=key) == "INVALID_PARAMETER_VALUE"
    mlflow.call("post", "experiments/restore", experiment_id=key)
    start(mlflow, key)
    default = mlflow.call("get", "experiments/get-by-name", experiment_name="Default")["experiment"]
    assert default == mlflow.call("get", "experiments/get", experiment_id="0")["experiment"]


def test_a_run_is_born_running_ends_and_goes_on(mlflow, alice, tasks):
    run = start(
        mlflow, experiment(mlflow), run_name="Größe 7", start_time=1_700_000_000_123, user_id="al",
        tags=[{"key": "mlflow.source.name", "value": "train.py"}, {"key": "team", "value": "red"}],
    )  # fmt: skip
    job = Job.objects.get(run_id=run)
    assert (job.state, job.origin, job.name[:-10], job.title) == (State.RUNNING, Origin.CLIENT, "groe", "Größe 7")
    info = mlflow.call("get", "runs/get", run_uuid=run)["run"]["info"]
    assert (info["status"], info["start_time"], info["user_id"]) == ("RUNNING", 1_700_000_000_123, "al")
    assert info["artifact_uri"] == f"mlflow-artifacts:/{job.project_id}/{run}/artifacts"
    assert not ResourceRequest.objects.exists()
    for status, state, ended in (("FINISHED", "finished", 5), ("FAILED", "error", 6), ("KILLED", "error", None)):
        answer = mlflow.call(
            "post", "runs/update", run_id=run, status=status, end_time=1_700_000_100_000 + (ended or 0)
        )
        assert answer["run_info"]["status"] == status
        assert Job.objects.get(run_id=run).state == state
    mlflow.call("post", "runs/update", run_id=run, status="RUNNING", run_name="again")
    info = mlflow.call("get", "runs/get", run_id=run)["run"]["info"]
    assert (info["status"], info["run_name"], "end_time" in info) == ("RUNNING", "again", False)
    assert Job.objects.get(run_id=run).name == job.name
    tasks.run()
    launching.sweep()
    assert Job.objects.get(run_id=run).state == State.RUNNING
    assert start(mlflow, run_name="grE") != run
    assert StateChange.objects.filter(kind="job", object_id=job.pk).count() == 7


def test_a_scheduled_run_is_scheduled_until_it_runs(mlflow):
    run = start(mlflow)

    def status(word: str) -> tuple[str, str, int]:
        mlflow.call("post", "runs/update", run_id=run, status=word)
        shown = mlflow.call("get", "runs/get", run_id=run)["run"]["info"]["status"]
        body = {"experiment_ids": ["0"], "filter": f"attributes.status = '{shown}'"}
        return shown, Job.objects.get(run_id=run).state, len(mlflow.call("post", "runs/search", **body)["runs"])

    assert status("SCHEDULED") == ("SCHEDULED", "running", 1)
    body = {"experiment_ids": ["0"], "filter": "attributes.status = 'RUNNING'"}
    assert mlflow.call("post", "runs/search", **body)["runs"] == []
    assert status("RUNNING") == ("RUNNING", "running", 1)
    assert status("FINISHED") == ("FINISHED", "finished", 1)
    assert status("SCHEDULED") == ("SCHEDULED", "running", 1)
    assert status("KILLED") == ("KILLED", "error", 1)


def test_parameters_are_written_once(mlflow):
    run = start(mlflow)
    for _ in range(2):
        mlflow.call("post", "runs/log-parameter", run_id=run, key="lr", value="0.1")
    assert mlflow.refused("post", "runs/log-parameter", run_id=run, key="lr", value="0.2") == "INVALID_PARAMETER_VALUE"
    batch = {"params": [{"key": "a", "value": "1"}, {"key": "lr", "value": "0.3"}], "metrics": [point()]}
    assert mlflow.refused("post", "runs/log-batch", run_id=run, **batch) == "INVALID_PARAMETER_VALUE"
    assert data(mlflow, run)["params"] == {"lr": "0.1"}
    assert history(mlflow, run) == []  # all of a batch or nothing
    twice = [{"key": "b", "value": "1"}, {"key": "b", "value": "1"}]
    assert mlflow.refused("post", "runs/log-batch", run_id=run, params=twice) == "INVALID_PARAMETER_VALUE"
    mlflow.call("post", "runs/log-batch", run_id=run, params=[{"key": "long", "value": "x" * 7000}])
    assert len(data(mlflow, run)["params"]["long"]) == 6000
    assert RunParam.objects.get(name="lr").number == 0.1


def test_points_that_are_sent_again_count_once_and_the_last_is_that_of_the_highest_step(mlflow):
    run = start(mlflow)
    points = [point(step=-1, value=3.0), point(step=7, value="NaN"), point(step=7, value=1.5), point("acc", "Infinity")]
    for _ in range(3):
        mlflow.call("post", "runs/log-batch", run_id=run, metrics=points)
    mlflow.call("post", "runs/log-metric", run_id=run, **point(step="2", value="-Infinity"))
    assert history(mlflow, run) == [(-1, 3.0), (7, "NaN"), (7, 1.5), (2, "-Infinity")]
    assert data(mlflow, run)["metrics"]["acc"] == "Infinity"
    metric = RunMetric.objects.get(name="loss")
    assert (metric.count, metric.step, metric.min, metric.max) == (4, 7, -math.inf, 3.0)
    assert Value.objects.count() == Job.objects.get(run_id=run).values_kept == 5
    mlflow.call("post", "runs/log-metric", run_id=run, **point(step=9, value=2.5))
    mlflow.call("post", "runs/log-metric", run_id=run, **point(step=8, value=9.5))
    assert data(mlflow, run)["metrics"]["loss"] == 2.5


def test_a_history_is_read_by_pages(mlflow):
    run = start(mlflow)
    mlflow.call("post", "runs/log-batch", run_id=run, metrics=[point(step=step, value=step) for step in range(25)])
    steps, token = [], ""
    while token is not None:
        page = {"run_id": run, "metric_key": "loss", "max_results": 10, **({"page_token": token} if token else {})}
        answer = mlflow.call("get", "metrics/get-history", **page)
        steps += [metric["step"] for metric in answer["metrics"]]
        token = answer.get("next_page_token")
    assert steps == list(range(25))
    assert mlflow.refused("get", "metrics/get-history", run_id=run, metric_key="loss", page_token="x")


@pytest.mark.parametrize(
    "batch",
    few(
        [
            {"metrics": [point(key=f"m{n}") for n in range(1001)]},
            {"params": [{"key": f"p{n}", "value": ""} for n in range(101)]},
            {"metrics": [point()] * 950, "tags": [{"key": f"t{n}", "value": ""} for n in range(51)]},
            {"tags": [{"key": "x" * 251, "value": ""}]},
            {"metrics": [point(key="../x")]},
            {"metrics": [point(key="a\u0000")]},
            {"metrics": [point(value="x")]},
            {"metrics": [point(value=None)]},
            {"metrics": [point(timestamp=-1)]},
            {"metrics": [point(timestamp=10**18)]},
            {"metrics": [point(step=2**63)]},
            {"metrics": [{"key": "a", "value": 1}]},
            {"metrics": ["x"]},
            {"metrics": {"key": "a"}},
            {"params": [{"key": "p", "value": "x" * 1_000_000}]},
        ],
        5,
    ),
)
def test_a_batch_that_breaks_a_limit_is_refused_as_a_whole(mlflow, batch):
    run = start(mlflow)
    whole = {"metrics": [], **batch, "run_id": run}
    assert mlflow.refused("post", "runs/log-batch", **whole) == "INVALID_PARAMETER_VALUE"
    assert data(mlflow, run)["metrics"] == data(mlflow, run)["params"] == {}


def test_a_run_keeps_as_many_values_as_any(mlflow, settings):
    settings.JOB_VALUES = 3
    run = start(mlflow)
    mlflow.call("post", "runs/log-batch", run_id=run, metrics=[point(step=step) for step in range(3)])
    assert mlflow.refused("post", "runs/log-metric", run_id=run, **point(step=3)) == "INVALID_PARAMETER_VALUE"


def test_tags_names_and_notes_are_those_of_the_pages(mlflow, alice):
    run = start(mlflow)
    for key, value in (("team", "red"), ("mlflow.note.content", "# Hi"), ("mlflow.runName", "best"), ("mlflow.x", "y")):
        mlflow.call("post", "runs/set-tag", run_id=run, key=key, value=value)
    job = Job.objects.get(run_id=run)
    assert (job.tags, job.notes, job.title, job.system_tags) == ({"team": "red"}, "# Hi", "best", {"mlflow.x": "y"})
    wanted = {"team": "red", "mlflow.note.content": "# Hi", "mlflow.runName": "best", "mlflow.x": "y"}
    assert data(mlflow, run)["tags"] == {**wanted, "mlflow.user": "alice"}
    mlflow.call("post", "runs/delete-tag", run_id=run, key="team")
    assert mlflow.refused("post", "runs/delete-tag", run_id=run, key="team") == "RESOURCE_DOES_NOT_EXIST"


def test_inputs_are_kept_once(mlflow):
    run = start(mlflow)
    dataset = {"name": "digits", "digest": "abc", "source_type": "local", "source": "{}", "schema": "s"}
    tags = [{"key": "mlflow.data.context", "value": "train"}, {"key": "k", "value": "v"}]
    for _ in range(2):
        mlflow.call("post", "runs/log-inputs", run_id=run, datasets=[{"tags": tags, "dataset": dataset}])
    [dataset_input] = mlflow.call("get", "runs/get", run_id=run)["run"]["inputs"]["dataset_inputs"]
    assert dataset_input["dataset"] == {**dataset, "profile": ""}
    assert sorted(tag["key"] for tag in dataset_input["tags"]) == ["k", "mlflow.data.context"]


def test_a_deleted_run_is_in_the_trash_and_takes_no_reports(mlflow, alice, tasks):
    run = start(mlflow)
    for _ in range(2):
        mlflow.call("post", "runs/delete", run_id=run)
    info = mlflow.call("get", "runs/get", run_id=run)["run"]["info"]
    assert (info["lifecycle_stage"], info["status"]) == ("deleted", "RUNNING")
    assert mlflow.refused("post", "runs/log-metric", run_id=run, **point()) == "INVALID_PARAMETER_VALUE"
    mlflow.call("post", "runs/restore", run_id=run)
    mlflow.call("post", "runs/log-metric", run_id=run, **point())
    mlflow.call("post", "runs/delete", run_id=run)
    trash.delete(Job.objects.filter(user=alice), "alice")
    tasks.run()
    assert not Job.objects.filter(run_id=run).exists()


def test_a_nested_run_knows_its_parent(mlflow):
    parent = start(mlflow)
    child = start(mlflow, tags=[{"key": "mlflow.parentRunId", "value": parent}])
    assert Job.objects.get(run_id=child).parent.run_id.hex == parent
    assert data(mlflow, child)["tags"]["mlflow.parentRunId"] == parent


def test_a_parent_may_come_later_and_be_changed(mlflow, alice, client):
    key = experiment(mlflow)
    first, child = start(mlflow, key, run_name="first"), start(mlflow, key, run_name="fold-seven")
    second = start(mlflow, key, run_name="second")

    def nested_in(run: str) -> bool:
        answer = mlflow.call("post", "runs/search", experiment_ids=[key], filter=f"tags.mlflow.parentRunId = '{run}'")
        shown = "fold-seven" in client.get(f"/jobs/{Job.objects.get(run_id=run).name}").content.decode()
        assert shown == bool(answer.get("runs"))
        return shown

    client.force_login(alice)
    mlflow.call("post", "runs/set-tag", run_id=child, key="mlflow.parentRunId", value=first)
    assert (nested_in(first), nested_in(second)) == (True, False)
    mlflow.call("post", "runs/log-batch", run_id=child, tags=[{"key": "mlflow.parentRunId", "value": second}])
    assert (nested_in(first), nested_in(second)) == (False, True)
    assert "second" in client.get(f"/jobs/{Job.objects.get(run_id=child).name}").content.decode()
    mlflow.call("post", "runs/delete-tag", run_id=child, key="mlflow.parentRunId")
    assert not nested_in(second)


# --- within a job -----------------------------------------------------------------------------------------------------
@pytest.fixture
def job(alice, home, tasks):
    job = lifecycle.create_job(
        user=alice, name="fit", entry="train.py", args=["--lr", "0.1"], project="own", by="alice"
    )
    job = lifecycle.order_run(job.pk)
    lifecycle.note_start(job.pk, job.run_name)
    return Job.objects.get(pk=job.pk)


def test_a_jobs_token_fills_the_jobs_run_whatever_the_script_creates(job, alice, tasks):
    inner, own = Mlflow(job_token(job)), job.run_id.hex
    assert inner.call("get", "experiments/get-by-name", experiment_name="any")["experiment"]["name"] == "own"
    experiment_id = inner.call("post", "experiments/create", name="another")["experiment_id"]
    assert start(inner, experiment_id, run_name="first") == own
    inner.call("post", "runs/log-parameter", run_id=own, key="lr", value="1e-1")  # an argument gives way
    inner.call("post", "runs/log-batch", run_id=own, metrics=[point()])
    inner.call("post", "runs/update", run_id=own, status="FAILED")
    job.refresh_from_db()
    assert (job.state, job.title, job.name) == (State.RUNNING, "first", "fit")
    second = start(inner, experiment_id)
    assert Job.objects.get(run_id=second).parent == job
    inner.call("post", "runs/log-metric", run_id=second, **point())
    lifecycle.finish(job.pk, job.run_name, by="runner")
    tasks.run_once()
    assert Job.objects.get(run_id=second).state == State.FINISHED
    assert inner.refused("get", "runs/get", run_id=own) == "UNAUTHENTICATED"


def test_another_attempt_logs_its_own_parameters(job):
    inner, own = Mlflow(job_token(job)), job.run_id.hex
    given = {"run_id": own, "key": "seed"}
    inner.call("post", "runs/log-parameter", value="1", **given)
    inner.call("post", "runs/log-parameter", value="1", **given)
    assert inner.refused("post", "runs/log-parameter", value="2", **given) == "INVALID_PARAMETER_VALUE"
    Job.objects.filter(pk=job.pk).update(attempt=job.attempt + 1)  # as after a failure or a preemption
    assert start(inner, run_name="again") == own
    inner.call("post", "runs/log-batch", run_id=own, params=[{"key": "seed", "value": "2"}])
    assert data(inner, own)["params"]["seed"] == "2"
    assert inner.refused("post", "runs/log-parameter", value="3", **given) == "INVALID_PARAMETER_VALUE"


def test_what_is_said_of_a_job_finds_it(job, mlflow):
    key = str(job.project_id)
    start(mlflow, key, run_name="other")
    shown = mlflow.call("get", "runs/get", run_id=job.run_id.hex)["run"]
    tags = {tag["key"]: tag["value"] for tag in shown["data"]["tags"]}
    info = shown["info"]
    for filter in (
        f"tags.mlflow.source.name = '{tags['mlflow.source.name']}'", "tags.`mlflow.source.name` LIKE 'train%'",
        f"tags.mlflow.source.type = '{tags['mlflow.source.type']}'", "tags.mlflow.source.type IS NOT NULL",
        f"attributes.start_time = {info['start_time']}",
    ):  # fmt: skip
        runs = mlflow.call("post", "runs/search", experiment_ids=[key], filter=filter)["runs"]
        assert [run["info"]["run_id"] for run in runs] == [job.run_id.hex], filter
    absent = mlflow.call("post", "runs/search", experiment_ids=[key], filter="tags.mlflow.source.name IS NULL")["runs"]
    assert [run["info"]["run_name"] for run in absent] == ["other"]
    ordered = mlflow.call("post", "runs/search", experiment_ids=[key], order_by=["tags.mlflow.source.name DESC"])
    assert ordered["runs"][0]["info"]["run_id"] == job.run_id.hex


@pytest.mark.parametrize("microseconds", few([0, 499, 500, 501, 999], 2))
def test_a_run_is_found_by_the_times_that_are_shown(job, mlflow, microseconds):
    moment = timezone.now().replace(microsecond=123000 + microseconds)
    Job.objects.filter(pk=job.pk).update(started=moment, ended=moment, state="finished")
    info = mlflow.call("get", "runs/get", run_id=job.run_id.hex)["run"]["info"]

    def search(filter: str) -> list:
        return mlflow.call("post", "runs/search", experiment_ids=[str(job.project_id)], filter=filter).get("runs", [])

    for name in ("start_time", "end_time"):
        for operator in ("=", ">=", "<="):
            assert search(f"attributes.{name} {operator} {info[name]}"), operator
        for operator in ("!=", "<", ">"):
            assert not search(f"attributes.{name} {operator} {info[name]}"), operator


def test_a_jobs_token_writes_no_other_run(job, mlflow, alice):
    inner = Mlflow(job_token(job))
    other, same = start(mlflow), start(mlflow, str(job.project_id))
    assert inner.refused("get", "runs/get", run_id=other) == "RESOURCE_DOES_NOT_EXIST"
    inner.call("get", "runs/get", run_id=same)
    for route, fields in (
        ("runs/log-metric", point()),
        ("runs/log-batch", {"metrics": [point()]}),
        ("runs/log-parameter", {"key": "a", "value": "b"}),
        ("runs/set-tag", {"key": "a", "value": "b"}),
        ("runs/update", {"status": "FINISHED"}),
    ):
        for run in (other, same):
            assert inner.refused("post", route, run_id=run, **fields) == "RESOURCE_DOES_NOT_EXIST"
    for route in ("runs/delete", "runs/restore"):
        assert inner.refused("post", route, run_id=job.run_id.hex) == "PERMISSION_DENIED"
    assert inner.refused("post", "experiments/delete", experiment_id="0") == "PERMISSION_DENIED"
    assert inner.send("get", "x", HTTP_AUTHORIZATION=f"Bearer {accounts.token_of(alice)}").status_code == 404


# --- pages ------------------------------------------------------------------------------------------------------------
def test_pages_show_a_clients_run_without_what_only_a_job_has(mlflow, alice, client):
    client.force_login(alice)
    key = experiment(mlflow)
    run = start(mlflow, key, run_name="Größe 7", tags=[{"key": "mlflow.source.name", "value": "train.py"}])
    child = start(mlflow, key, run_name="inner", tags=[{"key": "mlflow.parentRunId", "value": run}])
    mlflow.call("post", "runs/log-batch", run_id=run, metrics=[point(step=-3)], params=[{"key": "lr", "value": "0.1"}])
    for page in ("/jobs", "/projects/vision", "/jobs?filter=origin+%3D+client&by=origin", "/jobs?q=größe"):
        html = client.get(page, follow=True).content.decode()
        assert "Größe 7" in html or "by=origin" in page
        assert ">MLflow<" in html or "by=origin" in page
    name, inner = (Job.objects.get(run_id=key).name for key in (run, child))
    html = client.get(f"/jobs/{name}").content.decode()
    for shown in ("Größe 7", "train.py", run, "lr", f"/jobs/{inner}", "is marked as cancelled"):
        assert shown in html
    for hidden in ("Run again", "SIGTERM", f"/jobs/{name}/code", f"/jobs/{name}/log", "data-usage"):
        assert hidden not in html
    assert f"/jobs/{name}" in client.get(f"/jobs/{inner}").content.decode()
    points = client.get(f"/api/v1/users/alice/jobs/{name}/points?name=loss").json()
    assert points[0]["step"] == [-3]
    assert client.post(f"/jobs/{name}/cancel").status_code == 302
    assert mlflow.call("get", "runs/get", run_id=run)["run"]["info"]["status"] == "KILLED"
    assert client.get(f"/compare?job={name}&job={inner}").status_code == 200


def test_a_jobs_environment_has_what_mlflow_needs(job, alice):
    variables = environment.run_spec(job, alice).environment
    assert variables["MLFLOW_TRACKING_URI"].endswith("/mlflow")
    assert variables["MLFLOW_EXPERIMENT_ID"] == str(job.project_id)
    assert "MLFLOW_RUN_ID" not in variables, "parallel processes would share it"
    assert variables["MLFLOW_TRACKING_TOKEN"] == job_token(job)
    job.env = {"MLFLOW_TRACKING_URI": "https://elsewhere.example"}
    assert "MLFLOW_EXPERIMENT_ID" not in environment.run_spec(job, alice).environment

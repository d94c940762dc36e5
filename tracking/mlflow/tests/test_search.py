"""Searching runs and experiments: the whole grammar of filters, orders, views and pages."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts import lifecycle as accounts
from jobs.models import Job
from mlp.tests.tiers import few

from .conftest import Mlflow
from .test_tracking import experiment, point, start

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def runs(keep):
    return keep(make_runs)


def make_runs(alice) -> tuple[str, dict[str, str]]:
    """Start three runs that differ in everything; their names are a, b and c."""
    mlflow = Mlflow(accounts.token_of(alice))
    key = experiment(mlflow)
    loss, runs = {"a": 0.5, "b": 2, "c": "NaN"}, {}
    for place, name in enumerate("abc"):
        run = runs[name] = start(
            mlflow, key, run_name=name, start_time=1000 + place, user_id=f"u{name}",
            tags=[{"key": "team", "value": f"Team {name}"}, {"key": "mlflow.x", "value": name}],
        )  # fmt: skip
        params = [{"key": "lr", "value": f"0.{place}"}] + ([{"key": "odd name", "value": "x"}] if name == "a" else [])
        mlflow.call("post", "runs/log-batch", run_id=run, metrics=[point(value=loss[name])], params=params)
    mlflow.call("post", "runs/log-batch", run_id=runs["a"], metrics=[point("f1-score", 1), point("a.b/c", 3)])
    dataset = {"name": "digits", "digest": "d1", "source_type": "local", "source": "{}"}
    inputs = [{"dataset": dataset, "tags": [{"key": "mlflow.data.context", "value": "train"}]}]
    mlflow.call("post", "runs/log-inputs", run_id=runs["b"], datasets=inputs)
    mlflow.call("post", "runs/update", run_id=runs["b"], status="FINISHED", end_time=5000)
    mlflow.call("post", "runs/update", run_id=runs["c"], status="KILLED", end_time=6000)
    return key, runs


def search(mlflow, key: str, filter: str = "", **fields) -> str:
    answer = mlflow.call("post", "runs/search", experiment_ids=[key], filter=filter, **fields)
    return "".join(run["info"]["run_name"] for run in answer["runs"])


@pytest.mark.parametrize(
    ("filter", "wanted"),
    few([
        ("", "abc"),
        ("metrics.loss < 1", "a"),
        ("metrics.loss < 1 and", "a"),
        ("and metrics.loss < 1 AND and params.lr = '0.0' and ", "a"),
        ("and", "abc"),
        ("tags.team = 'Team a' and", "a"),
        ("metric.loss >= 0.5 and metrics.loss != 2", "a"),
        ("metrics.loss > 0.1", "ab"),
        ("metrics.loss != 0.5", "bc"),
        ("metrics.loss = 2", "b"),
        ("metrics.`f1-score` = 1 AND metrics.\"a.b/c\" <= 3", "a"),
        ("params.lr = '0.1'", "b"),
        ("param.lr != '0.1'", "ac"),
        ("params.lr LIKE '0.%'", "abc"),
        ("parameters.lr ilike '0.2'", "c"),
        ("params.`odd name` = 'x'", "a"),
        ("params.`odd name` IS NULL", "bc"),
        ("params.`odd name` IS NOT NULL", "a"),
        ("params.lr IN ('0.0', '0.2')", "ac"),
        ("tags.team = 'Team a'", "a"),
        ("tags.team ILIKE 'team %' and tags.team NOT IN ('Team b')", "ac"),
        ("tags.team LIKE 'team %'", ""),
        ('tags.mlflow.x = "b"', "b"),
        ("tags.`mlflow.x` != 'b'", "ac"),
        ("tags.nothing IS NULL", "abc"),
        ("tags.nothing != 'x'", ""),
        ("tags.mlflow.runName = 'c'", "c"),
        ("tag.mlflow.user = 'ub'", "b"),
        ("attributes.status = 'RUNNING'", "a"),
        ("status != 'RUNNING'", "bc"),
        ("attr.status LIKE 'KILL%'", "c"),
        ("run.run_name = 'a'", "a"),
        ("attributes.`Run name` = 'b'", "b"),
        ("attributes.start_time > 1000", "bc"),
        ("start_time <= 1001", "ab"),
        ("attributes.created = 1001", "b"),
        ("end_time >= 5000 and end_time < 6000", "b"),
        ("user_id = 'ua'", "a"),
        ("datasets.name = 'digits'", "b"),
        ("dataset.digest LIKE 'd%' AND datasets.context IN ('train')", "b"),
        ("attributes.artifact_uri LIKE 'mlflow-artifacts:/%/artifacts'", "abc"),
        ("tags.`team` = 'Team ''a'", ""),
    ], 13),
)  # fmt: skip
def test_a_filter_finds_what_it_says(mlflow, runs, filter, wanted):
    assert "".join(sorted(search(mlflow, runs[0], filter))) == wanted


def test_ids_are_found_by_lists(mlflow, runs):
    key, ids = runs
    assert search(mlflow, key, f"attributes.run_id IN ('{ids['a']}', '{ids['c']}', 'x')", order_by=["run_name"]) == "ac"
    assert search(mlflow, key, f"run_id = '{ids['b']}'") == "b"
    assert search(mlflow, key, f"run_id NOT IN ('{ids['b']}')", order_by=["run_name DESC"]) == "ca"
    many = ", ".join(f"'{Job().run_id.hex}'" for _ in range(1000))
    assert search(mlflow, key, f"run_id IN ({many}, '{ids['b']}')") == "b"
    child = start(mlflow, key, run_name="d", tags=[{"key": "mlflow.parentRunId", "value": ids["a"]}])
    assert child
    assert search(mlflow, key, f"tags.mlflow.parentRunId = '{ids['a']}'") == "d"


def test_a_text_of_several_lines_is_found(mlflow, runs):
    key = runs[0]
    run = start(mlflow, key, run_name="lines", tags=[{"key": "why", "value": "one\ntwo"}])
    mlflow.call("post", "runs/log-parameter", run_id=run, key="text", value="a\r\nb")
    for filter in (
        "tags.why = 'one\ntwo'",
        "params.text = 'a\r\nb'",
        "tags.why LIKE 'one\n%'",
        "tags.why\n=\n'one\ntwo'",
    ):
        assert search(mlflow, key, filter) == "lines", filter
    assert search(mlflow, key, "tags.why = 'one two'") == ""


@pytest.mark.parametrize(
    "filter",
    few(
        [
            "metrics.loss < 1 OR metrics.loss > 2",
            "NOT metrics.loss < 1",
            "metrics.loss < 'x'",
            "metrics.loss LIKE '1'",
            "metrics.loss IS NULL",
            "params.lr = 0.1",
            "params.lr > '1'",
            "loss < 1",
            "attributes.nothing = 'x'",
            "datasets.source = 'x'",
            "things.x = 'y'",
            "metrics.loss <",
            "metrics.loss",
            "min(loss) < 1",
            "tags.x = 'a' tags.y = 'b'",
            "status = RUNNING",
            "start_time = 'x'",
        ],
        6,
    ),
)
def test_a_filter_that_is_none_is_refused(mlflow, runs, filter):
    assert mlflow.refused("post", "runs/search", experiment_ids=[runs[0]], filter=filter) == "INVALID_PARAMETER_VALUE"


@pytest.mark.parametrize(
    ("order", "wanted"),
    few(
        [
            ([], "cba"),
            (["metrics.loss ASC"], "abc"),
            (["metrics.loss DESC"], "bac"),
            (["metrics.`f1-score`"], "acb"),
            (["params.lr desc"], "cba"),
            (["params.`odd name`"], "acb"),
            (["tags.team"], "abc"),
            (["attributes.start_time"], "abc"),
            (["end_time DESC"], "cba"),
            (["status", "run_name DESC"], "bca"),
            (["attributes.`Run name`"], "abc"),
        ],
        4,
    ),
)
def test_runs_have_the_order_that_is_asked_for(mlflow, runs, order, wanted):
    assert search(mlflow, runs[0], order_by=order) == wanted


@pytest.mark.parametrize(
    ("filter", "order", "wanted"),
    few(
        [
            ("metrics.loss < 3", "metrics.loss DESC", "ba"),
            ("metrics.loss >= 0.5", "metrics.loss", "ab"),
            ("metrics.loss > 0.5 and metrics.loss <= 2", "metrics.loss", "b"),
            ("metrics.loss = 0.5 and params.lr = '0.1'", "metrics.loss", ""),
            ("metrics.loss != 2", "metrics.loss DESC", "ac"),
            ("metrics.loss < 3", "metrics.`f1-score`", "ab"),
        ],
        2,
    ),
)
def test_runs_are_sorted_by_the_metric_that_they_are_chosen_by(mlflow, runs, filter, order, wanted):
    assert search(mlflow, runs[0], filter, order_by=[order]) == wanted
    pages, token = "", None
    while token != "":
        fields = {"filter": filter, "order_by": [order], "max_results": 1, "page_token": token or ""}
        answer = mlflow.call("post", "runs/search", experiment_ids=[runs[0]], **fields)
        pages += "".join(run["info"]["run_name"] for run in answer["runs"])
        token = answer.get("next_page_token", "")
    assert pages == wanted


@pytest.mark.parametrize("order", [["metrics.loss upwards"], ["nothing"], ["metrics.loss", "metrics.loss"], [""]])
def test_an_order_that_is_none_is_refused(mlflow, runs, order):
    assert mlflow.refused("post", "runs/search", experiment_ids=[runs[0]], order_by=order) == "INVALID_PARAMETER_VALUE"


def test_views_and_pages_of_runs(mlflow, runs, mlflow_of_bob):
    key, ids = runs
    mlflow.call("post", "runs/delete", run_id=ids["a"])
    assert search(mlflow, key) == "cb"
    assert search(mlflow, key, run_view_type="DELETED_ONLY") == "a"
    assert search(mlflow, key, run_view_type="ALL") == search(mlflow, key, run_view_type=3) == "cba"
    names, token = "", ""
    while token is not None:
        fields = {"max_results": 2, "run_view_type": "ALL", **({"page_token": token} if token else {})}
        answer = mlflow.call("post", "runs/search", experiment_ids=[key], **fields)
        names += "".join(run["info"]["run_name"] for run in answer["runs"])
        token = answer.get("next_page_token")
    assert names == "cba"
    assert mlflow.refused("post", "runs/search", experiment_ids=[key], page_token="x") == "INVALID_PARAMETER_VALUE"
    assert mlflow.refused("post", "runs/search", experiment_ids=["x"]) == "INVALID_PARAMETER_VALUE"
    assert search(mlflow_of_bob, key) == search(mlflow, "99999") == ""
    assert mlflow.call("post", "runs/search")["runs"] == []


def test_experiments_are_searched(mlflow, mlflow_of_bob, runs):
    keys = {name: experiment(mlflow, name) for name in ("ab", "bc", "cd")}
    mlflow.call("post", "experiments/set-experiment-tag", experiment_id=keys["ab"], key="team", value="red")
    mlflow.call("post", "experiments/delete", experiment_id=keys["cd"])

    def names(**fields) -> list[str]:
        answer = mlflow.call("post", "experiments/search", max_results=10, **fields)
        return [experiment["name"] for experiment in answer["experiments"]]

    assert set(names()) == {"ab", "bc", "vision", "Default"}
    assert names(view_type="DELETED_ONLY") == ["cd"]
    assert names(filter="name LIKE '%b%'", order_by=["name DESC"]) == ["bc", "ab"]
    assert names(filter="attribute.name ILIKE 'A%' AND tags.team = 'red'") == ["ab"]
    assert names(filter="tags.team IS NULL and creation_time > 0 and name ILIKE 'b%'") == ["bc"]
    assert names(filter=f"experiment_id IN ('{keys['bc']}')") == ["bc"]
    assert mlflow.refused("post", "experiments/search", filter="metrics.x = 1") == "INVALID_PARAMETER_VALUE"
    first = mlflow.call("post", "experiments/search", max_results=1, order_by=["name"])
    second = mlflow.call("post", "experiments/search", max_results=1, order_by=["name"],
                         page_token=first["next_page_token"])  # fmt: skip
    assert [page["experiments"][0]["name"] for page in (first, second)] == ["Default", "ab"]
    assert [experiment["name"] for experiment in mlflow_of_bob.call("post", "experiments/search")["experiments"]] == [
        "Default"
    ]


def test_a_page_of_many_runs_needs_no_more_queries_than_one_of_a_few(mlflow, runs):
    for place, run in enumerate(ids(mlflow, runs[0])):
        dataset = {"name": f"d{place}", "digest": "1", "source_type": "local", "source": "{}"}
        mlflow.call("post", "runs/log-inputs", run_id=run, datasets=[{"dataset": dataset}])

    def page(most: int) -> int:
        fields = {"filter": "metrics.loss > 0", "order_by": ["metrics.loss"], "max_results": most}
        with CaptureQueriesContext(connection) as queries:
            answer = mlflow.call("post", "runs/search", experiment_ids=[runs[0]], **fields)
        assert len(answer["runs"]) == most
        assert all(run["inputs"]["dataset_inputs"] for run in answer["runs"])
        return len(queries)

    page(1)
    assert page(2) <= page(1)


def ids(mlflow, key: str) -> list[str]:
    return [run["info"]["run_id"] for run in mlflow.call("post", "runs/search", experiment_ids=[key])["runs"]]


def test_a_search_shows_runs_as_get_does(mlflow, runs, alice):
    key = experiment(mlflow, "alike")
    run = start(mlflow, key, run_name='a "name" 运行')
    odd = 'back\\slash "quoted" 损失 \u2028 </script>'
    mlflow.call(
        "post", "runs/log-batch", run_id=run,
        metrics=[point("nan", "NaN"), point("inf", "Infinity"), point("-inf", "-Infinity"), point("tiny", 5e-324),
                 point("third", 1 / 3, step=-7), point("large", 1e308), point("损失/α", 1.0)],
        params=[{"key": "empty", "value": ""}, {"key": "odd", "value": odd}],
        tags=[{"key": "odd", "value": odd}, {"key": "mlflow.note.content", "value": odd}],
    )  # fmt: skip
    dataset = {"name": "d", "digest": "1", "source_type": "local", "source": "{}"}
    mlflow.call("post", "runs/log-inputs", run_id=run, datasets=[{"dataset": dataset}])
    ended = start(mlflow, key)
    mlflow.call("post", "runs/update", run_id=ended, status="FINISHED", end_time=1_700_000_000_123)
    of_a_job = Job.objects.get(run_id=start(mlflow, key))
    Job.objects.create(
        user=alice, tenant=alice.tenant, name="fit", entry="fit.py", state="error",
        reason="cancelled by alice", outcome="cancelled",
        project=of_a_job.project, ended=of_a_job.created.replace(microsecond=122_500),  # half a millisecond
    )  # fmt: skip
    keys = [key, runs[0]]
    listed = mlflow.call("post", "runs/search", experiment_ids=keys, run_view_type="ALL")["runs"]
    assert {run, ended} < {row["info"]["run_id"] for row in listed}
    for row in listed:
        assert row == mlflow.call("get", "runs/get", run_id=row["info"]["run_id"])["run"]


def test_a_run_was_killed_or_failed_by_its_outcome_whatever_its_reason_says(mlflow, alice):
    runs = [start(mlflow) for _ in range(3)]
    for run, reason, outcome in zip(
        runs, ("ended early", "cancelled by the driver", "cancelled"), ("pruned", "failed", "cancelled"), strict=True
    ):
        Job.objects.filter(run_id=run).update(state="error", reason=reason, outcome=outcome)
    for run, status in zip(runs, ("KILLED", "FAILED", "KILLED"), strict=True):
        info = mlflow.call("get", "runs/get", run_id=run)["run"]["info"]
        same = {"experiment_ids": [info["experiment_id"]], "filter": f"attributes.status = '{status}'"}
        listed = mlflow.call("post", "runs/search", **same)["runs"]
        assert info["status"] == status
        assert {row["info"]["run_id"]: row["info"]["status"] for row in listed}[run] == status

"""Runs over REST: filtered, sorted, a page at a time; tagged, trashed and restored; projects and views."""

from __future__ import annotations

import re
from itertools import product

import jsonschema
import pytest

from jobs import trash
from jobs.models import Job, Project, RunMetric, RunParam, State, View
from jobs.serializers import ProjectField
from kernel.errors import Refused
from mlp.tests.tiers import few
from tracking.runs import board
from tracking.runs.serializers import ViewNameField

pytestmark = pytest.mark.django_db
RUNS = "users/alice/runs"


@pytest.fixture
def names(as_alice, runs):
    """Return the names of the runs that a query finds."""

    def find(**query) -> str:
        answer = as_alice.call("get", RUNS, query)
        assert answer.status_code == 200, answer.content
        return "".join(run["name"] for run in answer.json()["runs"])

    return find


@pytest.mark.parametrize(
    ("expression", "expected"),
    few(
        [
            ("", "edcba"),
            ("loss < 0.1 and lr = 0.1 and tag = baseline", "a"),
            ("loss > 0.1", "b"),  # PostgreSQL has NaN above all numbers
            ("loss >= 0.5 or max(loss) > 0", "ba"),
            ("loss = nan", "c"),
            ("not (loss < 0.1)", "edcb"),
            ("loss is null", "ed"),
            ("loss is not null and loss != nan", "ba"),
            ("min(loss) <= 0.05 or MAX(metrics.loss) = 0.5", "ba"),
            ("best(loss) = 0.05", "a"),
            ("lr = 0.01", "cb"),  # 1e-2 and 0.01 are one number
            ("lr = '1e-2'", "b"),
            ("lr in (0.1, adam, 'none')", "da"),
            ("param.lr like '%-2'", "b"),
            ("lr not in (2)", "dcba"),
            ("lr != 2", "dcba"),
            ('params."batch-size" >= 8 and `batch-size` < 9', "edcba"),
            ("state = failed", "c"),
            ("state in (cancelled, failed)", "dc"),
            ("state = error", "dc"),
            ("state = queued", "e"),
            ("script ilike 'EVAL%' or name = d", "db"),
            ("tag != baseline", "edc"),
            ("tag.team = vision", "c"),
            ("tags.team like 'vis%'", "c"),
            ("tag is null", "ed"),
            ("project = vision and not tag.team is not null", "ba"),
            ("group = sweep", "c"),
            ("duration > 30s and duration <= 10m30s", "b"),
            ("created > -1d and created < 2999-01-01", "edcba"),
            ("created = 2001-02-03", ""),
            ("cpu >= 8 and gpu = 0 and favourite = false and dataset != images", "edcba"),
            ("reason like '%exit%'", "c"),
            ("name = 'o''brien; drop table job'", ""),
        ],
        11,
    ),
)
def test_filters(names, expression, expected):
    assert names(filter=expression) == expected


@pytest.mark.parametrize(
    ("expression", "problem"),
    few(
        [
            ("loss <", "column 7: expected a value, but the filter ends"),
            ("lr = 1 loss = 2", "column 8: expected and, or, or the end, found loss"),
            ("los < 1", "column 1: no run has a metric, an argument or an attribute los; did you mean loss?"),
            ("tag = a or loss < x", "column 19: x is not a number"),
            ("loss < 'a", "column 8: this quotation mark is not closed"),
            ("(loss < 1", "column 10: expected and, or, or a closing parenthesis, but the filter ends"),
            ("state = done", "column 9: done is not a state"),
            ("duration > soon", "column 12: soon is not a duration"),
            ("created > yesterday", "column 11: yesterday is not a time"),
            ("created > 0000-99-99", "column 11: 0000-99-99 is not a time"),
            ("created > -9999999999d", "column 11"),
            ("loss like 'a'", "column 1: loss cannot be compared by like"),
            ("script < a", "column 1: script cannot be compared by <"),
            ("foo.`x` = 1", "column 1: foo is neither"),
            ("cpu = 1e300", "column 7: 1e300 is out of range"),
            ("name like '" + "%" * 11 + "'", "column 11: a pattern has at most 10"),
            ("(" * 60 + "a = 1" + ")" * 60, "column 51: parentheses are nested too deeply"),
            ("not " * 60 + "a = 1", "column 1: a filter has at most"),
            (" or ".join(["cpu = 1"] * 51), "column 1: a filter has at most 50 comparisons"),
            ("x" * 5000, "column 4000"),
            ("a = \x00", "column 5: must be valid text"),
            ("cpu = 1 ; drop", "column 9: expected and, or, or the end, found ;"),
        ],
        8,
    ),
)
def test_a_filter_that_is_wrong_says_where(as_alice, runs, expression, problem):
    answer = as_alice.call("get", RUNS, {"filter": expression})
    assert answer.status_code == 403
    assert answer.json()["msg"].startswith(f"filter: {problem}")


@pytest.fixture
def logged_lr(runs):
    """Let run c, which has no project, log a metric of the name of everybody's argument."""
    RunMetric.objects.create(job=runs["c"], user=runs["c"].user, name="lr", last=3, min=3, max=3, count=1, step=1)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"filter": "lr = 0.1", "project": "vision"}, "a"),
        ({"filter": "lr = 0.1"}, "a"),
        ({"filter": "lr = 3"}, ""),
        ({"filter": "metric.lr = 3"}, "c"),
        ({"filter": "max(lr) = 3"}, "c"),
        ({"filter": "not metric.lr = 3", "project": "vision"}, "ba"),
    ],
)
def test_a_name_that_is_also_a_metric_is_the_argument(names, logged_lr, query, expected):
    assert names(**query) == expected


def test_numbers_are_compared_with_the_metric_where_no_argument_of_the_name_is_a_number(names, runs):
    """As where one run is started with `--loss mse`."""
    RunParam.objects.create(job=runs["d"], user=runs["d"].user, name="loss", text="mse")
    assert (names(filter="loss < 0.1"), names(filter="loss = mse")) == ("a", "d")
    RunParam.objects.create(job=runs["e"], user=runs["e"].user, name="loss", text="0.05", number=0.05)
    assert names(filter="loss < 0.1") == "e"


def test_a_name_means_what_it_is_in_the_runs_that_are_filtered(names, logged_lr, runs):
    RunParam.objects.filter(job=runs["c"], name="lr").delete()
    Job.objects.filter(pk=runs["c"].pk).update(project=Project.objects.create(user=runs["c"].user, name="logged"))
    assert names(filter="lr = 3", project="logged") == "c", "an argument elsewhere, here a metric"
    assert names(filter="lr = 0.1", project="vision") == "a"
    Job.objects.filter(pk=runs["c"].pk).update(project=None)
    assert names(filter="lr = 3", project="logged") == "", "the name is known, but no run of the project has it"


@pytest.mark.parametrize(
    ("sort", "expected"),
    few(
        [
            ("created", "abcde"),
            ("last:loss", "abced"),  # NaN after the numbers, then those without, newest first
            ("-max:loss", "cbaed"),
            ("best:loss", "abced"),
            ("param:lr", "cbaed"),  # numbers first, then text
            ("-param:lr", "deabc"),
            ("name", "abcde"),
            ("script", "bacde"),
            ("-duration", "bacde"),
            ("state", "dcabe"),
            ("tags", "abced"),
            ("project", "cdeab"),
            ("group", "cedba"),
            ("-last:nothing", "edcba"),
        ],
        4,
    ),
)
def test_every_order_is_the_same_page_by_page(as_alice, runs, sort, expected):
    assert Job.objects.update(notes="") == 5
    whole = as_alice.call("get", RUNS, {"sort": sort}).json()
    assert "".join(run["name"] for run in whole["runs"]) == expected
    listed, after = "", ""
    while True:
        page = as_alice.call("get", RUNS, {"sort": sort, "limit": 2, "after": after}).json()
        listed += "".join(run["name"] for run in page["runs"])
        after = page["next"]
        if not after:
            break
    assert (listed, page["total"]) == (expected, 5)


def test_a_run_has_its_arguments_and_metrics(as_alice, runs):
    answer = as_alice.call("get", RUNS, {"filter": "loss = nan or name = a", "sort": "name"}).json()
    first, last = answer["runs"]
    assert first["params"] == {"batch-size": "8", "lr": "0.1"}
    assert first["metrics"] == {"loss": {"last": 0.05, "min": 0.05, "max": 0.05, "count": 1, "step": 1}}
    assert last["metrics"]["loss"]["last"] == "NaN"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"sort": "nonsense"}, "sort"),
        ({"after": "x"}, "after"),
        ({"state": "x"}, "state"),
        ({"state": ""}, "state"),
        ({"limit": "0"}, "limit"),
        ({"project": "none"}, "project"),
        ({"other": "1"}, "other"),
        ({"trash": "2"}, "trash"),
    ],
)
def test_what_a_table_does_not_have_is_refused(as_alice, runs, query, field):
    answer = as_alice.call("get", RUNS, query)
    assert answer.status_code == 403
    assert field in answer.json()["msg"]


def test_runs_are_tagged_marked_and_moved_by_name_and_by_filter(as_alice, names):
    done = as_alice.call("put", f"{RUNS}:tag", {"jobs": ["a", "e"], "add": {"k": "v"}, "remove": ["baseline"]})
    assert done.json() == {"changed": 2, "left": 0}
    assert (names(filter="tag.k = v"), names(filter="tag = baseline")) == ("ea", "b")
    assert as_alice.call("put", f"{RUNS}:mark", {"filter": "lr = 0.01", "favourite": True}).json()["changed"] == 2
    assert names(filter="favourite = true") == "cb"
    assert (
        as_alice.call("put", f"{RUNS}:move", {"filter": "", "state": "failed", "to": "vision"}).json()["changed"] == 1
    )
    assert names(project="vision") == "cba"
    many = {str(number): "" for number in range(99)}
    assert as_alice.call("put", f"{RUNS}:tag", {"jobs": ["a", "d"], "add": many}).json() == {"changed": 2, "left": 0}
    assert as_alice.call("put", f"{RUNS}:tag", {"jobs": ["a", "d"], "add": ["x"]}).json() == {"changed": 1, "left": 1}


@pytest.mark.parametrize("body", [{}, {"jobs": ["a"], "filter": ""}, {"jobs": "a"}, {"filter": "a ="}])
def test_a_selection_is_either_names_or_a_filter(as_alice, runs, body):
    assert as_alice.call("put", f"{RUNS}:trash", body).status_code == 403


def test_only_ended_runs_go_to_the_trash_and_all_come_back(home, as_alice, names, runs, api, bob):
    assert as_alice.call("put", f"{RUNS}:trash", {"filter": "lr != 0.1"}).json() == {"changed": 3, "left": 1}
    assert (names(), names(trash="1")) == ("ea", "dcb")
    taken = as_alice.call("post", "users/alice/jobs", {"name": "b", "entry": "train.py"})
    assert "it is in the trash" in taken.json()["msg"]
    listed = [job["name"] for job in as_alice.call("get", "users/alice/jobs").json()]
    assert listed == ["e", "a"]
    assert as_alice.call("put", f"{RUNS}:restore", {"jobs": ["b", "c"]}).json() == {"changed": 2, "left": 0}
    assert as_alice.call("put", "users/alice/jobs/d:restore").json()["trashed"] is None
    assert as_alice.call("put", "users/alice/jobs/d:restore").status_code == 403
    assert names() == "edcba"
    assert as_alice.call("put", "users/alice/jobs/e:trash").status_code == 403
    assert as_alice.call("put", "users/alice/jobs/a:trash").json()["trashed"]


def test_a_run_is_edited(as_alice, runs):
    body = {"notes": "# hi", "tags": ["x"], "favourite": True, "group": "g", "project": "vision", "colour": 7}
    answer = as_alice.call("put", "users/alice/jobs/c:edit", body)
    assert {key: answer.json()[key] for key in body} == {**body, "tags": {"x": ""}}
    assert as_alice.call("put", "users/alice/jobs/c:edit", {"project": "none"}).status_code == 403
    assert as_alice.call("put", "users/alice/jobs/c:edit", {"tags": [""]}).status_code == 403
    assert as_alice.call("put", "users/alice/jobs/c:edit", {"colour": 10}).status_code == 403
    assert as_alice.call("put", f"{RUNS}:mark", {"jobs": ["b", "c"], "hidden": True}).json()["changed"] == 2
    assert as_alice.call("get", "users/alice/jobs/c").json()["hidden"] is True
    assert as_alice.call("put", f"{RUNS}:mark", {"jobs": ["b"]}).json()["msg"] == "specify favourite or hidden"


def test_a_project_goes_to_the_trash_with_its_runs_and_comes_back_with_them(as_alice, names, runs, alice):
    project = Project.objects.get(name="vision")
    url = f"users/alice/projects/{project.pk}"
    trash.trash(Job.objects.filter(name="a"), alice, "alice")  # before: it stays there when the project comes back
    Job.objects.filter(name="b").update(state=State.RUNNING)
    assert "queued or running: b" in as_alice.call("delete", url).json()["msg"]
    Job.objects.filter(name="b").update(state=State.FINISHED)
    assert as_alice.call("delete", url).json()["trashed"]
    assert names() == "edc"
    assert "restore the project" in as_alice.call("put", "users/alice/jobs/b:restore").json()["msg"]
    answer = as_alice.call("post", "users/alice/projects", {"name": "vision"}).json()
    assert "another project has this name now" in as_alice.call("put", f"{url}:restore").json()["msg"]
    as_alice.call("put", f"users/alice/projects/{answer['id']}", {"name": "other"})
    assert as_alice.call("put", f"{url}:restore").json()["trashed"] is None
    assert (names(), names(trash="1")) == ("edcb", "a")
    default = Project.objects.get(default=True)
    assert as_alice.call("delete", f"users/alice/projects/{default.pk}").status_code == 403


def test_projects_are_made_listed_and_changed(as_alice, runs):
    body = {
        "name": "a/b ü", "readme": "*x*", "goals": {"fid": "min"}, "tags": {"k": "v"},
        "board": [{"kind": "number", "metric": "loss", "statistic": "best"}],
    }  # fmt: skip
    response = as_alice.call("post", "users/alice/projects", body)
    assert response.status_code == 201
    assert {key: response.json()[key] for key in body} == body
    assert (
        as_alice.call("post", "users/alice/projects", {"name": "a/b ü"}).json()["msg"].startswith("name: you already")
    )
    url = f"users/alice/projects/{response.json()['id']}"
    assert as_alice.call("put", url, {"name": "c"}).json()["name"] == "c"
    listed = as_alice.call("get", "users/alice/projects").json()
    assert {project["name"] for project in listed} == {"c", "default", "vision"}
    for field, value in [
        ("board", [{"kind": "x"}]), ("board", [{"kind": "number"}]), ("board", {}), ("goals", {"a": "up"}),
        ("board", [{"kind": "series", "metric": "a", "runs": 99}]), ("readme", 1),
    ]:  # fmt: skip
        assert as_alice.call("put", url, {field: value}).json()["msg"].startswith(field)


NEEDED = {"metric": "loss", "metrics": ["loss"], "x": "param:lr", "y": "best:loss", "axes": ["param:lr", "best:loss"]}
HOSTILE = [None, True, 0, -1, 1.5, 10**30, "", "x", "\x00", [], {}, [{}], {"a": []}]


def hostile_panels(kind: str) -> list[tuple[str, dict]]:
    """Return panels of that kind with one value that is hostile, each with the value's name."""
    needed = {field: NEEDED[field] for field in board.REQUIRED.get(kind, [])}
    names = [*board.COMMON, *board.KINDS[kind], "x", "\x00"]
    return [(name, {"kind": kind, **needed, name: value}) for name, value in product(names, HOSTILE)]


def test_a_hostile_value_of_a_panel_is_refused_with_its_name():
    refused = set()
    for kind in board.KINDS:
        for name, panel in hostile_panels(kind):
            try:
                board.checked([{"kind": "count"}, panel])
            except Refused as refusal:
                message = str(refusal)
                assert message.startswith("board: panel 2"), panel
                assert name.strip("\x00") in message, panel
                refused.add((kind, name))
    assert {(kind, name) for kind in board.KINDS for name in (*board.KINDS[kind], "x", "\x00")} <= refused


def test_a_hostile_panel_is_refused_over_rest_too(as_alice):
    url = f"users/alice/projects/{as_alice.call('post', 'users/alice/projects', {'name': 'p'}).json()['id']}"
    for name, panel in hostile_panels("series"):
        answer = as_alice.call("put", url, {"board": [{"kind": "count"}, panel]})
        if answer.status_code != 200:
            assert (answer.status_code, answer.json()["msg"][:14]) == (403, "board: panel 2"), panel
            assert name.strip("\x00") in answer.json()["msg"], panel


def test_views_are_saved_and_replaced_by_name(as_alice, runs):
    body = {"name": "best", "query": "?filter=loss<1&sort=min:loss&after=x&col=name&col=min:loss", "project": "vision"}
    saved = as_alice.call("post", "users/alice/views", body).json()
    assert saved["query"] == "filter=loss%3C1&sort=min%3Aloss&col=name&col=min%3Aloss"
    again = as_alice.call("post", "users/alice/views", {**body, "query": "state=failed"}).json()
    assert again["id"] == saved["id"]
    assert [view["query"] for view in as_alice.call("get", "users/alice/views").json()] == ["state=failed"]
    assert as_alice.call("delete", f"users/alice/views/{saved['id']}").status_code == 200
    assert not View.objects.exists()


NAMES = ["a b", "a/b", "", "a\n", "a\x12b", "x" * 100, "x" * 101, "x" * 501, "\x85", "\u2028a", "a\x80", "/", "/a",
         "//a", "a//b", "a/", "./a", "a/..", "...", "a/.b", "..", "/."]  # fmt: skip


@pytest.mark.parametrize("name", few(NAMES, 6))
def test_the_name_of_a_project_is_accepted_exactly_where_its_schema_says_so(as_alice, name):
    saved = as_alice.call("post", "users/alice/projects", {"name": name})
    assert (saved.status_code == 201) == bool(re.fullmatch(ProjectField.pattern, name)), saved.json()


@pytest.mark.parametrize("name", few(NAMES, 6))
def test_the_name_of_a_view_is_accepted_exactly_where_its_schema_says_so(as_alice, name):
    saved = as_alice.call("post", "users/alice/views", {"name": name, "query": ""})
    assert (saved.status_code == 201) == bool(re.fullmatch(ViewNameField.pattern, name)), saved.json()


def test_another_user_sees_and_changes_nothing(as_alice, as_bob, runs):
    project = Project.objects.get(name="vision")
    assert as_bob.call("get", RUNS).status_code == 403
    assert as_bob.call("get", "users/bob/runs").json()["runs"] == []
    assert as_bob.call("get", f"users/bob/projects/{project.pk}").status_code == 403
    assert as_bob.call("put", "users/bob/runs:trash", {"jobs": ["a"]}).json() == {"changed": 0, "left": 0}
    assert as_bob.call("put", "users/alice/jobs/a:edit", {"notes": "x"}).status_code == 403


@pytest.mark.parametrize(
    "panels",
    [
        [{"kind": "number", "metric": "loss", "statistic": "best", "wide": True}], [{"kind": "count"}], [{}], {},
        [{"kind": "series", "metric": "a", "runs": 20, "filter": ""}], [{"kind": "series", "metric": "a", "runs": 21}],
        [{"kind": "text", "text": "x" * 20_000}], [{"kind": "text", "text": "x" * 20_001}], [{"kind": "number"}],
        [{"kind": "count", "metric": "loss"}], [{"kind": "number", "metric": ""}], [{"kind": "count"}] * 41,
        [{"kind": "chart", "metrics": ["a", "b"], "smooth": 0.5, "runs": 20}], [{"kind": "chart", "metrics": []}],
        [{"kind": "chart", "metrics": ["a"], "smooth": 1}], [{"kind": "chart", "metrics": ["a"] * 11}],
        [{"kind": "scatter", "x": "param:lr", "y": "best:loss"}], [{"kind": "scatter", "x": "lr", "y": "best:loss"}],
        [{"kind": "parallel", "axes": ["param:lr"]}], [{"kind": "count", "columns": 4, "tall": True}],
        [{"kind": "count", "columns": 5}], [{"kind": "chart", "metrics": ["a"], "axis": "epoch", "order": "worst"}],
        [{"kind": "number", "metric": "loss", "statistic": "mean"}], [{"kind": "count", "title": "x" * 201}],
        [{"kind": "count", "filter": "a\0b"}], [{"kind": "number", "metric": "\0"}],
    ],
)  # fmt: skip
def test_a_board_is_accepted_exactly_where_its_schema_says_so(panels):
    described = jsonschema.Draft202012Validator(board.schema()).is_valid(panels)
    try:
        board.checked(panels)
    except Refused:
        assert not described
    else:
        assert described

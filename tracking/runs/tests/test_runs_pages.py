"""The table of runs and the projects as pages: what is shown, done to many runs, undone, exported and saved."""

from __future__ import annotations

import csv
import html
import io
import json
import re

import pytest

from jobs.models import Job, Project, View
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db


@pytest.fixture
def pages(client, alice, runs):
    client.force_login(alice)
    return client


def rows(response) -> str:
    """Return the names of the runs that a page shows, in their order."""
    assert response.status_code == 200, response.status_code
    return "".join(re.findall(r'<input[^>]*name="job"[^>]*value="([a-z]+)"', response.content.decode()))


def test_progress_and_first_metric_are_below_the_names_on_a_phone(pages, runs):
    text = pages.get("/jobs", {"col": ["best:loss", "last:other"], "filter": "name in (a, d)"}).content.decode()
    assert re.findall(r'<span class="hint below-name">([^<]*)<', text) == ["0 %", "0 % · loss best 0.05"]


def act(client, do: str, *names: str, **fields):
    return client.post("/runs/act", {"do": do, "job": names, "next": "/jobs", **fields}, follow=True)


def test_the_table_shows_the_columns_of_its_address(pages):
    text = pages.get("/jobs", {"col": ["param:lr", "best:loss", "waiting", "x"], "sort": "-best:loss"}).content.decode()
    heads = re.findall(r"<th\s+scope=\"col\".*?</th>", text, re.DOTALL)[1:]
    texts = [re.sub(r"<button.*?</button>", "", head, flags=re.DOTALL) for head in heads]
    titles = [" ".join(re.sub(r"<.*?>", " ", text, flags=re.DOTALL).split()) for text in texts]
    assert titles == ["Name", "lr", "loss best", "Waiting time"]
    assert 'aria-sort="descending"' in heads[2]
    assert rows(pages.get("/jobs", {"sort": "param:lr"})) == "cbaed"
    assert rows(pages.get("/jobs", {"filter": "loss < 0.1 and lr = 0.1 and tag = baseline"})) == "a"


def test_cancelled_is_a_state_of_its_own(pages):
    assert rows(pages.get("/jobs", {"state": "failed"})) == "c"
    assert rows(pages.get("/jobs", {"state": "cancelled"})) == "d"
    assert rows(pages.get("/jobs", {"state": "error"})) == "dc"


def test_a_wrong_filter_is_shown_with_its_place_and_escaped(pages):
    text = pages.get("/jobs", {"filter": "loss < <script>alert(1)</script>"}).content.decode()
    assert "column 8" in text
    assert "<mark>&lt;</mark>" in text
    assert "<script>alert" not in text


def test_runs_are_tagged_deleted_and_restored_with_undo(pages):
    assert "Select at least one run." in act(pages, "tag").content.decode()
    act(pages, "tag", "a", "c", tags="x, team=ml")
    assert Job.objects.get(name="a").tags == {"baseline": "", "x": "", "team": "ml"}
    assert "enter at least one tag" in act(pages, "tag", "a", tags=" ").content.decode()
    act(pages, "untag", tags="x", all="1", query="filter=tag.team+%3D+ml")
    assert "x" not in Job.objects.get(name="c").tags
    gone = act(pages, "trash", "a", "b", "e").content.decode()
    assert "2 runs moved to the trash. 1 run was not changed." in gone
    assert rows(pages.get("/jobs")) == "edc"
    assert rows(pages.get("/jobs", {"trash": "1"})) == "ba"
    at = re.search(r'name="at" value="(\d+)"', gone).group(1)
    assert "2 runs restored." in pages.post("/runs/undo", {"at": at}, follow=True).content.decode()
    again = pages.post("/runs/undo", {"at": at}, follow=True).content.decode()
    assert "not in the trash any more" in again
    assert rows(pages.get("/jobs")) == "edcba"


@pytest.mark.long
def test_all_that_match_are_changed_on_all_pages(pages):
    act(pages, "trash", all="1", query="filter=lr+!%3D+2&state=failed")
    assert rows(pages.get("/jobs")) == "edba"
    act(pages, "restore", all="1", query="trash=1")
    act(pages, "cancel", all="1", query="")
    assert Job.objects.get(name="e").shown_state == "cancelled"
    act(pages, "move", "e", to="vision")
    act(pages, "favourite", "e")
    assert Job.objects.filter(project__name="vision", favourite=True).get().name == "e"
    assert act(pages, "compare", "a", "b").redirect_chain[0][0] == "/compare?job=a&job=b"
    assert pages.post("/runs/act", {"do": "nonsense", "job": "a"}).status_code == 404


def test_the_box_for_all_says_how_many_match(pages):
    assert "Select all 5 matching runs" in pages.get("/jobs").content.decode()
    assert re.search(r"Select 1 matching run\b", pages.get("/jobs", {"filter": "name = a"}).content.decode())


def test_a_job_page_edits_tags_notes_and_favourite_and_deletes_with_undo(pages):
    pages.post("/jobs/c/edit", {"tags": "k=v, l", "notes": "# Title\n<b>x</b>", "group": "g", "project": "vision"})
    pages.post("/jobs/c/edit", {"favourite": "1"})
    text = pages.get("/jobs/c").content.decode()
    assert "<h3>Title</h3>" in text
    assert "<b>x</b>" not in text
    job = Job.objects.get(name="c")
    assert (job.tags, job.group, job.project.name, job.favourite) == ({"k": "v", "l": ""}, "g", "vision", True)
    bad = pages.post("/jobs/c/edit", {"tags": "a=b=c, ' "}, follow=True).content.decode()
    assert "must not contain" in bad
    deleted = pages.post("/jobs/c/delete", follow=True).content.decode()
    assert "1 run moved to the trash." in deleted


def test_tags_and_notes_are_edited_in_their_cells(pages):
    text = pages.get("/jobs", {"col": ["tags", "notes"]}).content.decode()
    assert re.search(
        r'<td class="tags edits" data-edit="tags" data-value="team=vision" data-address="/jobs/c/edit">', text
    )
    url, background = "/jobs/c/edit", {"X-Background": "1"}
    assert pages.post(url, {"notes": "*x* <b>"}, headers=background).status_code == 204
    assert pages.post(url, {"tags": "good, team=ml"}, headers=background).status_code == 204
    refused = pages.post(url, {"tags": "a'b"}, headers=background)
    assert (refused.status_code, "quotation marks" in refused.json()["msg"]) == (409, True)
    job = Job.objects.get(name="c")
    assert (job.tags, job.notes) == ({"good": "", "team": "ml"}, "*x* <b>")


@pytest.mark.long
def test_a_call_that_changes_run_by_run_says_what_it_had_no_time_for(pages, monkeypatch):
    act(pages, "trash", "a", "b", "c")
    monkeypatch.setattr("jobs.bulk.TIME_S", -1.0)
    text = act(pages, "delete", all="1", query="trash=1").content.decode()
    assert "0 runs are being deleted. 3 runs were not changed." in text
    monkeypatch.undo()
    assert "3 runs are being deleted." in act(pages, "delete", all="1", query="trash=1").content.decode()


def test_all_that_match_are_compared_up_to_the_limit(pages, monkeypatch):
    monkeypatch.setattr("tracking.runs.pages.MAX_COMPARED", 2)
    answer = act(pages, "compare", all="1", query="sort=name")
    assert answer.redirect_chain[0][0] == "/compare?job=a&job=b"
    assert "Only the first 2 runs are compared." in answer.content.decode()


def test_exports_have_all_rows_and_no_formulas(pages):
    Job.objects.filter(name="a").update(notes=" \n=1+1", tags={"@x": ""}, title="Größe 1")
    query = {"col": ["name", "notes", "tags", "param:lr", "last:loss", "state"], "filter": "name in (a, c)"}
    data = b"".join(pages.get("/runs/export.csv", query).streaming_content)
    assert data.startswith(b"\xef\xbb\xbf"), "Excel knows UTF-8 by it"
    assert list(csv.reader(io.StringIO(data.decode("utf-8-sig")))) == [
        ["name", "title", "notes", "tags", "param:lr", "last:loss", "state"],
        ["c", "c", "", "team=vision", "0.01", "nan", "failed"],
        ["a", "Größe 1", "' \n=1+1", "'@x", "0.1", "0.05", "finished"],
    ]
    project = Project.objects.get(name="vision")
    runs = json.loads(b"".join(pages.get("/runs/export.json", {"in": project.pk}).streaming_content))
    assert [(run["name"], run["params"]["lr"]) for run in runs] == [("b", "1e-2"), ("a", "0.1")]
    assert pages.get("/runs/export.csv", {"in": "99999"}).status_code == 404


def test_a_number_that_is_none_is_no_fault_of_the_server(pages):
    assert pages.get("/runs/export.csv", {"in": "²"}).status_code == 404
    assert pages.post("/runs/undo", {"at": "²"}).status_code == 404
    answer = pages.post("/runs/view", {"do": "delete", "view": "x", "next": "/jobs"}, follow=True)
    assert "This view no longer exists" in answer.text


def test_groups_lead_to_their_runs(pages):
    text = pages.get("/jobs", {"by": "param:lr", "filter": "cpu = 8"}).content.decode()
    links = re.findall(r'href="\?([^"]*filter=[^"]*)"', text)
    assert len(links) >= 5
    assert rows(pages.get("/jobs?" + links[-1].replace("&amp;", "&"))) in "abcde"


def test_views_are_saved_and_offered(pages):
    saved = {"view_name": "Best <b>", "query": "filter=loss+<+1&sort=min:loss", "do": "save", "next": "/jobs"}
    text = pages.post("/runs/view", saved, follow=True).content.decode()
    assert "?filter=loss+%3C+1&amp;sort=min%3Aloss" in text
    assert "Best &lt;b&gt;" in text
    pages.post("/runs/view", {"do": "delete", "view": View.objects.get().pk})
    assert not View.objects.exists()


def test_a_project_page_has_a_board_that_is_arranged(pages):
    assert pages.post("/projects", {"name": "a/b <i>"}).status_code == 302
    assert "a/b &lt;i&gt;" in pages.get("/projects").content.decode()
    assert pages.get("/projects/a/b%20%3Ci%3E").status_code == 200
    assert "already have a project" in pages.post("/projects", {"name": "vision"}, follow=True).content.decode()
    project = Project.objects.get(name="vision")

    def change(do: str, **fields) -> str:
        answer = pages.post(f"/project/{project.pk}/change", {"do": do, **fields}, follow=True)
        project.refresh_from_db()
        return answer.content.decode()

    change("edit", name="vision", readme="*hello*")
    change("add", kind="number", metric="loss", statistic="best", title="Best loss")
    change("add", kind="series", metric="loss")
    change("add", kind="count", filter="state = finished")
    assert "unknown" not in change("add", kind="count", filter="nonsense = 1", title="Wrong")
    assert "kind must be one of" in change("add", kind="pie")
    assert "panel 5: metrics is missing" in change("add", kind="chart")
    assert "panel 5: runs must be a number from 1 to 20" in change("add", kind="chart", metrics="loss", runs="21")
    text = change("up", panel="1")
    assert [panel["kind"] for panel in project.board] == ["series", "number", "count", "count"]
    assert "<em>hello</em>" in text
    assert '<p class="big">2</p>' in text
    assert "no run has a metric, an argument or an attribute nonsense" in text
    old = re.search(r'name="mark" value="(\w+)"', text).group(1)
    assert "span-2" in change("width", panel="0", mark=old)
    change("drop", panel="1")
    assert "reload the page" in change("drop", panel="9")
    assert "reload the page" in change("drop", panel="0", mark=old)  # the page showed another board
    assert project.board[0]["columns"] == 2
    answer = pages.post(
        f"/project/{project.pk}/change", {"do": "order", "order": ["2", "0", "1"]}, headers={"X-Background": "1"}
    )
    project.refresh_from_db()
    assert (answer.status_code, [panel["kind"] for panel in project.board]) == (204, ["count", "series", "count"])
    assert "reload the page" in change("order", order=["0", "0", "1"])
    assert rows(pages.get("/projects/vision", {"sort": "name"})) == "ab"
    gone = change("delete")
    assert "The project vision and 2 runs moved to the trash." in gone
    assert pages.get("/projects/vision").status_code == 404
    at = re.search(r'name="at" value="(\d+)"', gone).group(1)
    pages.post("/runs/undo", {"at": at})
    assert rows(pages.get("/projects/vision")) == "ba"


def test_a_board_has_charts_and_plots_of_chosen_runs(pages, as_alice):
    project = Project.objects.get(name="vision")
    pages.post("/runs/view", {"do": "save", "view_name": "low", "query": "filter=loss<0.1", "project": project.pk})
    board = [
        {"kind": "chart", "metrics": ["loss", "val <b>"], "order": "best", "axis": "relative", "smooth": 0.5},
        {"kind": "chart", "metrics": ["loss"], "view": "low", "columns": 4, "tall": True, "log": True},
        {"kind": "scatter", "x": "param:lr", "y": "best:loss", "log_x": True, "filter": "lr > 0"},
        {"kind": "parallel", "axes": ["param:lr", "param:batch-size", "min:loss"]},
        {"kind": "chart", "metrics": ["loss"], "view": "gone"},
    ]
    url = f"users/alice/projects/{project.pk}"
    assert as_alice.call("put", url, {"board": board}).json()["board"] == board
    text = pages.get("/projects/vision").content.decode()
    shown = [[run["job"] for run in json.loads(html.unescape(plot))] for plot in re.findall('data-runs="(.*?)"', text)]
    assert shown == [["a", "b"], ["a"]]
    assert 'data-axis="relative"' in text
    assert 'data-smoothing="0.5"' in text
    assert "val &lt;b&gt;" in text
    assert "There is no saved view gone." in text
    plots = [json.loads(html.unescape(plot)) for plot in re.findall('data-plot="(.*?)"', text)]
    assert [plot["kind"] for plot in plots] == ["scatter", "parallel"]
    assert plots[0]["runs"] == ["b", "a"]
    assert [axis["values"] for axis in plots[0]["axes"]] == [[0.01, 0.1], [0.5, 0.05]]
    assert [axis["name"] for axis in plots[1]["axes"]] == ["lr", "batch-size", "loss (minimum)"]
    edited = pages.get("/projects/vision", {"panel": "3"}).content.decode()
    assert re.search(r'value="replace"', edited)
    fields = {"kind": "scatter", "x": "param:lr", "y": "best:loss", "order": "view:low", "columns": "3", "panel": "2"}
    pages.post(f"/project/{project.pk}/change", {"do": "replace", **fields})
    project.refresh_from_db()
    expected = {"kind": "scatter", "x": "param:lr", "y": "best:loss", "view": "low", "columns": 3}
    assert project.board == [*board[:2], expected, *board[3:]]


def drawn(pages, **query) -> list[list[str]]:
    """Return the runs that each chart of the project's page draws."""
    text = pages.get("/projects/vision", query).content.decode()
    return [[run["job"] for run in json.loads(html.unescape(plot))] for plot in re.findall('data-runs="(.+?)"', text)]


@pytest.mark.long
def test_charts_draw_the_runs_of_the_table_below_that_are_not_hidden(pages):
    project = Project.objects.get(name="vision")
    change = f"/project/{project.pk}/change"
    assert drawn(pages) == [["b", "a"]]  # no board yet: a chart of each frequent metric
    pages.post(change, {"do": "adopt"})
    project.refresh_from_db()
    assert [panel["metrics"] for panel in project.board] == [["loss"]]
    assert drawn(pages, sort="name") == [["a", "b"]]
    assert drawn(pages, filter="loss < 0.1") == [["a"]]
    assert drawn(pages, filter="no such = 1") == [["b", "a"]]
    assert pages.post("/jobs/a/edit", {"hidden": "1"}, headers={"X-Background": "1"}).status_code == 204
    text = pages.get("/projects/vision").content.decode()
    assert (drawn(pages), "1 run is hidden in charts." in text) == ([["b"]], True)
    assert re.search(r'data-eye aria-pressed="false"[^>]*aria-label="Show a in charts"', text)
    act(pages, "only", "a", project=project.pk)
    assert drawn(pages) == [["a"]]
    act(pages, "hide", "a")
    assert drawn(pages) == [[]]
    act(pages, "show", "b")
    pages.post(change, {"do": "show_all"})
    assert drawn(pages) == [["b", "a"]]


def test_a_run_has_a_colour_of_its_own_that_its_owner_changes(pages):
    before = {job.name: job.shown_colour for job in Job.objects.all()}
    for colour, status in (("10", 409), ("x", 409), ("-1", 409), (str((before["b"] + 3) % 10), 204)):
        answer = pages.post("/jobs/b/edit", {"colour": colour}, headers={"X-Background": "1"})
        assert answer.status_code == status, colour
    text = pages.get("/projects/vision").content.decode()
    shown = [run for plot in re.findall('data-runs="(.+?)"', text) for run in json.loads(html.unescape(plot))]
    assert {run["job"]: run["colour"] for run in shown} == {"a": before["a"], "b": (before["b"] + 3) % 10}
    pages.post("/jobs/a/edit", {"colour": str((before["b"] + 3) % 10)})
    text = pages.get("/compare", {"job": ["a", "b"]}).content.decode()  # where two that are compared differ
    assert len(set(re.findall(r'class="key (c\d)"', text))) == 2


def test_a_panel_is_resized(pages):
    project = Project.objects.get(name="vision")
    Project.objects.filter(pk=project.pk).update(board=[{"kind": "chart", "metrics": ["loss"], "tall": True}])
    change = f"/project/{project.pk}/change"
    size = {"do": "size", "panel": "0", "columns": "3"}
    assert pages.post(change, {**size, "rows": "4"}, headers={"X-Background": "1"}).status_code == 204
    project.refresh_from_db()
    assert project.board == [{"kind": "chart", "metrics": ["loss"], "columns": 3, "rows": 4}]
    assert 'data-rows="4"' in pages.get("/projects/vision").content.decode()
    assert pages.post(change, {**size, "rows": "5"}, headers={"X-Background": "1"}).status_code == 409


def test_directions_of_metrics_are_chosen_on_the_project_page(pages):
    project = Project.objects.get(name="vision")
    url = f"/project/{project.pk}/change"
    pages.post(url, {"do": "goals", "metric": ["loss", "acc"], "goal": ["max", ""]})
    project.refresh_from_db()
    assert project.goals == {"loss": "max"}
    assert rows(pages.get("/projects/vision", {"sort": "-best:loss"})) == "ba"
    assert (
        "with min or max"
        in pages.post(url, {"do": "goals", "metric": "loss", "goal": "up"}, follow=True).content.decode()
    )
    pages.post(url, {"do": "goals", "metric": "loss", "goal": ""})
    project.refresh_from_db()
    assert project.goals == {}


def test_another_users_project_is_not_found(client, bob, runs):
    client.force_login(bob)
    project = Project.objects.get(name="vision")
    assert client.get("/u/alice/projects/vision").status_code == 404
    assert client.post(f"/project/{project.pk}/change", {"do": "delete"}).status_code == 404
    assert "0 runs" in act(client, "trash", "a").content.decode()


@pytest.mark.parametrize("state", few(["queued", "running", "failed", "cancelled", "creating", "error", "nonsense"], 2))
def test_a_state_without_runs_has_an_empty_table(client, bob, state):
    client.force_login(bob)
    assert rows(client.get("/jobs", {"state": state})) == ""

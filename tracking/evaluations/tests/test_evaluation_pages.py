"""The pages of evaluations: datasets with search and export, an evaluation beside another, and who sees them."""

from __future__ import annotations

import json
import uuid

import pytest
from django.db.models import Func, TextField, Value
from django.db.models.functions import Cast
from django.db.models.lookups import Exact
from django.utils import timezone

from jobs.models import Assessment, EvaluationDataset, Job, Origin, Project, Scorer, ScorerVersion, Trace
from mlp.tests.page_world import EVIL, visitor
from tracking.mlflow.tests.test_shared import share

from .. import datasets, pages, records, results

pytestmark = pytest.mark.django_db


@pytest.fixture
def vision(alice):
    return Project.objects.create(user=alice, name="vision")


@pytest.fixture
def qa(alice, vision):
    """A dataset with a record of hostile HTML, one of a trace, and one of text that is not ASCII."""
    row = datasets.create(alice, f"qa {EVIL}", [vision], {"stage": "draft"})
    source = {"source_type": "TRACE", "source_data": {"trace_id": f"tr-{1:032x}"}}
    given = [
        {"inputs": {"q": EVIL}, "expectations": {"a": "half \ud800"}}, {"inputs": {"q": "why"}, "source": source},
        {"inputs": {"q": "北京 \"x\""}, "outputs": [1, float("nan")]},
    ]  # fmt: skip
    datasets.merge(row, records.given(json.dumps(given)))
    return EvaluationDataset.objects.get()


def evaluated(owner, project: Project, name: str, said: dict[str, dict]) -> Job:
    """Make an evaluation as mlflow.genai.evaluate leaves it: request -> scorer -> value."""
    run = Job.objects.create(
        user=owner, tenant=owner.tenant, project=project, name=name, entry="", cpu=0, ram=0, origin=Origin.CLIENT,
        state="finished", system_tags={"mlflow.runType": "genai_evaluate"},
    )  # fmt: skip
    for number, (request, values) in enumerate(said.items()):
        trace = Trace.objects.create(
            user=owner, project=project, key=uuid.uuid4().hex, request=request, response=f"answer of {name}",
            status="ok", started_ns=number + 1, metadata={"mlflow.sourceRun": run.run_id.hex},
        )  # fmt: skip
        about = {"user": owner, "trace": trace}
        Assessment.objects.create(**about, name="expected", kind="expectation", value=f"to {request}")
        for scorer, value in values.items():
            error = {"error_code": "X", "error_message": EVIL, "stack_trace": "at " * 500} if value is None else None
            Assessment.objects.create(
                **about, name=scorer, value=value, error=error, rationale=f"since {request}",
                metadata={"mlflow.assessment.sourceRunId": run.run_id.hex},
            )  # fmt: skip
        Assessment.objects.create(
            **about, name="elsewhere", value=1, metadata={"mlflow.assessment.sourceRunId": "f" * 32}
        )
    return run


@pytest.fixture
def runs(alice, vision):
    old = evaluated(alice, vision, "old", {"a": {"ok": True, "n": 1, "w": "x"}, "b": {"ok": False, "n": 2, "w": "y"}})
    made = {"user": alice, "project": vision, "key": uuid.uuid4().hex, "request": "of a judge itself"}
    Trace.objects.create(
        **made, metadata={"mlflow.sourceRun": old.run_id.hex}, tags={"mlflow.trace.sourceScorer": "ok"}
    )
    new = evaluated(
        alice, vision, "new",
        {"a": {"ok": False, "n": 1.5, "w": "z"}, "b": {"ok": "yes", "n": None, "w": "y"}, "c": {"ok": True}},
    )  # fmt: skip
    return old, new


def page(client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, address
    return answer.content.decode()


def test_a_dataset_is_shown_searched_sent_and_deleted(alice, bob, qa):
    client, address = visitor(alice), f"/evaluations/datasets/{qa.key}"
    shown = page(client, address)
    assert EVIL not in shown
    for text in ("draft", "why", "北京", f"/traces/{1:032x}", "NaN", "vision", "half ", "inputs.q", qa.digest):
        assert text in shown, text
    assert "vision" in page(client, "/evaluations?project=vision")
    assert qa.key in page(client, "/evaluations?q=QA")
    assert "No evaluation dataset matches." in page(client, "/evaluations?q=none")
    for query, found in (("WHY", 1), ("北京", 1), ('"x"', 1), ("%", 0), ("q", 3), (f"tr-{1:032x}", 1), ("%00", 3)):
        assert page(client, f"{address}?q={query}").count("<code>dr-") == found, query
    sent = b"".join(client.get(f"{address}/export.ndjson").streaming_content).decode().splitlines()
    assert [json.loads(line)["inputs"]["q"] for line in sent] == [EVIL, "why", '北京 "x"']
    assert visitor(bob).get(address).status_code == 404
    assert visitor(bob).post(f"{address}/change", {"do": "delete"}).status_code == 404
    assert client.post(f"{address}/change", {"do": "else"}).status_code == 404
    assert client.post(f"{address}/change", {"do": "delete"}).headers["Location"] == "/evaluations"
    assert not EvaluationDataset.objects.exists()


def test_of_a_large_record_the_beginning_is_shown(alice, qa, monkeypatch):
    datasets.merge(qa, records.given(json.dumps([{"inputs": {"large": "begin " + "x" * 500_000}}])))
    shown = page(visitor(alice), f"/evaluations/datasets/{qa.key}?q=begin")
    assert "begin xx" in shown
    assert len(shown) < 100_000
    slow = Cast(Func(Value(600.0), function="pg_sleep", output_field=TextField()), TextField())
    monkeypatch.setattr("tracking.traces.rows.SEARCH_S", 0.1)
    monkeypatch.setattr(pages, "_contains", lambda query: Exact(slow, Value("x")))
    assert "longer than 0.1 s" in page(visitor(alice), f"/evaluations/datasets/{qa.key}?q=begin")


def test_who_reads_the_project_sees_its_evaluations(alice, bob, vision, qa, runs):
    Scorer.objects.create(user=alice, project=vision, name=EVIL)
    ScorerVersion.objects.create(user=alice, scorer=Scorer.objects.get(), number=1, serialized="return 7")
    client = visitor(bob)
    places = [f"/u/alice/evaluations/datasets/{qa.key}", f"/u/alice/evaluations/datasets/{qa.key}/export.ndjson",
              "/u/alice/evaluations?project=vision", "/u/alice/evaluations/runs/new?base=old"]  # fmt: skip
    assert {client.get(place).status_code for place in places} == {404}
    share(vision, bob)
    assert {client.get(place).status_code for place in places} == {200}
    assert "Delete" not in page(client, places[0]).split("<main", 1)[1]
    assert client.get(f"/evaluations/datasets/{qa.key}").headers["Location"] == places[0]
    assert client.get("/u/alice/evaluations").status_code == 404
    assert EVIL not in page(client, places[2])
    assert "return 7" in page(client, places[2])
    assert client.get("/evaluations/runs/new").status_code == 404
    Job.objects.filter(name="new").update(trashed=timezone.now())
    assert client.get(places[3]).status_code == 404  # only its owner reads what is in the trash
    assert visitor(alice).get("/evaluations/runs/new").status_code == 200


def test_an_evaluation_is_shown_beside_another(alice, runs):
    client = visitor(alice)
    shown = page(client, "/evaluations/runs/new")
    assert EVIL not in shown
    for text in ("3 rows", "since c", "to a", "0.6667", "answer of new", 'value="old"'):
        assert text in shown, text
    assert "elsewhere" not in shown
    assert "Regressed" not in shown
    both = page(client, "/evaluations/runs/new?base=old")
    for text in ("compared with", "Regressed", "+0.5", "answer of old", "1 row has no counterpart"):
        assert text in both, text
    regressed = page(client, "/evaluations/runs/new?base=old&show=regressed")
    assert "since a" in regressed
    assert "since b" not in regressed
    errors = page(client, "/evaluations/runs/new?show=error")
    assert "since b" in errors
    assert "at at" not in errors  # why, without the stack trace
    assert "since a" not in page(client, "/evaluations/runs/new?show=error")
    assert page(client, "/evaluations/runs/new?base=gone&show=improved&page=x")
    assert client.get("/evaluations/runs/none").status_code == 404


def test_what_has_improved_and_what_has_not(runs):
    old, new = (results.read(run) for run in runs)
    assert len(old.rows) == 2
    results.compare(new, old)
    verdicts = {row.trace.request: {name: cell.verdict for name, cell in row.cells.items()} for row in new.rows}
    assert verdicts == {
        "a": {"ok": "regressed", "n": "improved", "w": "changed"}, "b": {"ok": "improved", "n": "only", "w": "same"},
        "c": {"ok": None},
    }  # fmt: skip
    n, ok, w = results.summaries(new)
    assert (n.mean, n.errors, n.compared, n.before, n.difference, n.improved) == (1.5, 1, 1, 1, 0.5, 1)
    assert (ok.count, round(ok.mean, 4), ok.improved, ok.regressed) == (3, 0.6667, 1, 1)
    assert (ok.compared, ok.before, ok.difference) == (2, 0.5, 0)  # without the row that the older one has not
    assert (w.mean, sorted(w.texts), w.difference) == (None, [("y", 1), ("z", 1)], None)


def test_grades_that_are_huge_have_a_mean(alice, vision):
    evaluated(alice, vision, "low", {"a": {"n": -1.7e308}, "b": {"n": -1.7e308}, "c": {"m": "12345"}})
    evaluated(alice, vision, "high", {"a": {"n": 1.7e308}, "b": {"n": 1.7e308}, "c": {"m": "23456"}})
    shown = page(visitor(alice), "/evaluations/runs/high?base=low")
    for text in ("1.7e+308", "+∞", "23456", "+11111"):
        assert text in shown, text


def test_rows_that_are_not_read_are_said(alice, runs, monkeypatch):
    monkeypatch.setattr(results, "MAX_ROWS", 2)
    monkeypatch.setattr(pages, "ROWS", 1)
    shown = page(visitor(alice), "/evaluations/runs/new")
    assert "1 more row is not read here." in shown
    assert "page 1 of 2" in shown

"""The calls about traces that MLflow 3's clients make."""

from __future__ import annotations

import json

import pytest

from jobs.auth import job_token
from jobs.models import Assessment, Job, Project, Span, Trace
from mlp.operators.tests.admin_world import put
from tracking.mlflow.tests.test_shared import share
from tracking.mlflow.tests.test_tracking import experiment, start

from .conftest import BEGIN, TRACE, Mlflow3, span

pytestmark = pytest.mark.django_db

ID = f"tr-{TRACE}"
USAGE = '{"input_tokens": 3, "output_tokens": 4}'


def info(project: str, **fields) -> dict:
    return {
        "trace_id": ID,
        "trace_location": {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": project}},
        "request_time": "2026-11-30T10:00:00.250Z", "execution_duration": "1.5s", "state": "OK",
        "request_preview": "why?", "response_preview": "so",
        "trace_metadata": {"mlflow.trace.session": "s", "mlflow.trace.tokenUsage": USAGE},
        "tags": {"mlflow.traceName": "answer", "team": "red"}, **fields,
    }  # fmt: skip


def report(mlflow3, project: str, **fields) -> dict:
    return mlflow3.call("post", "traces", trace={"trace_info": info(project, **fields)})["trace"]["trace_info"]


def found(mlflow3, project: str, text: str = "", **fields) -> list[str]:
    locations = [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": project}}]
    rows = mlflow3.call("post", "traces/search", locations=locations, filter=text, **fields)["traces"]
    return [row["tags"]["mlflow.traceName"] for row in rows]


@pytest.mark.parametrize("first", ["spans", "report"])
def test_a_report_wins_over_what_the_spans_say_in_either_order(mlflow, mlflow3, sender, first):
    key = experiment(mlflow)
    send = [
        lambda: sender.spans(span(1, lasted=9, name="root"), span(2, 1), HTTP_X_MLFLOW_EXPERIMENT_ID=key),
        lambda: report(mlflow3, key),
    ]
    for step in send if first == "spans" else reversed(send):
        step()
    report(mlflow3, key)
    shown = mlflow3.call("get", f"traces/{ID}")["trace"]["trace_info"]
    assert shown["state"] == "OK"
    assert (shown["request_time"], shown["execution_duration"]) == ("2026-11-30T10:00:00.250000Z", "1.500000000s")
    assert shown["tags"] == {
        "mlflow.traceName": "answer", "team": "red", "mlflow.trace.spansLocation": "TRACKING_STORE",
    }  # fmt: skip
    assert shown["trace_metadata"]["mlflow.trace.session"] == "s"
    trace = Trace.objects.get()
    assert (trace.spans_kept, trace.tokens, trace.name) == (2, 7, "answer")
    whole = mlflow3.call("get", "traces/get", trace_id=ID)["trace"]
    assert [one["name"] for one in whole["spans"]] == ["root", "step 2"]
    many = mlflow3.call("get", "traces/batchGet", trace_ids=[ID, "tr-" + "9" * 32])["traces"]
    assert [one["trace_info"]["trace_id"] for one in many] == [ID]
    infos = mlflow3.call("post", "traces/batchGetInfos", trace_ids=[ID])["trace_infos"]
    assert infos[0]["trace_id"] == ID


def test_traces_are_searched_by_all_that_they_have(mlflow, mlflow3, sender):
    key = experiment(mlflow)
    run = start(mlflow, key)
    for number, name in enumerate("abc"):
        trace = f"{number + 1:032x}"
        sender.spans(
            span(1, trace=trace, name=name, begin=number, lasted=number + 1, attributes={"k": name, "t": "100 % sure"},
                 status={"code": 2 if number == 2 else 0}),
            HTTP_X_MLFLOW_EXPERIMENT_ID=key,
        )  # fmt: skip
        mlflow3.call("patch", f"traces/tr-{trace}/tags", key="letter", value=name)
    mlflow3.call("post", "traces/link-to-run", trace_ids=[f"tr-{1:032x}"], run_id=run)
    mlflow3.call(
        "post", f"traces/tr-{2:032x}/assessments",
        assessment={"assessment_name": "good", "feedback": {"value": True}, "source": {"source_type": "HUMAN"}},
    )  # fmt: skip
    assert found(mlflow3, key) == ["c", "b", "a"]
    for text, names in {
        "status = 'ERROR'": ["c"], "trace.status != 'ERROR'": ["b", "a"], "tags.letter = 'b'": ["b"],
        "name LIKE 'a%'": ["a"], f"timestamp_ms >= {BEGIN // 10**6 + 1000}": ["c", "b"],
        "execution_time_ms < 2500": ["b", "a"], f"metadata.`mlflow.sourceRun` = '{run}'": ["a"],
        f"run_id = '{run}'": ["a"], f"trace_id = 'tr-{3:032x}'": ["c"], "span.name = 'b'": ["b"],
        "span.attributes.k = 'c'": ["c"], "trace.text LIKE '%100 % sure%'": ["c", "b", "a"],
        "feedback.good = 'true'": ["b"], "tags.letter IN ('a', 'c') AND status = 'OK'": ["a"],
        "tags.missing IS NULL": ["c", "b", "a"],
    }.items():  # fmt: skip
        assert found(mlflow3, key, text) == names, text
    assert found(mlflow3, key, order_by=["execution_time_ms ASC"]) == ["a", "b", "c"]
    for wrong in ("nothing = 'x'", "span.nothing = 'x'", "name = 'a' OR name = 'b'"):
        assert mlflow3.refused("post", "traces/search", experiment_ids=[key], filter=wrong) == "INVALID_PARAMETER_VALUE"
    wanted = [f"tr-{number:032x}" for number in (2, 3, 1)]  # clients keep the order of the answer
    for answer in (
        mlflow3.call("get", "traces/batchGet", trace_ids=wanted)["traces"],
        [{"trace_info": one} for one in mlflow3.call("post", "traces/batchGetInfos", trace_ids=wanted)["trace_infos"]],
    ):
        assert [one["trace_info"]["trace_id"] for one in answer] == wanted
    page = mlflow3.call("post", "traces/search", experiment_ids=[key], max_results=2)
    rest = mlflow3.call(
        "post", "traces/search", experiment_ids=[key], max_results=2, page_token=page["next_page_token"]
    )
    assert [len(page["traces"]), len(rest["traces"])] == [2, 1]
    assert mlflow3.call("post", "traces/delete-traces", experiment_id=key, trace_ids=[f"tr-{1:032x}"]) == {
        "traces_deleted": 1
    }
    late = BEGIN // 10**6 + 1000
    assert mlflow3.call("post", "traces/delete-traces", experiment_id=key, max_timestamp_millis=late) == {
        "traces_deleted": 1
    }
    assert found(mlflow3, key) == ["c"]
    assert Span.objects.count() == 1


def test_assessments_are_written_changed_and_deleted(mlflow3, sender):
    sender.spans(span(1))
    made = mlflow3.call(
        "post", f"traces/{ID}/assessments",
        assessment={
            "assessment_name": "expected", "expectation": {"serialized_value": {"value": '["a", {"b": 1}]'}},
            "source": {"source_type": "HUMAN", "source_id": "alice"}, "metadata": {"k": "v"},
        },
    )["assessment"]  # fmt: skip
    assert json.loads(made["expectation"]["serialized_value"]["value"]) == ["a", {"b": 1}]
    judged = mlflow3.call(
        "post", f"traces/{ID}/assessments",
        assessment={
            "assessment_name": "score", "feedback": {"value": 0.5}, "rationale": "<b>half</b>",
            "source": {"source_type": "LLM_JUDGE", "source_id": "gpt"},
        },
    )["assessment"]  # fmt: skip
    place = f"traces/{ID}/assessments/{judged['assessment_id']}"
    body = {"assessment": {"feedback": {"value": 0.75}, "rationale": "more"}, "update_mask": "feedback"}
    changed = mlflow3.call("patch", place, **body)["assessment"]
    assert (changed["feedback"], changed["rationale"]) == ({"value": 0.75}, "<b>half</b>")
    assert mlflow3.call("get", place)["assessment"]["feedback"]["value"] == 0.75
    newer = {"assessment_name": "score", "feedback": {"value": 1}, "overrides": judged["assessment_id"]}
    override = mlflow3.call("post", f"traces/{ID}/assessments", assessment=newer)["assessment"]["assessment_id"]
    assert mlflow3.call("get", place)["assessment"]["valid"] is False
    mlflow3.call("delete", f"traces/{ID}/assessments/{override}")
    assert mlflow3.call("get", place)["assessment"]["valid"] is True
    mlflow3.call("delete", place)
    mlflow3.call("delete", place)
    assert mlflow3.refused("get", place) == "RESOURCE_DOES_NOT_EXIST"
    for wrong in ({"assessment_name": "x"}, {"feedback": {"value": 1}}, {"assessment_name": "", "feedback": {}}):
        assert mlflow3.refused("post", f"traces/{ID}/assessments", assessment=wrong) == "INVALID_PARAMETER_VALUE"
    assert Assessment.objects.count() == 1


def test_a_report_with_a_wrong_assessment_stores_nothing_so_that_it_can_be_repeated(mlflow, mlflow3):
    told = info(experiment(mlflow))
    right, wrong = {"assessment_name": "a", "feedback": {"value": 1}}, {"assessment_name": "b"}
    said = {"trace_info": {**told, "assessments": [right, wrong]}}
    assert mlflow3.refused("post", "traces", trace=said) == "INVALID_PARAMETER_VALUE"
    assert not Trace.objects.exists()
    wrong["feedback"] = {"value": 2}
    mlflow3.call("post", "traces", trace=said)
    mlflow3.call("post", "traces", trace=said)
    assert sorted(Assessment.objects.values_list("name", flat=True)) == ["a", "b"]


def test_a_trace_is_read_by_those_who_read_its_project(mlflow, mlflow3, mlflow3_of_bob, sender, bob):
    key = experiment(mlflow)
    sender.spans(span(1), HTTP_X_MLFLOW_EXPERIMENT_ID=key)
    assert mlflow3_of_bob.refused("get", f"traces/{ID}") == "RESOURCE_DOES_NOT_EXIST"
    assert found(mlflow3_of_bob, key) == []
    share(Project.objects.get(pk=key), bob)
    assert mlflow3_of_bob.call("get", "traces/get", trace_id=ID)["trace"]["spans"]
    assert found(mlflow3_of_bob, key) == ["step 1"]
    tag = {"key": "a", "value": "b"}
    assert mlflow3_of_bob.refused("patch", f"traces/{ID}/tags", **tag) == "PERMISSION_DENIED"
    assert (
        mlflow3_of_bob.refused("post", "traces/delete-traces", experiment_id=key, trace_ids=[ID]) == "PERMISSION_DENIED"
    )
    mlflow.call("post", "experiments/delete", experiment_id=key)
    assert mlflow3_of_bob.refused("get", f"traces/{ID}") == "RESOURCE_DOES_NOT_EXIST"
    assert mlflow3.refused("patch", f"traces/{ID}/tags", **tag) == "INVALID_PARAMETER_VALUE"
    assert mlflow3.refused("post", "traces", trace={"trace_info": info(key)}) == "INVALID_PARAMETER_VALUE"
    assert found(mlflow3, key) == []


def test_what_is_no_trace_is_refused(mlflow3):
    for text in ("tr-1", "tr-" + "z" * 32, "a" * 70):
        assert mlflow3.refused("get", f"traces/{text}") == "RESOURCE_DOES_NOT_EXIST"
    given = info("0")
    for change in ({"trace_id": "a b"}, {"request_time": "yesterday"}, {"tags": ["a"]}):
        refused = mlflow3.refused("post", "traces", trace={"trace_info": {**given, **change}})
        assert refused == "INVALID_PARAMETER_VALUE", change
    far = report(mlflow3, "0", request_time="9999-12-31T23:59:59Z", execution_duration="999999999999s")
    assert far["state"] == "OK"
    assert Trace.objects.get().started_ns == 2**63 - 1


def test_a_jobs_token_reports_and_reads_the_traces_of_its_project(mlflow, mlflow3, sender, alice):
    own, other = experiment(mlflow), experiment(mlflow, "other")
    job = put(Job, alice, "fit", "running")
    Job.objects.filter(pk=job.pk).update(project=own)
    inside = Mlflow3(job_token(job))
    sender.spans(span(1, trace="b" * 32), HTTP_X_MLFLOW_EXPERIMENT_ID=other)
    assert report(inside, own)["state"] == report(inside, "0")["state"] == "OK"
    assert inside.call("get", f"traces/{ID}")["trace"]["trace_info"]["tags"]["team"] == "red"
    assert found(inside, own) == ["answer"]
    assert found(inside, other) == []
    inside.call("patch", f"traces/{ID}/tags", key="a", value="b")
    assert inside.refused("get", f"traces/tr-{'b' * 32}") == "RESOURCE_DOES_NOT_EXIST"
    assert inside.refused("post", "traces", trace={"trace_info": info(other)}) == "RESOURCE_DOES_NOT_EXIST"
    assert inside.refused("post", "traces/delete-traces", experiment_id=own, trace_ids=[ID]) == "PERMISSION_DENIED"
    assert Trace.objects.count() == 2


def test_a_trace_belongs_to_each_run_that_it_is_linked_to(mlflow, mlflow3, alice):
    """As that of an evaluation which another one judges once more."""
    project = Project.objects.default_of(alice)
    Trace.objects.create(user=alice, project=project, key=f"{1:032x}", name="answer")
    runs = [start(mlflow, "0") for _ in range(2)]
    for run in (*runs, runs[1]):
        mlflow3.call("post", "traces/link-to-run", trace_ids=[f"tr-{1:032x}"], run_id=run)
    place = [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": str(project.pk)}}]
    for text, found in ((f"run_id = '{runs[0]}'", 1), (f"run_id = '{runs[1]}'", 1), (f"run_id != '{runs[1]}'", 0),
                        (f"run_id IN ('{runs[1]}')", 1), (f"run_id = '{'f' * 32}'", 0)):  # fmt: skip
        assert len(mlflow3.call("post", "traces/search", locations=place, filter=text)["traces"]) == found, text
    count = {"view_type": "TRACES", "metric_name": "trace_count", "aggregations": [{"aggregation_type": "COUNT"}]}
    for run in runs:
        text = f"trace.metadata.`mlflow.sourceRun` = '{run}'"
        said = mlflow3.call("post", "traces/metrics", experiment_ids=[str(project.pk)], filters=[text], **count)
        assert [point["values"] for point in said["data_points"]] == [{"COUNT": 1}]
        found = mlflow3.call("post", "traces/search", locations=place, filter=text.removeprefix("trace."))["traces"]
        assert len(found) == 1

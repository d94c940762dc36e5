"""Metrics of traces by MLflow's call: what is counted and summed, by which dimensions, and what is refused."""

from __future__ import annotations

import pytest

from jobs.models import Assessment, Project, Span, Trace

from .conftest import BEGIN, SECOND, mlflow3_of_bob

__all__ = ["mlflow3_of_bob"]

pytestmark = pytest.mark.django_db
MS = BEGIN // 1_000_000
RANGE = {"start_time_ms": MS - 1, "end_time_ms": MS + 100_000}


@pytest.fixture
def vision(alice):
    """A project with four traces, ten seconds apart: two of `a`, one of `b` with an error, one in progress."""
    project = Project.objects.create(user=alice, name="vision")
    for number, (name, status, tokens, lasted) in enumerate(
        (("a", "ok", 10, 1), ("a", "ok", 30, 3), ("b", "error", None, 5), ("c", "in_progress", None, None))
    ):
        begin = BEGIN + number * 10 * SECOND
        trace = Trace.objects.create(
            user=alice, project=project, key=f"{number:032x}", name=name, status=status, input_tokens=tokens,
            started_ns=begin, ended_ns=None if lasted is None else begin + lasted * SECOND,
            session="s" if tokens else "", tags={"team": name, "a b": "x"},
        )  # fmt: skip
        Span.objects.create(
            user=alice, trace=trace, key="1" * 16, name=f"call {name}", type="LLM", model="m", started_ns=begin,
            ended_ns=begin + SECOND, cost=0.5 if tokens else None, status="ok" if tokens else "unset",
        )  # fmt: skip
        for valid, value in ((True, name == "a"), (False, 7)):
            Assessment.objects.create(user=alice, trace=trace, name="good", value=value, valid=valid)
    Assessment.objects.create(user=alice, trace=trace, name="words", value="fine")
    return str(project.pk)


@pytest.fixture
def ask(mlflow3, vision):
    """A function that asks for a metric; it returns the points: dimensions -> values."""

    def asked(view: str, name: str, *how: str, **more) -> dict[tuple, dict]:
        kinds = [{"aggregation_type": one} if one[0] != "P" else
                 {"aggregation_type": "PERCENTILE", "percentile_value": float(one[1:])} for one in how]  # fmt: skip
        about = {"experiment_ids": [vision], "view_type": view, "metric_name": name, "aggregations": kinds}
        points = mlflow3.call("post", "traces/metrics", **about, **more)["data_points"]
        assert {point["metric_name"] for point in points} <= {name}
        return {tuple(point["dimensions"].values()): point["values"] for point in points}

    return asked


def test_traces_are_counted_and_summed(ask):
    assert ask("TRACES", "trace_count", "COUNT") == {(): {"COUNT": 4}}
    assert ask("TRACES", "trace_count", "COUNT", dimensions=["trace_status", "trace_name"]) == {
        ("OK", "a"): {"COUNT": 2}, ("ERROR", "b"): {"COUNT": 1}, ("IN_PROGRESS", "c"): {"COUNT": 1},
    }  # fmt: skip
    assert ask("TRACES", "session_count", "COUNT") == {(): {"COUNT": 1}}
    assert ask("TRACES", "latency", "AVG", "MIN", "MAX", "P50") == {
        (): {"AVG": 3000, "MIN": 1000, "MAX": 5000, "P50.0": 3000}
    }
    assert ask("TRACES", "total_tokens", "SUM", "P75", dimensions=["trace_name"]) == {("a",): {"SUM": 40, "P75.0": 25}}
    buckets = ask("TRACES", "trace_count", "COUNT", **RANGE, time_interval_seconds=20)
    assert [(str(key[0])[:10], values["COUNT"]) for key, values in buckets.items()] == [("2026-09-21", 2)] * 2
    assert ask("TRACES", "trace_count", "COUNT", start_time_ms=MS + 10_000, end_time_ms=MS + 20_000) == {
        (): {"COUNT": 2}
    }
    assert ask("TRACES", "latency", "AVG", end_time_ms=5) == {}


def test_spans_and_assessments_are_counted_and_summed(ask):
    by = ["span_name", "span_type", "span_status", "span_model_name"]
    assert ask("SPANS", "span_count", "COUNT", dimensions=by)["call a", "LLM", "OK", "m"] == {"COUNT": 2}
    assert ask("SPANS", "total_cost", "SUM", dimensions=["span_model_name"]) == {("m",): {"SUM": 1}}
    assert ask("SPANS", "latency", "MAX") == {(): {"MAX": 1000}}
    assert ask("ASSESSMENTS", "assessment_count", "COUNT", dimensions=["assessment_name", "assessment_value"]) == {
        ("good", "true"): {"COUNT": 2}, ("good", "false"): {"COUNT": 2}, ("words", '"fine"'): {"COUNT": 1},
    }  # fmt: skip
    assert ask("ASSESSMENTS", "assessment_value", "AVG", dimensions=["assessment_name"]) == {("good",): {"AVG": 0.5}}
    assert len(ask("ASSESSMENTS", "assessment_count", "COUNT", **RANGE, time_interval_seconds=60)) <= 1


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("trace.status = 'OK'", 2), ("trace.tag.team = 'b'", 1), ("trace.tag.`a b` = 'x'", 4),
        ("span.name = 'call a'", 2),
        ("assessment.name = 'words'", 1), ("assessment.type = 'feedback'", 4), ("span.status = 'UNSET'", 2),
        ("trace.metadata.x = 'y'", 0),
    ],
)  # fmt: skip
def test_filters(ask, text, count):
    assert ask("TRACES", "trace_count", "COUNT", filters=[text]) == {(): {"COUNT": count}}


def test_what_is_wrong_is_refused_and_what_is_not_shared_is_not_counted(mlflow3, mlflow3_of_bob, vision):
    right = {
        "experiment_ids": [vision], "view_type": "TRACES", "metric_name": "latency",
        "aggregations": [{"aggregation_type": "AVG"}],
    }  # fmt: skip
    percentile = {"aggregation_type": "PERCENTILE"}
    for wrong in (
        {"view_type": "NONE"}, {"metric_name": "input_cost"}, {"aggregations": []}, {"experiment_ids": []},
        {"aggregations": [{"aggregation_type": "SUM"}]}, {"dimensions": ["trace_status"]},
        {"filters": ["trace.x = 'y'"]},
        {"filters": ["metric.a = 1"]}, {"time_interval_seconds": 60}, {"aggregations": [percentile]},
        {"aggregations": [{**percentile, "percentile_value": 101}]}, {"experiment_ids": ["x"]},
        {"aggregations": [{**percentile, "percentile_value": "NaN"}]},
    ):  # fmt: skip
        assert mlflow3.refused("post", "traces/metrics", **{**right, **wrong}) == "INVALID_PARAMETER_VALUE", wrong
    assert mlflow3.call("post", "traces/metrics", **right)["data_points"]
    assert mlflow3_of_bob.call("post", "traces/metrics", **right) == {"data_points": []}
    first = mlflow3.call("post", "traces/metrics", **right, dimensions=["trace_name"], max_results=1)
    more = mlflow3.call(
        "post", "traces/metrics", **right, dimensions=["trace_name"], page_token=first["next_page_token"]
    )
    assert [len(page["data_points"]) for page in (first, more)] == [1, 1]

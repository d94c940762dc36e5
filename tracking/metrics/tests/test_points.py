"""Series for charts: a range in few buckets, long series by their blocks, NaN and infinities kept and counted."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.models import Block, Metrics, RunMetric, Value
from kernel import bus
from mlp.tests.tiers import few
from tracking.metrics import blocks, feed, recording, series

from .test_metrics import SLEEP, ingesting, row, running, stream, wait_for  # noqa: F401 (fixtures)
from .test_values import URL, numbers, record

pytestmark = pytest.mark.django_db(transaction=True)

POINTS = "users/alice/jobs/fit/points"
LONG = """
INSERT INTO metric_value (job_id, name, step, value, at, attempt, msg_id)
SELECT %s, 'long', i * 10, CASE WHEN i = 70001 THEN 'NaN' WHEN i >= 99990 THEN 'Infinity' ELSE sin(i / 1000.0) END,
    now() + i * interval '1 ms', 1 + i / 90000, 'long' || i
FROM generate_series(0, 99999) AS i
"""


def value(i: int) -> float:
    return math.nan if i == 70001 else math.inf if i >= 99990 else math.sin(i / 1000)


@pytest.fixture
def points(as_alice):
    """Return the answered series by name."""

    def get(query: str = "") -> dict:
        return {entry["name"]: entry for entry in as_alice.call("get", f"{POINTS}?{query}").json()}

    return get


class TestLong:
    @pytest.fixture(autouse=True)
    def long(self, running):  # noqa: F811
        with connection.cursor() as cursor:
            cursor.execute(LONG, [running.pk])

    def test_a_long_series_comes_in_few_buckets_that_say_all(self, points):
        long = points("points=300")["long"]
        assert (long["count"], long["last"], long["last_step"]) == (100_000, "Infinity", 999_990)
        assert long["first_bad"] == {"step": 700_010, "attempt": 1, "value": "NaN"}
        assert 200 < len(long["step"]) <= 310
        assert set(long["attempt"]) == {1, 2}
        assert long["step"] == sorted(long["step"])
        finite = [value(i) for i in range(100_000) if math.isfinite(value(i))]
        assert min(low for low in long["least"] if low is not None) == min(finite) == long["min"]
        assert max(high for high in long["greatest"] if high is not None) == max(finite) == long["max"]
        assert [sum(bad[place] for bad in long["bad"]) for place in (3, 4, 5)] == [1, 10, 0]
        assert next(bad[0] for bad in long["bad"]) == 700_010
        at = long["step"].index(next(step for step in long["step"] if step > 500_000))
        begin, end = long["step"][at] // 10, long["step"][at + 1] // 10
        assert long["value"][at] == pytest.approx(sum(map(value, range(begin, end))) / (end - begin))

    @pytest.mark.parametrize(("low", "high"), few([(163_000, 164_000), (81_900, 81_930), (899_000, 901_000)], 1))
    def test_a_short_range_has_every_point_as_it_was_reported(self, points, low, high):
        long = points(f"points=300&from={low}&to={high}")["long"]
        assert long["step"] == list(range(low, high + 1, 10))
        assert long["value"] == [value(step // 10) for step in long["step"]]
        assert (long["bucket"], long["least"], long["count"]) == (1, [], 100_000)

    @pytest.mark.long
    def test_a_range_between_comes_in_finer_buckets(self, points):
        whole, part = points("points=100")["long"], points("points=100&from=300000&to=400000")["long"]
        assert part["bucket"] < whole["bucket"] / 5
        assert part["step"][0] > 290_000
        assert part["step"][-1] <= 400_000

    @pytest.mark.long
    def test_a_range_of_times(self, points, as_alice, running):  # noqa: F811
        times = points("points=5000&from=0&to=99999999")["long"]["time"]
        long = points(f"x=time&from={times[0] + 10}&to={times[0] + 10.2}")["long"]
        assert 190 < len(long["step"]) < 210
        assert all(times[0] + 10 <= at <= times[0] + 10.2 for at in long["time"])
        relative = times[0] - running.started.timestamp() + 10
        assert points(f"x=relative&from={relative}&to={relative + 0.2}")["long"]["step"][5] == long["step"][5]

    def test_a_series_call_reads_the_blocks_instead_of_all_rows(self, as_alice, running, alice):  # noqa: F811
        RunMetric.objects.create(
            job=running, user=alice, name="long", last=math.inf, min=-1.0, max=math.inf, count=100_000, step=999_990
        )
        address = "users/alice/jobs/fit/series?points=200"
        as_alice.call("get", address)  # makes the blocks
        with CaptureQueriesContext(connection) as asked:
            (long,) = as_alice.call("get", address).json()
        assert (long["count"], long["last"], long["max"]) == (100_000, "Infinity", "Infinity")
        steps = [step for step, _value, _attempt in long["points"]]
        assert steps == sorted(steps)
        assert 100 <= len(steps) <= 210
        near = next(point for point in long["points"] if point[0] >= 300_000)
        assert near[1] == pytest.approx(value(int(near[0] // 10)), abs=0.2)
        reads = [
            query["sql"] for query in asked if "FROM metric_value" in query["sql"] and "RECURSIVE" not in query["sql"]
        ]
        assert len(reads) == 2  # what is in no block yet, and the first value that is not finite
        assert f"LIMIT {blocks.SIZE + 1}" in reads[0]
        assert "AND id > 0 " not in reads[1]

    @pytest.mark.parametrize("query", few([blocks.FIRST_VALUES, series.NEWEST, feed.VALUES], 1))
    def test_the_points_of_one_series_are_found_by_its_index(self, running, query):  # noqa: F811
        """However many values of other jobs lie between them."""
        known = {"job": running.pk, "name": "long", "names": ["long"], "after": 0, "most": 10}
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE metric_value")
            cursor.execute(f"EXPLAIN {query}", known)
            plan = "\n".join(row[0] for row in cursor.fetchall())
        assert "value_series" in plan
        assert "metric_value_pkey" not in plan

    def test_the_writer_fills_the_blocks_and_deleting_metrics_forgets_them(self, running, stream, monkeypatch):  # noqa: F811
        monkeypatch.setattr(blocks, "EVERY", 2)
        record(running, numbers(0), numbers(1), numbers(2))
        blocks_of = Block.objects.filter(job=running)
        assert [(block.count, block.attempt) for block in blocks_of.order_by("first")][-3:] == [
            (8192, 1),
            (90_000 % 8192, 1),
            (8192, 2),
        ]
        recording.delete(running.pk)
        assert not blocks_of.exists()


def test_every_series_of_a_short_job_is_there_and_grows(points, running, stream):  # noqa: F811
    record(running, numbers(0, lr=0.5), numbers(1, lr=0.25))
    sent = running.created + timedelta(seconds=1)
    recording.record(
        [bus.Delivery("job_metrics.alice.fit", b'{"epoch":3,"accuracy":0.5,"loss":2,"progress":1}', "m", 0, sent)]
    )
    by_name = points()
    assert list(by_name) == ["accuracy", "loss", "lr"]
    assert by_name["loss"]["value"] == [2.0]
    assert by_name["lr"]["value"] == [0.5, 0.25]
    assert by_name["lr"]["after"] == {"metrics": 1, "values": Value.objects.order_by("-pk").first().pk}
    assert points("x=epoch&from=3&to=4")["loss"]["step"] == [3]
    assert points("x=epoch&from=4")["loss"]["step"] == []
    assert list(points("name=lr")) == ["lr"]
    assert points("name=none") == {}


@pytest.mark.parametrize(
    ("query", "field"),
    few(
        [
            ("points=0", "points"),
            ("points=9999999", "points"),
            ("x=y", "x"),
            ("from=nan", "from"),
            ("to=1e999", "to"),
            ("more=1", "more"),
        ],
        3,
    ),
)
def test_a_wrong_query_is_refused_by_name(as_alice, running, query, field):  # noqa: F811
    assert as_alice.refused("get", f"{POINTS}?{query}").startswith(f"{field}:")


def test_another_users_points_are_not_found(as_bob, running):  # noqa: F811
    assert "job" in as_bob.refused("get", POINTS)


class TestNotFinite:
    def test_named_values_keep_nan_and_infinities(self, as_alice, points, running, ingesting):  # noqa: F811
        body = '[{"step":0,"values":{"norm":1,"lr":NaN}},{"step":1,"values":{"norm":"Infinity","lr":-Infinity}}]'
        assert as_alice.call("post", URL, body).content == b'""'
        wait_for(lambda: Value.objects.count() == 4)
        newest = {(entry["name"], entry["step"]): entry["value"] for entry in as_alice.call("get", URL).json()}
        assert newest == {("norm", 0): 1.0, ("norm", 1): "Infinity", ("lr", 0): "NaN", ("lr", 1): "-Infinity"}
        assert points()["norm"]["value"] == [1.0, None]
        assert points()["norm"]["first_bad"] == {"step": 1, "attempt": 1, "value": "Infinity"}
        assert [bad[3:] for bad in points()["lr"]["bad"]] == [[1, 0, 0], [0, 0, 1]]
        norm = next(
            entry
            for entry in as_alice.call("get", "users/alice/jobs/fit/series?points=5").json()
            if entry["name"] == "norm"
        )
        assert (norm["last"], norm["max"], norm["points"][-1]) == ("Infinity", "Infinity", [1.0, "Infinity", 1.0])

    def test_a_report_whose_loss_is_not_finite_is_refused_by_field(self, as_alice, running, stream):  # noqa: F811
        body = '{"epoch": 13, "accuracy": 0.5, "loss": NaN, "progress": 40}'
        assert as_alice.refused("post", "users/alice/job_metrics/fit", body) == "loss: must be a finite number"

    def test_a_refused_report_keeps_its_nan_and_its_other_value_visible(self, as_alice, points, running, ingesting):  # noqa: F811
        body = '{"epoch": 13, "accuracy": 0.5, "loss": NaN, "progress": 40}'
        assert as_alice.refused("post", "users/alice/job_metrics/fit", body) == "loss: must be a finite number"
        wait_for(lambda: Value.objects.count() == 2)
        assert points()["loss"]["first_bad"] == {"step": 13, "attempt": 1, "value": "NaN"}
        assert points()["accuracy"]["last"] == 0.5
        assert not Metrics.objects.exists()
        assert "unknown" in as_alice.refused("post", "users/alice/job_metrics/fit", body.replace("}", ', "x": 1}'))
        assert Value.objects.count() == 2

    def test_accuracy_and_loss_that_are_not_finite_are_kept_as_values(self, as_alice, points, running, ingesting):  # noqa: F811
        as_alice.call("post", "users/alice/job_metrics/fit", row(12))
        wait_for(Metrics.objects.exists)
        as_alice.call("post", URL, numbers(13, loss="NaN", accuracy=0.75))
        wait_for(lambda: Value.objects.count() == 2)
        assert points()["loss"]["first_bad"] == {"step": 13, "attempt": 1, "value": "NaN"}
        assert points()["accuracy"]["step"] == [12, 13]
        assert (points()["accuracy"]["last"], points()["loss"]["last"]) == (0.75, "NaN")
        assert as_alice.refused("post", URL, numbers(14, loss=1, accuracy=0.75)).startswith("values:")

"""Usage over time: when samples are taken, and the data of the chart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from resources import reconcile, tcc, usage
from resources.models import Tenant, UsageSample

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


def ask(id: str, owner: str = "alice", applier: str = "jm", **amounts):
    tcc.try_(id=id, applier=applier, request_type="request", owner=owner, **amounts)


@pytest.fixture
def day(default_tenant):
    """Alice's job from minute 0, bob's dataset from minute 30, the end of the job at minute 60."""
    ask("job:1", cpu=2.5, gpu=1, ram=500)
    assert usage.record(at(0)) == 1
    ask("dataset:1", "bob", "dm", rom=100)
    usage.record(at(30))
    tcc.release(id="job:1", applier="jm")
    usage.record(at(60))
    return default_tenant


def chart(tenant, minutes: range, **options) -> dict:
    series = usage.series(tenant, at(minutes.start), at(minutes.stop), **options)
    return {layer.pop("name"): layer for layer in series["layers"]} | {"times": series["times"]}


def test_current_usage_by_owner_and_kind(day):
    assert usage.holders(day) == {day.pk: {("bob", "dm"): {"gpu": 0, "cpu": 0, "ram": 0, "rom": 100}}}
    tcc.try_(id="a", applier="am", request_type="request", cpu=1)
    tcc.try_(id="r", applier="am", request_type="release", cpu=0.25)
    tcc.confirm(id="r", applier="am")
    assert usage.holders()[day.pk]["", "am"]["cpu"] == Decimal("0.75")


def test_a_sample_is_stored_when_it_differs_and_every_ten_minutes(default_tenant):
    assert usage.record(at(0)) == 1
    assert usage.record(at(1)) == 0
    ask("job:1", cpu=1)
    assert usage.record(at(2)) == 1
    assert usage.record(at(11)) == 0
    assert usage.record(at(12)) == 1
    tcc.release(id="job:1", applier="jm")
    assert usage.record(at(12)) == 0, "two pictures of one moment"
    assert usage.record(at(13)) == 1
    rows = UsageSample.objects.order_by("at").values_list("at", "owner", "applier", "cpu")
    assert list(rows) == [
        (at(0), "", "", 0),
        (at(2), "alice", "jm", 1),
        (at(12), "alice", "jm", 1),
        (at(13), "", "", 0),
    ]


def test_old_samples_are_removed(day):
    usage.record(at(0) + timedelta(days=90, minutes=45))
    assert set(UsageSample.objects.values_list("at", flat=True)) == {at(60), at(90 * 24 * 60 + 45)}


def test_the_chart_has_a_layer_for_each_owner(day):
    layers = chart(day, range(-10, 70))
    times = layers.pop("times")
    assert (times[0], times[-1], len(times)) == (at(-9), at(70), 80)
    assert set(layers) == {"alice", "bob"}
    cpu = dict(zip(times, layers["alice"]["cpu"], strict=True))
    assert [cpu[at(minute)] for minute in (-9, -1, 0, 30, 59, 60, 70)] == [0, 0, 2.5, 2.5, 2.5, 0, 0]
    assert (layers["bob"]["rom"][38], layers["bob"]["rom"][39], layers["bob"]["rom"][-1]) == (0, 100, 100)


def test_the_chart_has_a_layer_for_each_kind_or_one_owner(day):
    assert set(chart(day, range(70), by="kind")) == {"jm", "dm", "times"}
    assert set(chart(day, range(70), by="kind", owner="bob")) == {"dm", "times"}
    assert set(chart(day, range(70), owner="nobody")) == {"times"}


@pytest.mark.parametrize(("hours", "step"), [(1, 60), (24, 600), (24 * 7, 7200), (24 * 90, 86400)])
def test_the_chart_has_few_points_at_round_times(hours, step):
    size, times = usage.grid(T0 - timedelta(hours=hours, seconds=7), T0 + timedelta(seconds=3))
    assert (size, times[-1]) == (step, T0 + timedelta(seconds=3))
    assert 20 < len(times) <= usage.POINTS + 2
    assert all(moment.timestamp() % step == 0 for moment in times[:-1])


def test_reconcile_samples_once_a_minute(default_tenant, monkeypatch):
    monkeypatch.setattr(reconcile, "_sampled", [-reconcile.SAMPLE_EVERY_S])
    clock = iter([5.0, 5.0, 40.0, 66.0, 66.0])
    monkeypatch.setattr(reconcile, "monotonic", lambda: next(clock))
    taken = []
    monkeypatch.setattr(reconcile.usage, "record", lambda: taken.append(1))
    for _ in range(3):
        reconcile.run()
    assert len(taken) == 2


class TestRest:
    def test_staff_see_all_usage_and_users_their_own(self, default_tenant, as_staff, as_alice, as_bob):
        ask("job:1", cpu=2)
        usage.record()
        answer = as_staff.call("get", "tenants/default/usage?hours=1").json()
        assert (answer["tenant"], answer["by"], answer["step_s"]) == ("default", "owner", 60)
        assert [(layer["name"], layer["cpu"][-1]) for layer in answer["layers"]] == [("alice", 2.0)]
        assert len(answer["times"]) == len(answer["layers"][0]["gpu"])
        assert as_alice.call("get", "tenants/default/usage").json()["layers"] != []
        assert as_bob.call("get", "tenants/default/usage?by=kind").json()["layers"] == []
        assert as_staff.call("get", "tenants/default/usage?by=kind").json()["layers"][0]["name"] == "jm"

    @pytest.mark.parametrize("query", ["hours=0", "hours=2161", "hours=x", "by=name", "day=1"])
    def test_an_invalid_parameter_is_named(self, as_alice, query):
        assert as_alice.refused("get", f"tenants/default/usage?{query}").startswith(query.partition("=")[0] + ":")

    def test_another_tenant_is_not_found(self, as_alice):
        Tenant.objects.create(name="other")
        assert as_alice.refused("get", "tenants/other/usage") == as_alice.refused("get", "tenants/none/usage")

"""Rates that people mark as usual, and hours in which a template is usually loud: neither is reported."""

from __future__ import annotations

import pytest

from accounts.models import Notice
from aiops.judging import rates, suppressions
from aiops.models import Alert, RateAnomaly, RateClock, Suppression, TemplateRate
from mlp.tests.page_world import visible_text, visitor
from mlp.tests.tiers import few, later

from .test_rates import (  # noqa: F401 (shop is a fixture)
    BASE,
    BEAT,
    RETRY,
    at,
    found,
    go,
    send,
    shop,
    usual,
)

pytestmark = pytest.mark.django_db(transaction=True)

DAY = 1440
NIGHT = -BASE % 60 + 5  # the minute, counted from BASE, at which a loud quarter of an hour begins: all in one hour
PAGE = "/aiops/workload?namespace=alice&deployment=shop"


def storm(begin: int, end: int, lines: int = 100) -> None:
    send(range(begin, end), RETRY, lines, pod_name=f"b{begin}")


def mark(api, **fields) -> dict:
    row = RateAnomaly.objects.filter(suppression=None).latest("pk")
    return api.call("post", "aiops/suppressions", {"rate": row.pk, **fields}).json()


def listed(api) -> list[str]:
    return [row["kind"] for row in api.call("get", "aiops/rate_anomalies?deployment=shop").json()]


@pytest.fixture
def stormed(shop):  # noqa: F811
    """A retry storm is over."""
    usual(range(90))
    storm(5, 10)
    go(25)
    assert found() == [("often", RETRY)]


def test_so_many_lines_are_not_reported_again(stormed, as_alice):
    made = mark(as_alice, note="the cache is cold")
    assert (made["kind"], made["template_cluster_id"], made["note"]) == ("often", RETRY, "the cache is cold")
    assert made["lines"] >= 500
    assert listed(as_alice) == []
    storm(30, 35)
    go(50, since=25)
    assert listed(as_alice) == []
    storm(55, 60, 900)
    go(70, since=50)
    assert listed(as_alice) == ["often"], "many more than that"


def test_undone_it_is_reported_again(stormed, as_alice):
    made = mark(as_alice)
    as_alice.call("delete", f"aiops/suppressions/{made['id']}")
    assert listed(as_alice) == ["often"]
    storm(30, 35)
    go(50, since=25)
    assert listed(as_alice) == ["often", "often"]


@pytest.mark.long
def test_a_storm_that_goes_on_ends_when_it_is_marked_and_nobody_is_told_that_it_is_over(shop, as_alice, alice):  # noqa: F811
    usual(range(40))
    storm(5, 20)
    go(9)
    (row,) = as_alice.call("get", "aiops/rate_anomalies?current=true").json()
    mark(as_alice)
    go(40, since=9)
    assert as_alice.call("get", "aiops/rate_anomalies?current=true").json() == []
    anomaly = RateAnomaly.objects.get(pk=row["id"])
    assert (anomaly.until, anomaly.recovered) == (anomaly.last, False)
    assert Alert.objects.get().ended is not None
    assert "ended" not in Notice.objects.get(user=alice, kind="alert").reason


@pytest.mark.long
def test_a_silence_is_not_reported_again(shop, as_alice):  # noqa: F811
    usual(range(160), BEAT)
    go(40)
    assert found() == [("silent", BEAT)]
    mark(as_alice)
    send(range(40, 46), BEAT)
    go(160, since=40)
    assert listed(as_alice) == []


@pytest.mark.long
def test_a_template_with_another_number_is_the_same(stormed, as_alice):
    """After templates were learned again."""
    mark(as_alice)
    Suppression.objects.update(template_id=999)
    storm(30, 35)
    go(50, since=25)
    assert listed(as_alice) == []


@pytest.mark.long
def test_a_like_template_that_comes_beside_it_is_another(stormed, as_alice):
    mark(as_alice)
    other = {"template_matched": "retry of a <*>", "masked_log": "retry of a b"}
    send(range(20, 90), 44, 1, pod_name="c", **other)
    go(85, since=25)
    send(range(85, 89), 44, 200, pod_name="d", **other)
    go(90, since=85)
    assert listed(as_alice) == ["often"]


def test_what_is_marked_while_minutes_are_counted_stays_marked(shop, as_alice, monkeypatch):  # noqa: F811
    usual(range(40))
    storm(5, 30)
    go(9)
    save, marked = rates.Minutes.run, []

    def run(minutes, **given) -> None:
        save(minutes, **given)
        if not marked:
            marked.append(mark(as_alice))

    monkeypatch.setattr(rates.Minutes, "run", run)
    go(40, since=9)
    assert marked
    assert listed(as_alice) == []
    assert not RateAnomaly.objects.filter(until=None).exists()


def test_only_the_owner_and_administrators_mark_and_there_is_a_limit(stormed, as_alice, as_bob, as_staff, monkeypatch):
    row = {"rate": RateAnomaly.objects.get().pk}
    assert as_bob.refused("post", "aiops/suppressions", row) == "unusual rate: no such unusual rate"
    monkeypatch.setattr(suppressions, "MAX_OF_A_WORKLOAD", 0)
    assert "at most 0 suppressions" in as_alice.refused("post", "aiops/suppressions", row)
    monkeypatch.undo()
    assert as_staff.call("post", "aiops/suppressions", row).json()["by"] == "oscar"


def test_the_page_marks_a_rate_and_undoes_it(stormed, alice):
    browser = visitor(alice)
    assert "Mark as usual" in visible_text(browser.get(PAGE))
    browser.post("/aiops/suppress", {"do": f"rate:{RateAnomaly.objects.get().pk}", "next": PAGE})
    shown = visible_text(browser.get(PAGE))
    assert "No template of this workload came too often" in shown
    assert "Marked as normal" in shown
    browser.post("/aiops/suppress", {"do": f"undo:{Suppression.objects.get().pk}", "next": PAGE})
    assert "Mark as usual" in visible_text(browser.get(PAGE))


# --- loud hours ----------------------------------------------------------------------------------------------------
def remember(days, lines: int = 500, shift: int = 0) -> None:
    """Let the template have been loud on these days before, around the same time."""
    rate = TemplateRate.objects.get(template_id=RETRY)
    hour = (BASE + NIGHT) // 60 + shift
    rate.state["loud"] = sorted([hour - 24 * day, lines] for day in days)
    rate.save()


def night() -> None:
    usual(range(NIGHT + 45))
    storm(NIGHT, NIGHT + 15)
    go(NIGHT + 45)


@pytest.mark.long
@pytest.mark.parametrize(("days", "reported"), few([
    ((1, 2), True), ((1, 2, 3), False), ((1, 3, 6), False), ((7, 14), False), ((2, 8, 9), True), ((7,), True),
    ((7, 21), False), ((14, 35), True),
], 2))  # fmt: skip
def test_an_hour_that_is_usually_loud_is_not_reported(shop, days, reported):  # noqa: F811
    remember(days)
    night()
    assert bool(found()) is reported


@pytest.mark.parametrize("hours", [-1, later(1)])
def test_when_clocks_are_changed_no_night_is_reported(shop, hours):  # noqa: F811
    remember((1, 2, 3, 4), shift=hours)
    night()
    assert found() == []


@pytest.mark.long
def test_a_night_that_is_much_louder_is_reported(shop):  # noqa: F811
    remember((1, 2, 3), 120)
    night()
    assert found() == [("often", RETRY)]
    assert RateAnomaly.objects.get().high >= 120


@pytest.mark.long
def test_a_night_about_as_loud_as_is_too_much_is_reported_once(shop):  # noqa: F811
    remember((1, 2, 3), 120)
    usual(range(NIGHT + 125))
    for begin in range(NIGHT, NIGHT + 95, 24):
        storm(begin, begin + 10, 70)
        storm(begin + 10, begin + 24, 45)
    go(NIGHT + 125)
    assert found() == [("often", RETRY)]


@pytest.mark.long
def test_one_incident_among_quiet_nights_makes_no_night_loud(shop):  # noqa: F811
    remember((1, 2, 3), 120)
    rate = TemplateRate.objects.get(template_id=RETRY)
    rate.state["loud"][0][1] = 100_000
    rate.save()
    night()
    assert found() == [("often", RETRY)]


@pytest.mark.long
def test_another_hour_of_the_day_is_reported(shop):  # noqa: F811
    remember((1, 2, 3, 4, 5))
    usual(range(NIGHT + 240))
    storm(NIGHT + 200, NIGHT + 205)
    go(NIGHT + 235)
    assert found() == [("often", RETRY)]


@pytest.mark.long
def test_what_was_loud_is_remembered_for_the_next_nights(shop):  # noqa: F811
    night()
    state = TemplateRate.objects.get(template_id=RETRY).state
    hours = {hour for hour, lines in state["loud"] if lines >= 500}
    assert (BASE + NIGHT) // 60 in hours


@pytest.mark.long
def test_a_silence_each_night_is_reported_once_and_stays_regular(shop):  # noqa: F811
    rate = TemplateRate.objects.get(template_id=BEAT)
    rate.state["before"] = [[BASE - DAY, -60]]
    rate.save()
    usual(range(80), BEAT)
    send(range(50, 80), BEAT)
    go(80)
    assert found() == []
    state = TemplateRate.objects.get(template_id=BEAT).state
    assert max(map(int, state["gaps"])) == 1, "the pause is no usual gap"
    assert state["before"][-1][1] <= -50, "and is remembered for the next night"
    assert RateClock.objects.count() == 1
    assert at(0)

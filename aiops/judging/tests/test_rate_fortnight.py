"""A fortnight of logs with daily and weekly swings, through the store and the service: how many are reported."""

from __future__ import annotations

import random

import pytest

from aiops import logstore
from aiops.judging import rates, usual_hours
from aiops.models import RateAnomaly, RateClock, WatchedWorkload

from .test_rates import BASE, BEAT, REST, RETRY, TEXTS, at

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]

DAY = 1440
SPAN = 14 * DAY
FIRST = -SPAN  # minutes, counted from BASE
EVERY = 5  # minutes with lines, so that the test ends in time: swings are of hours


def swing(minute: int, rng: random.Random) -> dict[int, int]:
    """Return the lines of each template in a minute: many in office hours of working days, a report on Sundays."""
    day, hour = divmod(minute - FIRST, DAY)
    lines = {BEAT: 1, REST: rng.randint(1, 3)}
    if 480 <= hour < 1080 and day % 7 < 5:
        lines[RETRY] = rng.randint(60, 140)
    elif minute % 60 == 0:
        lines[RETRY] = 1
    if day % 7 == 6 and 600 <= hour < 780:
        lines[REST] = rng.randint(150, 250)
    return lines


def line(minute: int, template: int, number: int) -> dict:
    return {
        "_id": f"{template}-{minute}-{number}", "time": (BASE + minute) * 60_000 + number, "log": TEXTS[template],
        "cluster_id": "local", "namespace_name": "alice", "deployment": "shop", "log_type": "workload",
        "masked_log": TEXTS[template], "anomaly_level": "Normal", "template_matched": TEXTS[template],
        "template_cluster_id": template,
    }  # fmt: skip


def fortnight(alice, incidents: tuple[int, ...] = ()) -> list[tuple[int, int]]:
    """Return (day, template) of what is reported; incidents: minutes since the beginning, for half an hour each."""
    rng = random.Random(1)
    WatchedWorkload.objects.create(namespace="alice", deployment="shop", by=alice)
    RateClock.objects.create(cluster="local", namespace="alice", deployment="shop", minute=BASE + FIRST, active=1)
    for start in range(FIRST, 0, 240):
        made: list[dict] = []
        for minute in range(start, start + 240, EVERY):
            lines = swing(minute, rng)
            if any(begin <= minute - FIRST < begin + 30 for begin in incidents):
                lines[BEAT] = 300
            made += [line(minute, template, number) for template, count in lines.items() for number in range(count)]
        logstore.get().append(made)
        for minute in range(start, start + 240, 4):
            rates.advance(at(minute))
    found = RateAnomaly.objects.order_by("pk").values_list("since", "template_id")
    return [((since // 60_000 - BASE - FIRST) // DAY, template) for since, template in found]


def test_swings_are_reported_until_they_are_known(alice):
    found = fortnight(alice, incidents=(10 * DAY + 900, 12 * DAY + 60))
    assert {day for day, template in found if template == RETRY} <= {0, 1, 2, 3}, found
    assert [day for day, template in found if template == BEAT] == [10, 12], "real ones are still found"


def test_without_history_most_days_are_reported(alice, monkeypatch):
    """What was reported before hours were learned."""
    monkeypatch.setattr(usual_hours, "LEAST_DAYS", 99)
    monkeypatch.setattr(usual_hours, "LEAST_WEEKS", 99)
    found = fortnight(alice)
    assert len({day for day, template in found if template == RETRY}) > 4, found

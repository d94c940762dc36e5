"""Fixtures of the tests of drift: an application with records of two features and a class."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from apps.drift import evaluating
from apps.models import Record, Recording
from apps.records.tests.conftest import adder, app

__all__ = ["adder", "app"]

KEPT = {f"{side}_{what}": value for side in ("input", "output") for what, value in (
    ("kept", "all"), ("type", "application/json"), ("size", 9))}  # fmt: skip


def midnight(days_ago: int = 0) -> datetime:
    return timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days_ago)


def request(draw: random.Random, shift: float = 0.0, number: int = 0) -> tuple[dict, dict]:
    """Return a request and its answer; `shift` moves one feature, and with it the classes."""
    age = draw.gauss(40 + shift, 10)
    return {"age": age, "city": "abc"[number % 3], "id": f"r{draw.random()}"}, {"y": [int(age > 45)]}


@pytest.fixture
def put(app):
    """Return a function that stores records within a day."""
    Recording.objects.create(app=app, on=True)
    draw = random.Random(11)

    def store(days_ago: int, count: int = 60, shift: float = 0.0, bodies=None, **fields) -> None:
        at = midnight(days_ago) + timedelta(hours=1)
        pairs = bodies if bodies is not None else [request(draw, shift, number) for number in range(count)]
        Record.objects.bulk_create(
            Record(
                app=app, user=app.user, request_id=f"{days_ago}-{number}", at=at + timedelta(seconds=number),
                run_name="app-1-1", model_name="adder", path="/predict", ms=1, size=100,
                input=given if isinstance(given, str) else json.dumps(given), output=json.dumps(answer),
                **{"status": 200, **KEPT, **fields},
            )
            for number, (given, answer) in enumerate(pairs)
        )  # fmt: skip

    return store


@pytest.fixture
def check(app, as_alice):
    """Return a function that turns it on, by default with the records of ten days ago as reference, and looks."""

    def put_check(look: bool = True, **fields) -> dict:
        if "dataset" not in fields:
            fields = {"since": midnight(10).isoformat(), "until": midnight(8).isoformat(), **fields}
        fields.setdefault("least", 40)
        answer = as_alice.call("put", f"users/alice/apps/{app.name}/drift", fields)
        assert answer.status_code == 200, answer.content
        if look:
            evaluating.look(app.drift_check.pk)
        return as_alice.call("get", f"users/alice/apps/{app.name}/drift").json()

    return put_check


@pytest.fixture
def windows(app, as_alice):
    """Return a function that returns the windows over REST, the oldest first, each with its features by name."""

    def get() -> list[dict]:
        path = f"users/alice/apps/{app.name}/drift/windows"
        rows = as_alice.call("get", path).json()[::-1]
        found = [as_alice.call("get", f"{path}/{row['number']}").json() for row in rows]
        return [row | {"features": {each["name"]: each for each in row["features"]}} for row in found]

    return get

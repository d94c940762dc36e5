"""`/ws/live` and the state of the platform's components."""

from __future__ import annotations

import asyncio
import json

import pytest

from mlp.tests.links import eventually

from .test_live import OWN, heard, opened, own_change

pytestmark = pytest.mark.django_db(transaction=True)


def test_operators_only_are_notified_of_component_changes(alice, staff, monkeypatch):
    state, looks = {"nats": "ok"}, []
    monkeypatch.setattr("mlp.visitors.live.health.report", lambda: looks.append(1) or dict(state))
    monkeypatch.setattr("mlp.visitors.live.PARTS_S", 0.05)

    async def more_looks() -> None:
        """Wait for more looks, each of which comes after what the one before has sent."""
        enough = len(looks) + 3
        await eventually(lambda: len(looks) >= enough)

    async def work():
        user, operator = await opened(alice), await opened(staff)
        watched = [{"kind": "parts"}, {"kind": "metrics", "user": "alice", "job": "none"}]
        for link in (user, operator):
            await link.send_to(json.dumps({"watch": watched}))
        first = [await heard(user), *sorted([await heard(operator), await heard(operator)], key=str)]
        await more_looks()
        assert operator.output_queue.empty()
        state["nats"] = "no answer"
        second = await heard(operator)
        await more_looks()
        await own_change("alice")
        last = await heard(user)
        for link in (operator, user):
            await link.disconnect()
        return first, second, last

    gone, parts = {"type": "gone", "user": "alice", "job": "none"}, {"type": "parts"}
    assert asyncio.run(work()) == ([gone, gone, parts], parts, OWN)

"""A followed log as server-sent events."""

from __future__ import annotations

import json

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient
from django.utils import timezone

from accounts import lifecycle as accounts
from jobs import logs
from jobs.models import Job

pytestmark = pytest.mark.django_db(transaction=True)

URL = "/api/v1/users/alice/jobs/fit/log?follow=1"


def parsed(stream: bytes) -> list[dict]:
    """Return the fields of each event as a browser reads them; those of a comment are none."""
    *events, rest = stream.decode().split("\n\n")
    assert rest == ""
    return [dict(line.split(": ", 1) for line in event.split("\n") if line[0] != ":") for event in events]


def text_of(events: list[dict]) -> str:
    return "".join(json.loads(event["data"]) for event in events if event and "event" not in event)


@pytest.fixture
def follow(alice):
    """Returns the stream of the log. `seen` is called with each piece."""

    async def read(headers, seen) -> bytes:
        given = {"authorization": f"Bearer {accounts.token_of(alice)}", "accept": "text/event-stream", **headers}
        answer = await AsyncClient().get(URL, headers=given)
        assert answer["Content-Type"] == "text/event-stream"
        pieces = []
        async for piece in answer.streaming_content:
            pieces.append(piece)
            await seen(piece)
        return b"".join(pieces)

    async def nothing(piece) -> None:
        pass

    return lambda seen=nothing, **headers: async_to_sync(read)(headers, seen)


def test_events_have_the_whole_text_and_go_on_from_the_last_one(job, write, follow, monkeypatch):
    monkeypatch.setattr(logs, "PIECE", 7)  # so that characters are torn
    monkeypatch.setattr(logs, "ASK_EVERY_S", 0)
    Job.objects.filter(pk=job.pk).update(ended=timezone.now())
    log = "10 %\r20 %\r\n\nfertig: 97 % 🚀 \u2028 data: x\n".encode() + b"\xff\xe2"
    write(log)
    *events, end = parsed(follow())
    assert text_of(events) == log.decode(errors="replace")
    assert (end, events[-1]["id"]) == ({"event": "end", "data": str(len(log))}, str(len(log)))
    for last in (0, len(events) // 2, len(events) - 2):
        rest = follow(**{"last-event-id": events[last]["id"]})
        assert text_of(events[: last + 1]) + text_of(parsed(rest)) == log.decode(errors="replace")


def test_comments_are_sent_while_nothing_is_written(job, write, follow, monkeypatch):
    monkeypatch.setattr(logs, "QUIET_S", 0)
    monkeypatch.setattr(logs, "ASK_EVERY_S", 0)
    write(b"one\n")
    Job.objects.filter(pk=job.pk).update(state="running", run_name="none", ended=None)

    async def end(piece) -> None:
        if piece == b":\n\n":
            await Job.objects.filter(pk=job.pk).aupdate(state="finished", run_name="", ended=timezone.now())

    events = parsed(follow(end))
    assert ({} in events, text_of(events), events[-1]["event"]) == (True, "one\n", "end")

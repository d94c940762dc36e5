"""A log of a million lines over REST: lines, search, following; other users' logs stay theirs."""

from __future__ import annotations

import json
import os

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient
from django.utils import timezone

from accounts import lifecycle as accounts
from jobs import logs
from jobs.environment import log_file
from jobs.models import Job
from kernel.textlog.index import PIECE
from mlp.operators.tests.admin_world import put
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db(transaction=True)

LINES = "users/alice/jobs/fit/log/lines"
SEARCH = "users/alice/jobs/fit/log/search"
MILLION = 1_000_000


@pytest.fixture
def million(write) -> Job:
    """A log of a million lines of 40 to 60 bytes, every thousandth an error."""
    thousand = [b"epoch 1 step %%06d%03d loss=0.25 acc=0.5\n" % n for n in range(1000)]
    thousand[500] = b"\x1b[31mERROR\x1b[0m disk 500 is full\n"
    some = b"".join(thousand)
    whole = b"".join(some.replace(b"%06d", b"%06d" % thousand) for thousand in range(MILLION // 1000))
    return write(whole)


@pytest.fixture
def read(monkeypatch) -> list[int]:
    """Yield the sizes of all reads of logs and indices."""
    sizes, pread = [], os.pread

    def counted(*arguments) -> bytes:
        data = pread(*arguments)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counted)
    return sizes


def test_for_any_lines_of_a_million_little_is_read(as_alice, million, read):
    last = as_alice.call("get", f"{LINES}?limit=3").json()
    assert sum(read) < last["size"] + 4 * PIECE, "it is read once: the index is made now"
    assert (last["total"], [row["line"] for row in last["rows"]]) == (MILLION, [999_998, 999_999, MILLION])
    assert last["rows"][-1]["text"] == "epoch 1 step 000999999 loss=0.25 acc=0.5"
    read.clear()
    some = as_alice.call("get", f"{LINES}?first=777501&limit=2").json()["rows"]
    assert 0 < sum(read) < 4 * PIECE, "the index and what is near the lines"
    assert some[0] | {"offset": 0} == {
        "line": 777_501, "offset": 0, "at": None, "text": "ERROR disk 500 is full", "styles": [[0, 5, "f1"]],
    }  # fmt: skip
    assert some[1]["text"].startswith("epoch 1 step 000777501")
    assert as_alice.call("get", f"{LINES}?first=1000001").json()["rows"] == []


def test_a_search_reads_the_whole_log(as_alice, million):
    hits = as_alice.call("get", f"{SEARCH}?q=step+000777123&case=1").json()
    while hits["next"] and not hits["lines"]:
        hits = as_alice.call("get", f"{SEARCH}?q=step+000777123&case=1&first={hits['next']}").json()
    assert (hits["total"], hits["lines"]) == (MILLION, [777_124])
    numbers, first = [], 1
    while first:
        hits = as_alice.call("get", f"{SEARCH}?errors=1&limit=300&first={first}").json()
        numbers, first = numbers + hits["lines"], hits["next"]
    assert numbers == list(range(501, MILLION, 1000))
    marked = as_alice.call("get", f"{LINES}?first=501&limit=2&q=DISK+.00&regex=1").json()["rows"]
    assert [row.get("hits") for row in marked] == [[[6, 14]], None]


def test_a_log_that_is_missing_has_no_lines(as_alice, alice):
    put(Job, alice, "fit", "running")
    assert as_alice.call("get", LINES).json() == {"total": 0, "size": 0, "rows": []}
    assert as_alice.call("get", f"{SEARCH}?q=x").json() == {"total": 0, "lines": [], "next": None}


@pytest.mark.parametrize(
    ("address", "words"),
    few(
        [
            (f"{LINES}?first=0", "first: must be a whole number"),
            (f"{LINES}?limit=1001", "limit: must be a whole number from 1 to 1000"),
            (f"{LINES}?follow=2", "follow: "),
            (f"{LINES}?before=1", "before: unknown parameter"),
            (f"{LINES}?q=(&regex=1", "q: invalid regular expression: missing )"),
            (SEARCH, "q: must have 1 to 1000 characters"),
            (f"{SEARCH}?q=", "q: must have 1 to 1000 characters"),
            (f"{SEARCH}?q=&errors=1", "q: must have 1 to 1000 characters"),
            (f"{SEARCH}?q=" + "a" * 1001, "q: must have 1 to 1000 characters"),
            (f"{SEARCH}?q=a&case=yes", "case: "),
        ],
        3,
    ),
)
def test_a_wrong_call_is_named(as_alice, write, address, words):
    write(b"one\n")
    assert as_alice.refused("get", address).startswith(words)


def test_the_log_is_its_owners(as_bob, as_staff, write):
    write(b"secret\n")
    for address in (LINES, f"{SEARCH}?q=secret", f"{LINES}?follow=1"):
        assert "job" in as_bob.refused("get", address)
    assert as_staff.call("get", LINES).json()["rows"][0]["text"] == "secret"


def test_new_lines_are_streamed_until_the_end_with_their_times(submit, until, alice, as_alice):
    code = "import time\nprint('one')\nprint('  5 %', end='\\r', flush=True)\ntime.sleep(.4)\nprint(' 10 %')\n"
    job = until(submit(code + "raise SystemExit(1)", retries=0), "error")
    headers = {"authorization": f"Bearer {accounts.token_of(alice)}"}

    async def read() -> list[dict]:
        answer = await AsyncClient().get(f"/api/v1/{LINES}?follow=1&limit=5", headers=headers)
        assert answer["Content-Type"] == "application/x-ndjson"
        data = b"".join([piece async for piece in answer.streaming_content])
        return [json.loads(line) for line in data.splitlines()]

    pieces = async_to_sync(read)()
    assert [row["text"] for row in pieces[-1]["rows"]] == ["one", " 10 %"]
    rows = as_alice.call("get", LINES).json()["rows"]
    assert all(row["at"] for row in rows)
    assert log_file(job).path == "log/job.log"


@pytest.mark.parametrize(("address", "quiet"), [(LINES, b"\n"), ("users/alice/jobs/fit/log", None)])
def test_empty_lines_are_sent_while_nothing_is_written(job, write, alice, monkeypatch, address, quiet):
    """Proxies end a response that is silent; a log as text gets nothing that is not in it."""
    monkeypatch.setattr(logs, "QUIET_S", 0)
    monkeypatch.setattr(logs, "ASK_EVERY_S", 0)
    write(b"one\n")
    Job.objects.filter(pk=job.pk).update(state="running", run_name="none", ended=None)
    headers = {"authorization": f"Bearer {accounts.token_of(alice)}"}

    async def read() -> list[bytes]:
        pieces = []
        answer = await AsyncClient().get(f"/api/v1/{address}?follow=1", headers=headers)
        async for piece in answer.streaming_content:
            pieces.append(piece)
            if piece == quiet or quiet is None:
                await Job.objects.filter(pk=job.pk).aupdate(state="finished", run_name="", ended=timezone.now())
        return pieces

    first, *others = async_to_sync(read)()
    assert b"one" in first
    assert set(others) == ({quiet} if quiet else set())

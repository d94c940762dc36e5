"""The accuracy of the whole way: stored lines of a labelled log, a training's lines of it, the service that judges
(MLP_BENCH_DATA). The log is made of the events of HDFS, each a line of its template with its block and other values.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest
from django.conf import settings

from aiops import logstore
from aiops.judging import sessions
from aiops.judging.sessions import Judge
from aiops.models import SessionAnomaly, WatchedWorkload
from aiops.training import session_data
from aiops.wire import folders
from opnilog import learned_sessions
from opnilog.store import NEEDED, Versions

DATA = Path(os.environ.get("MLP_BENCH_DATA", "."), "labelled")
ABNORMAL, NORMAL = 16_838, 553_366  # sessions of the whole data set
LEAST_F1 = 0.988
NOW = int(time.time() * 1000) // 60_000 * 60_000
HOUR = 3_600_000
WORKLOAD = {"cluster_id": "local", "namespace_name": "alice", "deployment": "hdfs", "log_type": "workload"}

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.long,
    pytest.mark.skipif(not DATA.is_dir(), reason="no labelled logs: MLP_BENCH_DATA is not set"),
]


@cache
def pieces(event: str) -> list[str]:
    with gzip.open(DATA / "hdfs_full_event_templates.csv.gz", "rt") as file:
        known = {row["EventId"]: row["EventTemplate"] for row in csv.DictReader(file)}
    return known[f"E{event}"].split("<*>")


def text(chance: random.Random, event: str, block: str) -> str:
    """Return a line of the event: one of its values is the block, the others are addresses."""
    known = pieces(event)
    named = [place for place, piece in enumerate(known[:-1]) if piece.rstrip().lower().endswith(("block", "for"))]
    where = named[0] if named else len(known) - 2
    line = known[0]
    for place, piece in enumerate(known[1:]):
        host = f"/10.250.{chance.randrange(1, 250)}.{chance.randrange(1, 250)}:50010"
        line += f" {block if place == where else host if place else 'dfs.DataNode:'} {piece}"
    return " ".join(line.split())


def lines(chance: random.Random, every: list[list[str]], begin: int, name: str) -> Iterator[dict]:
    """Yield the lines of sessions of which one begins every two seconds, with a line each second."""
    rows = []
    for count, events in enumerate(every):
        block = f"blk_{chance.choice(('', '-'))}{name}{count:08d}"
        for place, event in enumerate(events):
            rows.append((begin + 2000 * count + 1000 * place, block, place, text(chance, event, block)))
    for at, block, place, line in sorted(rows):
        yield {"_id": f"{block}-{place}", "time": at, "log": line, **WORKLOAD}


def store(rows: Iterator[dict]) -> int:
    batch, count = [], 0
    for row in rows:
        batch.append(row)
        if len(batch) == 5000:
            logstore.get().append(batch)
            batch, count = [], count + 5000
    logstore.get().append(batch)
    return count + len(batch)


def test_sessions_of_hdfs_are_judged_as_well_as_by_the_library(alice, monkeypatch):
    monkeypatch.setattr(sessions, "LEAST_KEPT", 100_000)
    WatchedWorkload.objects.create(namespace="alice", deployment="hdfs", by=alice)
    chance = random.Random(3)
    with gzip.open(DATA / "hdfs_full_train_normal_4855.txt.gz", "rt") as file:
        normal = [line.split() for line in file if line.strip()]
    with gzip.open(DATA / "hdfs_full_test_sessions.csv.gz", "rt") as file:
        tried = [(row["Events"].split(), row["Label"] == "1") for row in csv.DictReader(file)]
    store(lines(chance, normal, NOW - 23 * HOUR, "7"))
    path, window = folders.folder() / "trained" / "sessions.jsonl", {"gte": NOW - 23 * HOUR, "lte": NOW - 18 * HOUR}
    session_data.write(path, {"local": {"alice": ["hdfs"]}}, window, 10**7, {}, iter)
    with path.open() as file:
        learned = learned_sessions.learn(map(json.loads, file), settings.AIOPS_SESSION_QUIET_S * 1000)
    for name in NEEDED:
        (path.parent / name).write_text("{}")
    path.with_name(learned_sessions.FILE).write_text(json.dumps(learned))
    versions = Versions(folders.models())
    versions.serve(versions.add(path.parent))

    stored = store(lines(chance, [events for events, _ in tried], NOW - 12 * HOUR, "8"))
    begun, judge, rounds = time.process_time(), Judge(), 0
    while not judge.readers or any(reader.position < NOW for reader in judge.readers.values()):
        judge.advance(datetime.fromtimestamp(NOW / 1000 + sessions.SETTLED_MS / 1000, UTC))
        rounds += 1
    took = time.process_time() - begun
    found = {value.removeprefix("blk_").removeprefix("-") for value in listed()}
    assert not {f"7{count:08d}" for count in range(200, len(normal) - 200)} & found, "learned from"
    results = [(f"8{count:08d}" in found, label) for count, (_, label) in enumerate(tried)]
    hits, false = sum(odd and label for odd, label in results), sum(odd and not label for odd, label in results)
    recall, alarms = hits / sum(label for _, label in tried), false / sum(not label for _, label in tried)
    precision = ABNORMAL * recall / (ABNORMAL * recall + NORMAL * alarms)
    score = 2 * precision * recall / (precision + recall)
    print(f"F1 {score:.4f}, recall {recall:.4f}, {false} false alarms; {stored} lines, {rounds} rounds, {took:.0f} s")
    assert score >= LEAST_F1


def listed() -> list[str]:
    return list(SessionAnomaly.objects.values_list("value", flat=True))

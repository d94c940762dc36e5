"""Log retention by size, on real tables: the oldest lines are deleted first, and no more than necessary."""

from __future__ import annotations

import time

import pytest
from django.db import connection

from aiops.intake import accept
from aiops.logstore import partitions, retention
from aiops.logstore.database import DatabaseStore
from aiops.models import LogLine, Workload

pytestmark = pytest.mark.django_db(transaction=True)

NOW = int(time.time() * 1000) - 3 * partitions.DAY_MS
LINES = 20_000
YEARS = 3650
MIB = 1 << 20


def sql(text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text)


def on_disk() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('aiops_log')")
        lines = cursor.fetchone()[0]
        cursor.execute("SELECT pg_total_relation_size('aiops_log_key')")
        return int(lines) + cursor.fetchone()[0]


def fill(lines: int = LINES, begin: int = 0) -> None:
    """Store lines that grow longer over time, so that the oldest are not the average."""
    rows = [
        accept.line(
            f"request {number} took {'very ' * (number % LINES * 40 // LINES)}long from 10.0.0.{number % 250}",
            id=f"id{number}", at_ms=NOW + number, namespace="shop", deployment=f"web{number % 3}",
        )
        for number in range(begin, begin + lines)
    ]  # fmt: skip
    DatabaseStore().append(rows)


@pytest.fixture
def store():
    sql("TRUNCATE aiops_log, aiops_log_key, aiops_log_minute, aiops_workload")  # on disk, too
    fill()
    partitions.build_indexes()
    sql("VACUUM aiops_log")
    return DatabaseStore()


def kept() -> list[int]:
    return list(LogLine.objects.order_by("time").values_list("time", flat=True))


@pytest.mark.long
def test_the_size_is_about_that_of_a_table_without_gaps(store):
    assert 0.75 < retention.size() / on_disk() < 1.25


@pytest.mark.long
def test_only_the_excess_is_deleted_oldest_first(store):
    before = retention.size()
    limit = before // MIB - 1
    gone = store.retain(YEARS, limit)
    excess, freed = before - limit * MIB, before - retention.size()
    assert 0 <= freed - excess < before / LINES * 2  # to the line
    assert kept() == [NOW + number for number in range(gone, LINES)]
    assert sum(Workload.objects.values_list("lines", flat=True)) == LINES - gone
    for _ in range(3):
        sql("VACUUM aiops_log")
        assert store.retain(YEARS, limit) == 0


@pytest.mark.long
def test_lines_are_deleted_in_batches_over_several_calls(store):
    limit = retention.size() // MIB // 2
    assert retention.remove(YEARS, limit, most=1000, portion=300) == 1200
    assert retention.size() > limit * MIB
    retention.remove(YEARS, limit, portion=300)
    assert 0.99 < retention.size() / (limit * MIB) <= 1
    assert kept()[-1] == NOW + LINES - 1


@pytest.mark.long
def test_a_large_table_is_sampled(store, monkeypatch):
    whole = retention.size()
    monkeypatch.setattr(retention, "SAMPLED", 200)
    assert 0.8 < retention.size() / whole < 1.25
    limit = whole // MIB // 2
    for _ in range(4):
        store.retain(YEARS, limit)
        sql("VACUUM aiops_log")
    monkeypatch.undo()
    assert 0.75 < retention.size() / (limit * MIB) < 1.25


@pytest.mark.long
def test_freed_space_is_reused(store):
    """Two and a half times as much is written again, half of it before anything is deleted."""
    limit, begin = retention.size() // MIB, on_disk()
    for turn in range(2, 7):
        fill(LINES // 2, LINES // 2 * turn)
        store.retain(YEARS, limit)
        sql("VACUUM aiops_log")  # as the server does by itself
    assert on_disk() < begin * 1.9
    assert retention.size() <= limit * MIB

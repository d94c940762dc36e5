"""The partitioned table of lines: closed, indexed, searched and dropped, with ids that stay unique and exact counts."""

from __future__ import annotations

import time

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.urls import reverse

from accounts import lifecycle as accounts
from aiops.intake import accept
from aiops.logstore import partitions, retention, searching
from aiops.logstore.database import DatabaseStore
from aiops.models import LogKey, LogLine, LogMinute, Workload
from mlp.tests import template

pytestmark = pytest.mark.django_db(transaction=True)

DAY_MS = partitions.DAY_MS
LOGS = "aiops/logs"
WORDS = {"query": {"query_string": {"query": "declined", "default_field": "log"}}}


@pytest.fixture
def store():
    """The store as it is at first: whatever an earlier test closed, filled or indexed."""
    _empty()
    yield DatabaseStore()
    _empty()


def _empty() -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE aiops_log")
    while len(partitions.listed()) > 2:
        partitions.replace_oldest()


def line(number: int, at_ms: int, text: str = "request {} served", **fields) -> dict:
    return accept.line(text.format(number), id=f"id{number}", at_ms=at_ms, namespace="shop", deployment="web", **fields)


def closed(store: DatabaseStore) -> None:
    """Close the newest partition, and index it."""
    assert partitions.keep(day_ms=-DAY_MS)
    store.upkeep()


def test_upkeep_is_due_for_a_partition_to_close_or_to_index(store, monkeypatch):
    now = int(time.time() * 1000)
    store.upkeep()
    assert not store.is_upkeep_due()
    store.append([line(1, now)])
    assert not store.is_upkeep_due()
    monkeypatch.setattr(partitions, "DAY_MS", -DAY_MS)
    assert store.is_upkeep_due()
    monkeypatch.undo()
    assert partitions.keep(day_ms=-DAY_MS)
    assert store.is_upkeep_due()
    store.upkeep()
    assert not store.is_upkeep_due()


def filled(store: DatabaseStore, days: int = 4, lines: int = 50) -> int:
    """Store lines in as many closed partitions, and as many in the newest; return the time of the first, in ms."""
    begin = max(int(time.time() * 1000), partitions.listed()[0].since) + 1000  # later than what other tests closed
    for day in range(days + 1):
        store.append([line(day * lines + number, begin + day * lines + number) for number in range(lines)])
        if day < days:
            closed(store)
    return begin


def minutes() -> dict[str, int]:
    rows = LogMinute.objects.values_list("unjudged", "normal", "anomalies")
    return dict(zip(("", "Normal", "Anomaly"), map(sum, zip(*rows, strict=True)), strict=True)) if rows else {}


class TestIds:
    def test_a_repeated_line_is_stored_once_also_in_another_partition_and_with_another_time(self, store):
        begin = filled(store, days=2)
        assert store.append([line(3, begin + 3), line(4, begin + 10_000), line(5, begin - 10 * DAY_MS)]) == []
        assert store.append([line(999, begin + 3), line(999, begin + 4)]) == ["id999"]
        assert LogLine.objects.count() == LogKey.objects.count() == 151

    def test_a_verdict_finds_its_line_in_every_partition(self, store):
        filled(store, days=2)
        ids = ["id1", "id60", "id120"]
        store.update_many([(id, {"anomaly_level": "Anomaly", "masked_log": "request"}) for id in ids])
        rows, _more = store.search({"query": {"term": {"anomaly_level": "Anomaly"}}}, 10)
        assert [row["_id"] for row in rows] == ids[::-1]
        assert [row["_id"] for row in store.search({"query": {"ids": {"values": ids}}}, 10)[0]] == ids[::-1]

    def test_lines_of_any_time_are_stored(self, store):
        now = int(time.time() * 1000)
        store.append([line(1, 0), line(2, 9_999_999_999_999), line(3, now - DAY_MS)])
        rows, _more = store.search({}, 10)
        assert [row["_id"] for row in rows] == ["id2", "id3", "id1"]
        assert now <= rows[0]["time"] <= time.time() * 1000
        assert rows[0]["attributes"]["sent_time"].startswith("2286-11-20T17:46:39.999")

    def test_a_line_may_come_with_its_verdict(self, store):
        verdict = {"anomaly_level": "Anomaly", "masked_log": "request <num>", "template_cluster_id": 3}
        store.append([{**line(1, int(time.time() * 1000)), **verdict}, line(2, int(time.time() * 1000))])
        rows = {row["_id"]: row for row in store.search({}, 10)[0]}
        assert {name: rows["id1"][name] for name in verdict} == verdict
        assert "anomaly_level" not in rows["id2"]
        assert minutes() == {"": 1, "Normal": 0, "Anomaly": 1}


class TestSearch:
    def test_pages_continue_across_partitions(self, store, monkeypatch):
        monkeypatch.setattr(searching, "LATEST", 10)
        filled(store)
        for query in ({}, {"query": {"query_string": {"query": "served", "default_field": "log"}}}):
            seen, after = [], None
            while True:
                rows, after = store.search(query, 70, after)
                seen += [int(row["_id"][2:]) for row in rows]
                if after is None:
                    break
            assert seen == list(range(250))[::-1]
            assert store.count(query) == 250

    def test_rare_words_are_found_in_old_and_new_partitions(self, store, monkeypatch):
        monkeypatch.setattr(searching, "LATEST", 10)
        begin = filled(store)
        store.append([line(n, begin + n - 1000, "order {} declined") for n in (1000, 1070, 1120, 1249)])
        rows, more = store.search(WORDS, 10)
        assert [row["_id"] for row in rows] == ["id1249", "id1120", "id1070", "id1000"]
        assert more is None
        assert store.search(WORDS, 2)[1] is not None
        assert store.count_up_to(WORDS, 10) == (4, True)
        assert store.count_up_to(WORDS, 3) == (3, False)

    def test_the_text_of_a_closed_partition_is_searched_by_its_index(self, store):
        filled(store, days=1, lines=2000)
        newest, old = partitions.listed()[:2]
        assert (newest.indexed, old.indexed) == (False, True)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off")  # of so few lines all are read sooner
            cursor.execute(f"EXPLAIN SELECT * FROM {old.name} WHERE log ~* '\\mdeclined\\M'")
            assert f"{old.name}_text" in "".join(row for (row,) in cursor.fetchall())

    def test_a_search_that_takes_too_long_ends_with_a_cursor(self, store, monkeypatch, staff, api, client):
        monkeypatch.setattr(searching, "LATEST", 10)
        begin = filled(store)
        store.append([line(n, begin + n - 1000, "order {} declined") for n in (1000, 1070, 1249)])
        monkeypatch.setattr(searching, "BUDGET_S", -1)
        monkeypatch.setattr(searching, "ALWAYS", 1)
        rows, more = store.search(WORDS, 10)
        assert [row["_id"] for row in rows] == ["id1249"]
        seen = rows
        while more is not None:
            rows, more = store.search(WORDS, 10, more)
            seen += rows
        assert [row["_id"] for row in seen] == ["id1249", "id1070", "id1000"]

        client.force_login(staff)
        page = client.get(reverse("aiops"), {"q": "declined"}).content.decode()
        assert "Searched back to" in page
        assert "Continue search" in page
        monkeypatch.setattr(searching, "BUDGET_S", 60)
        assert "Continue search" not in client.get(reverse("aiops"), {"q": "declined"}).content.decode()

    def test_rest_says_what_it_did_not_search_or_count(self, store, monkeypatch, staff, api):
        oscar = api(accounts.token_of(staff))
        monkeypatch.setattr(searching, "LATEST", 10)
        begin = filled(store)
        store.append([line(n, begin + n - 1000, "order {} declined") for n in (1000, 1070, 1249)])
        whole = oscar.call("get", f"{LOGS}?q=declined")
        assert (whole["X-Total-Count"], len(whole.json())) == ("3", 3)
        assert "X-Searched-Since" not in whole
        assert "X-Total-Count-At-Least" not in whole
        monkeypatch.setattr(searching, "BUDGET_S", -1)
        monkeypatch.setattr(searching, "ALWAYS", 1)
        part = oscar.call("get", f"{LOGS}?q=declined")
        assert (part["X-Total-Count"], part["X-Total-Count-At-Least"]) == ("1", "true")
        rest = oscar.call("get", f"{LOGS}?q=declined&until={part['X-Searched-Since']}")
        assert {row["_id"] for row in part.json()}.isdisjoint(row["_id"] for row in rest.json())


class TestCounts:
    def test_minutes_follow_lines_verdicts_and_removals(self, store):
        begin = filled(store, days=2)
        assert minutes() == {"": 150, "Normal": 0, "Anomaly": 0}
        levels = ["Normal", "Anomaly"]
        for _ in range(2):  # the same verdicts again change nothing
            store.update_many([(f"id{n}", {"anomaly_level": levels[n % 2]}) for n in range(100)])
        assert minutes() == {"": 50, "Normal": 50, "Anomaly": 50}
        store.update_many([("id1", {"anomaly_level": "Normal"}), ("id2", {"masked_log": "x"})])
        assert minutes() == {"": 50, "Normal": 51, "Anomaly": 49}
        assert store.count({}) == 150
        assert store.count({"query": {"term": {"anomaly_level": "Anomaly"}}}) == 49
        assert store.count({"query": {"range": {"time": {"gte": begin + 10, "lt": begin + 20}}}}) == 10
        store.forget(("local", "shop", "web"))
        assert not LogMinute.objects.exists()
        assert not LogKey.objects.exists()

    def test_bars_are_the_same_by_minute_and_by_line(self, store):
        begin = (int(time.time() * 1000) // 60_000 - 100) * 60_000
        store.append([line(n, begin + n * 7_000) for n in range(600)])
        store.update_many([(f"id{n}", {"anomaly_level": "Anomaly"}) for n in range(0, 600, 9)])
        by_minute = store.histogram({}, begin, 600_000, 7)
        some = {"query": {"query_string": {"query": "served", "default_field": "log"}}}
        assert by_minute == store.histogram(some, begin, 600_000, 7)
        assert sum(sum(bar.values()) for bar in by_minute) == 600
        odd = store.histogram({}, begin + 1, 600_000, 7)
        assert sum(sum(bar.values()) for bar in odd) == 599

    def test_many_matches_are_estimated_and_the_page_says_so(self, store, monkeypatch, staff, client):
        begin = (int(time.time() * 1000) // 3_600_000 - 3) * 3_600_000
        texts = ("order {} declined", "order {} paid")
        store.append([line(n, begin + n * 3_600, texts[n % 4 > 0]) for n in range(2000)])
        monkeypatch.setattr("aiops.logstore.database.FOUND", 100)
        monkeypatch.setattr("aiops.logstore.counting.EXACT", 0)
        bars = store.histogram(WORDS, begin, 3_600_000, 2)
        assert bars.estimated
        assert [bar[""] for bar in bars] == [pytest.approx(250, abs=10)] * 2
        client.force_login(staff)
        page = client.get(reverse("aiops"), {"q": "declined", "hours": "6"}).content.decode()
        assert "Estimated from a sample" in page
        assert "Estimated from a sample" not in client.get(reverse("aiops"), {"hours": "6"}).content.decode()


class TestRetention:
    def test_partitions_that_are_too_old_are_dropped_whole(self, store, monkeypatch):
        begin = filled(store, days=3)
        count = len(partitions.listed())
        monkeypatch.setattr(time, "time", lambda: begin / 1000 + 1 + 7 * DAY_MS / 1000)
        monkeypatch.setattr("aiops.logstore.retention.REMOVE", None)  # no line is deleted by itself
        monkeypatch.setattr("aiops.logstore.retention.MAX", 0)
        assert retention.remove(7, 10_000, most=0) == 150
        assert len(partitions.listed()) < count
        assert Workload.objects.get().lines == LogLine.objects.count() == LogKey.objects.count() == 50
        assert minutes()[""] == 50
        assert store.append([line(5000, begin - 3 * DAY_MS)]) == ["id5000"], "an old time still has its place"
        assert store.append([line(3, begin)]) == ["id3"], "an id is forgotten with its line"

    def test_by_size_old_partitions_go_whole_and_the_newest_line_by_line(self, store):
        filled(store, days=3, lines=400)
        assert store.retain(days=3650, megabytes=0) == 1600
        assert not LogKey.objects.exists()
        assert not Workload.objects.exists()

    def test_a_partition_that_is_being_read_is_removed_later(self, store, monkeypatch):
        filled(store, days=2)
        monkeypatch.setattr(partitions, "WAIT", "100ms")
        with psycopg.connect(**_parameters()) as other:
            other.execute("SELECT count(*) FROM aiops_log")  # in a transaction, as a backup
            count = len(partitions.listed())
            assert not partitions.keep(day_ms=-DAY_MS)
            store.retain(days=3650, megabytes=0)
            assert len(partitions.listed()) == count
        store.retain(days=3650, megabytes=0)
        assert len(partitions.listed()) < count


def _parameters() -> dict:
    known = ("dbname", "user", "password", "host", "port")
    return {name: value for name, value in connection.get_connection_params().items() if name in known}


class TestWithoutTheExtension:
    def test_lines_are_found_without_an_index(self, store, monkeypatch, caplog):
        monkeypatch.setattr(partitions, "has_trigrams", lambda: False)
        begin = filled(store, days=2)
        store.append([line(1000, begin, "order {} declined")])
        assert not any(partition.indexed for partition in partitions.listed() if partition.bytes)
        assert [row["_id"] for row in store.search(WORDS, 10)[0]] == ["id1000"]


@pytest.mark.long
def test_a_table_with_lines_becomes_the_first_partition():
    name, now = "mlp_older_lines", int(time.time() * 1000)
    with psycopg.connect(**_parameters(), autocommit=True) as server:
        server.execute(f"DROP DATABASE IF EXISTS {name}")
        server.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        try:
            with template.using(name):
                call_command("migrate", "aiops", "0001_squashed_0011", verbosity=0)
                with connection.cursor() as cursor:
                    cursor.execute(
                        "INSERT INTO aiops_log (line_id, time, cluster, namespace, deployment, service, pod, log_type,"
                        " log, masked, level, template, model) SELECT 'id' || n, CASE n WHEN 7 THEN 9999999999999"
                        " ELSE %s - n END, 'local', 'shop', 'web', '', '', 'workload', 'line ' || n, '',"
                        " CASE n %% 2 WHEN 0 THEN 'Anomaly' ELSE '' END, '', '' FROM generate_series(1, 100) AS n",
                        [now],
                    )
                call_command("migrate", verbosity=0)
                store = DatabaseStore()
                assert store.append([line(3, now), line(101, now + 5000)]) == ["id101"]
                assert store.count({}) == 101
                assert store.count({"query": {"term": {"anomaly_level": "Anomaly"}}}) == 50
                rows, _more = store.search({}, 3)
                newest = {row["_id"]: row for row in rows[:2]}  # in which order says how long the migration took
                assert newest.keys() == {"id101", "id7"}
                assert "2286" in newest["id7"]["attributes"]["sent_time"]
                assert LogLine.objects.latest("pk").line_id == "id101"
                store.update_many([("id3", {"anomaly_level": "Normal"})])
                assert [partition.name for partition in partitions.listed() if partition.bytes][-1] == "aiops_log_first"
                store.upkeep()
                assert partitions.listed()[-1].indexed
        finally:
            server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

"""One suite for every log store: the database, and OpenSearch with a peer that answers as it does (in memory)."""

from __future__ import annotations

import socket
import threading

import pytest

from aiops.logstore import opensearch, query, query_tree
from aiops.logstore.opensearch import OpenSearchStore
from aiops.training import training_data
from kernel.errors import Fault
from mlp.tests import servers
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db

NOW = 1_700_000_000_000


def line(number: int, **fields) -> dict:
    base = {
        "_id": f"id{number}", "time": NOW + number, "cluster_id": "c1", "namespace_name": "shop", "deployment": "web",
        "service": "", "pod_name": f"web-{number}", "log_type": "workload", "log": f"connected to 10.0.0.{number}",
    }  # fmt: skip
    return {**base, **fields}


def ids_matching(store, query: dict) -> set[str]:
    body = {"query": query}
    rows, more = store.search(body, 100)
    ids = {row["_id"] for row in rows}
    assert more is None
    assert {row["_id"] for row in store.scan(body)} == ids
    assert store.count(body) == len(ids)
    return ids


class TestLines:
    def test_the_lines_of_one_workload_are_forgotten(self, store):
        store.append([line(1), line(2), line(3, deployment="cart"), line(4, namespace_name="other")])
        assert store.forget(("c1", "shop", "web")) == 2
        assert ids_matching(store, {"match_all": {}}) == {"id3", "id4"}
        assert ("c1", "shop", "web") not in [names[:3] for names in store.aggregate_workloads()]
        assert store.forget(("c1", "shop", "web")) == 0

    def test_a_line_is_stored_once_and_read_back(self, store):
        assert sorted(store.append([line(1), line(2), line(1)])) == ["id1", "id2"]
        assert store.append([line(2), line(3)]) == ["id3"]
        assert store.append([line(3)]) == store.append([]) == []
        rows, _ = store.search({}, 10)
        assert [row["_id"] for row in rows] == ["id3", "id2", "id1"]
        assert {key: rows[2][key] for key in ("time", "log", "deployment")} == {
            "time": NOW + 1,
            "log": "connected to 10.0.0.1",
            "deployment": "web",
        }
        assert "anomaly_level" not in rows[0]

    def test_each_page_continues_after_the_last_one(self, store):
        store.append([line(number, time=NOW) for number in range(25)])
        seen, after = [], None
        while True:
            rows, after = store.search({}, 10, after)
            seen += [row["_id"] for row in rows]
            if after is None:
                break
        assert len(seen) == len(set(seen)) == 25

    def test_verdicts_can_be_written_repeatedly(self, store):
        store.append([line(1), line(2)])
        verdict = {
            "masked_log": "connected to <ip>", "anomaly_level": "Anomaly", "inference_model": "opnilog",
            "opnilog_confidence": 0.25, "template_matched": "connected to <*>", "template_cluster_id": 7,
            "unexpected": [[2, "<ip>"]],
        }  # fmt: skip
        for _ in range(2):
            store.update_many([("id1", verdict), ("unknown", verdict)])
        store.update_many([("id1", {"anomaly_level": "Normal"})])
        (row,) = store.search({"query": {"term": {"_id": "id1"}}}, 10)[0]
        assert {key: row[key] for key in verdict} == {**verdict, "anomaly_level": "Normal"}
        assert ids_matching(store, {"term": {"anomaly_level": "Normal"}}) == {"id1"}

    def test_a_verdict_for_another_users_line_with_the_same_id_changes_nothing(self, store):
        store.append([line(1), line(2), line(3, namespace_name="")])
        verdict = {"masked_log": "connected", "anomaly_level": "Normal"}
        owners = [("c1", "bank"), ("c2", "shop"), ("local", ""), ("c1", "shop"), ("c2", "bank")]
        store.update_many(
            [("id1", {**verdict, "cluster_id": cluster, "namespace_name": name}) for cluster, name in owners[:3]]
            + [("id2", {**verdict, "cluster_id": cluster, "namespace_name": name}) for cluster, name in owners]
            + [("id3", {**verdict, "cluster_id": "c1", "namespace_name": ""})]
        )
        assert ids_matching(store, {"term": {"anomaly_level": "Normal"}}) == {"id2", "id3"}

    def test_workloads_are_counted(self, store):
        store.append([line(1), line(2), line(3, deployment="db"), line(4, deployment=""), line(5, cluster_id="c2")])
        store.append([line(1)])
        assert store.aggregate_workloads() == [
            ("c1", "shop", "db", 1),
            ("c1", "shop", "web", 2),
            ("c2", "shop", "web", 1),
        ]

    def test_workloads_without_recent_lines(self, store):
        def at(name: str, *times: int) -> list[dict]:
            return [line(0, _id=f"{name}{time}", deployment=name, time=NOW + time) for time in times]

        store.append([*at("quiet", 10, 19), *at("speaks", 15, 25), *at("begins", 25), *at("long ago", 5), *at("", 15)])
        store.append([*at("ahead", 15, 99), *at("ahead and here", 15, 25, 99), *at("only ahead", 99)])
        store.append([line(0, _id="c2", cluster_id="c2", deployment="quiet", time=NOW + 12)])

        def quiet(*names: str) -> list[str]:
            asked = [*names, "", "", ""][:3]
            return ["/".join(names) for names in store.silent_workloads(tuple(asked), NOW + 10, NOW + 20, NOW + 30)]

        assert quiet() == ["c1/shop/ahead", "c1/shop/quiet", "c2/shop/quiet"]
        assert quiet("c2") == ["c2/shop/quiet"]
        assert quiet("", "shop", "ahead") == ["c1/shop/ahead"]
        assert quiet("", "other") == []

    def test_lines_are_counted_by_template_and_minute(self, store):
        minute = NOW // 60_000
        given = [(7, 0), (7, 0), (7, 1), (8, 1), (None, 1), (7, 2)]
        store.append(
            [
                line(
                    place,
                    time=(minute + later) * 60_000 + place,
                    **({"template_cluster_id": number, "masked_log": "x"} if number else {}),
                )
                for place, (number, later) in enumerate(given)
            ]
        )
        store.append([line(9, time=minute * 60_000, deployment="other", template_cluster_id=7)])
        counts = store.template_minutes(("c1", "shop", "web"), minute * 60_000, (minute + 2) * 60_000)
        expected = {(7, minute, 2), (7, minute + 1, 1), (8, minute + 1, 1), (None, minute + 1, 1)}
        assert set(counts) == expected

    def test_lines_with_a_text_are_classified_again(self, store):
        store.append([line(number) for number in range(6)])
        texts = ["disk <num> gone", "disk <num> gone away", "disk <num> gone", "***", "fine", "Disk <num> gone"]
        judged = [
            (f"id{number}", {"masked_log": text, "anomaly_level": "Anomaly"}) for number, text in enumerate(texts)
        ]
        store.update_many(judged[:2] + judged[3:])
        store.update_many([("id2", {"masked_log": texts[2]})])
        words = {"disk <num> gone": "Normal", "***": "Normal", "fine": "Anomaly"}
        assert store.rejudge(words) == 3
        assert ids_matching(store, {"term": {"anomaly_level": "Normal"}}) == {"id0", "id2", "id3"}
        assert store.rejudge(words) == store.rejudge({}) == 0

    def test_unstorable_characters_are_replaced(self, store):
        store.append([line(1, log="null \x00 half \ud800", pod_name="x" * 1000)])
        (row,) = store.search({}, 10)[0]
        assert row["log"].startswith("null ")

    def test_templates_are_written_whole(self, store):
        template = {
            "_id": "7",
            "template_matched": "connected to <*>",
            "log": "connected to x",
            "template_cluster_id": 7,
        }
        store.put_templates([template])
        store.put_templates([{**template, "template_matched": "<*> to <*>"}])


class TestCounts:
    """The data of the pages' charts: over time, by workload, by template; of the lines that a query matches."""

    WEB = {"query": {"term": {"deployment": "web"}}}

    @pytest.fixture
    def counted(self, store):
        store.append([
            line(0), line(9), line(10), line(25), line(29, deployment="db"), line(30), line(999, deployment="db"),
        ])  # fmt: skip
        levels = {"id9": "Normal", "id10": "Anomaly", "id25": "Anomaly", "id29": "Anomaly", "id999": "Normal"}
        numbers = {"id9": 7, "id10": 8, "id25": 8, "id29": 8, "id999": 9}
        store.update_many(
            [(id, {"anomaly_level": level, "template_cluster_id": numbers[id]}) for id, level in levels.items()]
        )
        return store

    def test_over_time_by_verdict(self, counted):
        spans = counted.histogram({}, NOW, 10, 3)
        assert spans == [{"": 1, "Normal": 1}, {"Anomaly": 1}, {"Anomaly": 2}]
        assert counted.histogram(self.WEB, NOW + 5, 20, 2) == [{"Normal": 1, "Anomaly": 1}, {"Anomaly": 1, "": 1}]

    def test_by_workload(self, counted):
        assert counted.by_workload({}, 10) == [("c1", "shop", "web", 5), ("c1", "shop", "db", 2)]
        assert counted.by_workload({}, 1) == [("c1", "shop", "web", 5)]
        odd = {"query": {"term": {"anomaly_level": "Anomaly"}}}
        assert counted.by_workload(odd, 10) == [("c1", "shop", "web", 2), ("c1", "shop", "db", 1)]

    def test_by_template(self, counted):
        first, *others = counted.templates({}, 10)
        newest = first.pop("newest")
        assert first == {
            "template_cluster_id": 8, "lines": 3, "anomalies": 3, "first": NOW + 10, "last": NOW + 29,
            "workloads": [("c1", "shop", "web"), ("c1", "shop", "db")],
        }  # fmt: skip
        assert (newest["_id"], newest["log"]) == ("id29", "connected to 10.0.0.29")
        assert [(row["template_cluster_id"], row["anomalies"]) for row in others] == [(7, 0), (9, 0)]
        (web, _other) = counted.templates(self.WEB, 10)
        assert (web["lines"], web["last"], web["newest"]["_id"]) == (2, NOW + 25, "id25")
        assert len(counted.templates({}, 1)) == 1

    def test_an_empty_store_has_no_counts(self, store):
        assert store.histogram({}, NOW, 10, 2) == [{}, {}]
        assert store.by_workload({}, 10) == store.templates({}, 10) == []


WORKLOAD = ["cluster_id", "namespace_name.keyword", "deployment.keyword"]
DB = {"term": {"deployment": "db"}}
QUERIES = [
    ({"match_all": {}}, {1, 2, 3, 4}),
    ({"term": {"namespace_name.keyword": "shop"}}, {1, 2, 4}),
    ({"term": {"namespace_name": {"value": "bank"}}}, {3}),
    ({"terms": {"deployment": ["web", "db"]}}, {1, 2, 3, 4}),
    ({"match": {"log": "REFUSED nothing"}}, {2, 3}),
    ({"match": {"anomaly_level": "Anomaly"}}, {4}),
    ({"match_phrase": {"log": "connection refused"}}, {2}),
    ({"range": {"time": {"gte": NOW + 2, "lt": NOW + 4}}}, {2, 3}),
    ({"exists": {"field": "anomaly_level"}}, {4}),
    ({"ids": {"values": ["id1", "none"]}}, {1}),
    ({"query_string": {"query": "error OR refused", "default_field": "log"}}, {2, 3}),
    ({"query_string": {"query": '"connection refused" OR timeout', "default_field": "log"}}, {2}),
    ({"query_string": {"query": "NOT refused AND connected", "default_field": "log"}}, {1, 4}),
    ({"query_string": {"query": "(refused connected) AND NOT deployment:db", "default_field": "log"}}, {1, 2, 4}),
    ({"query_string": {"query": 'namespace_name.keyword:"shop" AND deployment.keyword:"web"'}}, {1, 2, 4}),
    ({"query_string": {"query": "c1 AND bank AND db", "fields": WORKLOAD}}, {3}),
    ({"query_string": {"query": "errors", "default_field": "log"}}, set()),
    ({"bool": {"must_not": [{"match": {"anomaly_level": "Anomaly"}}]}}, {1, 2, 3}),
    ({"bool": {"should": [DB, {"match": {"log": "refused"}}], "minimum_should_match": 2}}, {3}),
    ({"bool": {"must": {"match_all": {}}, "should": [{"term": {"deployment": "db"}}]}}, {1, 2, 3, 4}),
    ({"bool": {"filter": [], "should": [], "must_not": []}}, {1, 2, 3, 4}),
]  # fmt: skip


@pytest.mark.parametrize(("query", "expected"), few(QUERIES, 21))
def test_a_query_returns_the_same_from_every_store(store, query, expected):
    store.append([
        line(1, log="connected to 10.0.0.1"),
        line(2, log="Connection refused: 10.0.0.2"),
        line(3, log="refused the connection", namespace_name="bank", deployment="db"),
        line(4, log="connected, error_code=7"),
    ])  # fmt: skip
    store.update_many([("id4", {"anomaly_level": "Anomaly"})])
    assert ids_matching(store, query) == {f"id{number}" for number in expected}


@pytest.mark.parametrize(("asked", "expected"), QUERIES)
def test_a_single_document_is_matched_as_in_the_stores(asked, expected):
    documents = [
        line(1, log="connected to 10.0.0.1"),
        line(2, log="Connection refused: 10.0.0.2"),
        line(3, log="refused the connection", namespace_name="bank", deployment="db"),
        line(4, log="connected, error_code=7", anomaly_level="Anomaly"),
    ]
    tree = query.parse({"query": asked})
    assert {document["_id"] for document in documents if query_tree.matches(tree, document)} == {
        f"id{number}" for number in expected
    }


@pytest.mark.parametrize(
    "query",
    few(
        [
            [],
            {"match_all": {}, "term": {}},
            {"fuzzy": {"log": "x"}},
            {"term": {"nothing": "x"}},
            {"term": {"log": "x", "time": 1}},
            {"bool": {"filtre": []}},
            {"range": {"log": {"gte": 1}}},
            {"range": {"time": {"above": 1}}},
            {"range": {"time": {"gte": "soon"}}},
            {"match": {"log": {"query": "a", "fuzziness": 1}}},
            {"query_string": {"query": "(open"}},
            {"query_string": {"query": "fuzzy~"}},
            {"query_string": {"query": "/wild.*/"}},
            {"query_string": {"query": "time:17*"}},
            {"query_string": {"query": ""}},
            {"query_string": {"query": "a", "boost": 2}},
        ],
        10,
    ),
)
def test_unknown_clauses_are_refused_and_not_ignored(store, query):
    with pytest.raises(ValueError):
        store.search({"query": query}, 10)


def test_the_training_query_excludes_errors_and_other_workloads(store):
    store.append([
        line(1), line(2, log="it failed: error"), line(3, deployment="db"), line(4, cluster_id="c2"), line(5),
        line(6, log="no highway is a load"), line(7, log="connection refused"), line(8, time=NOW - 10_000_000),
    ])  # fmt: skip
    store.update_many([("id5", {"anomaly_level": "Anomaly"})])
    body = training_data.query({"c1": {"shop": ["web"]}}, NOW - 1000, NOW + 1000)
    assert {row["_id"] for row in store.scan(body)} == {"id1", "id6"}
    assert store.count(body) == 2


def test_an_unavailable_store_is_a_fault():
    with pytest.raises(Fault):
        OpenSearchStore(f"http://127.0.0.1:{servers.free_port()}").count({})


def test_a_store_that_hangs_is_a_fault_and_is_then_not_asked(monkeypatch):
    """The limits of the client's own calls are far longer."""
    monkeypatch.setenv("MLP_PART", "web")
    monkeypatch.setattr(opensearch, "TIMEOUT_S", 86_400)
    monkeypatch.setattr(opensearch, "LIMIT_S", 86_400)
    calls = []
    with socket.create_server((servers.HOST, 0)) as silent:
        broken = threading.Timer(LIMIT_S, silent.shutdown, [socket.SHUT_RDWR])  # a broken run is refused then
        broken.start()
        store = OpenSearchStore(f"http://{servers.HOST}:{silent.getsockname()[1]}")
        ask = store.client.transport.perform_request
        monkeypatch.setattr(
            store.client.transport, "perform_request", lambda *args, **more: calls.append(args) or ask(*args, **more)
        )
        for _ in range(2):
            with pytest.raises(Fault):
                store.count({})
            assert store.server.hangs
        broken.cancel()
    assert len(calls) == 1

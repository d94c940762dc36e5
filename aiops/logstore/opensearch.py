"""The log store in OpenSearch, with Opni's index names, fields and mappings, so that Opni's dashboards read it.

The mapping divides texts by OpenSearch's standard analyser, for which a name with dots or an address is one word: what
is searched is left to the same analyser. Old lines are removed by query, once a minute.

Lines are written through the alias `logs`, which may name several indices; a verdict is written to the index of its
line. Templates are wrapped in `doc`, as Opni writes them.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from opensearchpy import OpenSearch, helpers
from opensearchpy.exceptions import OpenSearchException, RequestError

from kernel import liveness
from kernel.errors import Fault

from .base import MINUTE_MS, UNAVAILABLE, WORKLOADS_SHOWN, LogStore, Names, placed
from .opensearch_documents import OWNER, TEMPLATES, VERDICT, creation, document, is_theirs, template, template_write
from .opensearch_query import WITH_KEYWORD, translate

LOGS, FIRST = "logs", "logs-v0.5.4-000001"
CHUNK = 1000
THREADS = 16
TEMPLATES_COUNTED = 2000
TIMEOUT_S = 30  # of one attempt; there are three
LIMIT_S = 100.0
REMOVED_AT_ONCE = 200_000  # lines
REMOVING_S = 90  # of such a request
DAY_MS = 86_400_000
KEYWORD = {"type": "keyword"}
TEXT_AND_KEYWORD = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 1024}}}
MAPPING = {
    "time": {"type": "date"},
    "timestamp": {"type": "date"},
    "log": {"type": "text"},
    "masked_log": {"type": "text"},
    "template_matched": {"type": "text"},
    "log_type": KEYWORD,
    "kubernetes_component": KEYWORD,
    "cluster_id": KEYWORD,
    "anomaly_level": KEYWORD,
    "inference_model": KEYWORD,
    "line_id": KEYWORD,
    "template_cluster_id": {"type": "long"},
    "opnilog_confidence": {"type": "float"},
    "unexpected": {"type": "object", "enabled": False},
    "attributes": KEYWORD,  # name=value: each as a field of its own would make the mapping grow without end
    **dict.fromkeys(WITH_KEYWORD, TEXT_AND_KEYWORD),
}
TEMPLATE = {"log": {"type": "text"}, "template_matched": KEYWORD, "template_cluster_id": {"type": "integer"}}
TEMPLATE_MAPPING = {"doc": {"properties": TEMPLATE}}
LEVELS = {"terms": {"field": "anomaly_level"}}
WORKLOAD = [{"field": name} for name in ("cluster_id", "namespace_name.keyword", "deployment.keyword")]


# The client logs each of its calls, and our logs are stored lines too: each would cause the next.
for name in ("opensearch", "opensearchpy.trace"):
    logging.getLogger(name).setLevel(logging.WARNING)


def _available(method: Callable) -> Callable:
    """Decorate a call of the store: it raises Fault when the server is unavailable, and at once while it hangs."""

    def work(self, *args, **kwargs):
        self.prepare()
        return method(self, *args, **kwargs)

    @functools.wraps(method)
    def call(self, *args, **kwargs):
        if self.server.hangs:
            raise Fault(UNAVAILABLE)
        try:
            # In a thread, which the client's time limit ends: a slow search may take longer than a hang is waited for.
            return self.server.result(self.threads.submit(work, self, *args, **kwargs), LIMIT_S)
        except (OpenSearchException, TimeoutError) as problem:
            raise Fault(UNAVAILABLE) from problem

    return call


class OpenSearchStore(LogStore):
    def __init__(self, url: str = "", refresh: bool | str = False):
        url = url or settings.OPENSEARCH_URL
        if not url:
            raise ImproperlyConfigured("OPENSEARCH_URL: must be given with MLP_AIOPS_LOGSTORE=opensearch")
        self.client = OpenSearch(url, timeout=TIMEOUT_S, max_retries=2, retry_on_timeout=True)
        parts = urlsplit(url)
        address = parts.hostname, parts.port or (443 if parts.scheme == "https" else 9200)
        self.server = liveness.Server("opensearch", lambda: address, b"HEAD / HTTP/1.0\r\n\r\n")
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="opensearch")
        self.refresh = refresh
        self.thread = threading.local()  # what it has `created`, within all_or_nothing
        self.prepared = False

    def prepare(self) -> None:
        """Create the missing indices; existing ones stay as they are."""
        if self.prepared:
            return
        if not self.client.indices.exists_alias(name=LOGS) and not self.client.indices.exists(index=LOGS):
            body = {"mappings": {"properties": MAPPING}, "aliases": {LOGS: {"is_write_index": True}}}
            self._create_index(FIRST, body)
        else:  # made by an older release, or by Opni
            self.client.indices.put_mapping(index=LOGS, body={"properties": {"attributes": KEYWORD}})
        if not self.client.indices.exists(index=TEMPLATES):
            self._create_index(TEMPLATES, {"mappings": {"properties": TEMPLATE_MAPPING}})
        self.prepared = True

    def _create_index(self, name: str, body: dict) -> None:
        try:
            self.client.indices.create(index=name, body=body)
        except RequestError as problem:
            if problem.error != "resource_already_exists_exception":
                raise

    def append(self, lines: Sequence[dict]) -> list[str]:
        created: list[str] = getattr(self.thread, "created", [])
        before = len(created)
        self._append(lines, created)
        return created[before:]

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Remove what was stored when it fails, unless the server is lost, too: there are no transactions here."""
        self.thread.created = created = []
        try:
            yield
        except BaseException:
            with suppress(Fault):
                self._take_back(created)
            raise
        finally:
            del self.thread.created

    @_available
    def _append(self, lines: Sequence[dict], created: list[str]) -> None:
        now = int(time.time() * 1000)
        actions = (creation(LOGS, placed(line, now)) for line in {str(line["_id"]): line for line in lines}.values())
        results = helpers.streaming_bulk(
            self.client, actions, chunk_size=CHUNK, raise_on_error=False, refresh=self.refresh
        )
        for good, result in results:
            status = result["create"].get("status")
            if not good and status != 409:  # 409: stored before
                raise Fault(UNAVAILABLE)
            if good:
                created.append(result["create"]["_id"])

    @_available
    def _take_back(self, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), CHUNK):
            body = {"query": {"ids": {"values": ids[start : start + CHUNK]}}}
            self.client.delete_by_query(index=LOGS, body=body, conflicts="proceed", refresh=True)

    @_available
    def update_many(self, changes: Sequence[tuple[str, dict]]) -> None:
        for start in range(0, len(changes), CHUNK):
            chunk = changes[start : start + CHUNK]
            ids = sorted({id for id, _change in chunk})
            body = {"query": {"ids": {"values": ids}}, "_source": list(OWNER), "size": len(ids)}
            hits = {hit["_id"]: hit for hit in self.client.search(index=LOGS, body=body)["hits"]["hits"]}
            meant = {id: change for id, change in chunk if id in hits and is_theirs(hits[id]["_source"], change)}
            actions = [
                {
                    "_op_type": "update",
                    "_index": hits[id]["_index"],
                    "_id": id,
                    "doc": {name: value for name, value in change.items() if name in VERDICT},
                }
                for id, change in meant.items()
            ]
            _made, errors = helpers.bulk(self.client, actions, raise_on_error=False, refresh=self.refresh)
            if errors:
                raise Fault(UNAVAILABLE)

    @_available
    def search(self, body: dict, size: int, after=None) -> tuple[list[dict], object]:
        asked = {"query": translate(body), "size": size, "sort": [{"time": "desc"}, {"line_id": "desc"}]}
        if after is not None:
            asked["search_after"] = list(after)
        hits = self.client.search(index=LOGS, body=asked)["hits"]["hits"]
        return [document(hit) for hit in hits], tuple(hits[-1]["sort"]) if len(hits) == size else None

    @_available
    def scan(self, body: dict) -> Iterator[dict]:
        query = {"query": translate(body)}
        return map(document, helpers.scan(self.client, query=query, index=LOGS, size=CHUNK, scroll="5m"))

    @_available
    def count(self, body: dict) -> int:
        return self.client.count(index=LOGS, body={"query": translate(body)})["count"]

    @_available
    def count_up_to(self, body: dict, most: int) -> tuple[int, bool]:
        asked = {"query": translate(body), "size": 0, "track_total_hits": most}
        total = self.client.search(index=LOGS, body=asked)["hits"]["total"]
        return total["value"], total["relation"] == "eq"

    @_available
    def aggregate_workloads(self) -> list[tuple[str, str, str, int]]:
        wanted = {"bool": {"must": [{"match": {"log_type": "workload"}}]}}
        return sorted((*names, bucket["doc_count"]) for names, bucket in self._by_workload(wanted, {}))

    @_available
    def silent_workloads(self, names: Names, begin_ms: int, since_ms: int, until_ms: int) -> list[Names]:
        within = [{"range": {"time": {"gte": begin_ms, "lt": until_ms}}}]
        within += [{"term": {term["field"]: name}} for term, name in zip(WORKLOAD, names, strict=True) if name]
        workloads = self._by_workload({"bool": {"filter": within}}, {"newest": {"max": {"field": "time"}}})
        return sorted(names for names, bucket in workloads if bucket["newest"]["value"] < since_ms)

    def _by_workload(self, wanted: dict, within: dict) -> Iterator[tuple[Names, dict]]:
        """Run Opni's own aggregation, composite over cluster, namespace and deployment, page by page."""
        sources = [
            {"cluster_id": {"terms": {"field": "cluster_id"}}},
            {"namespace_name": {"terms": {"field": "namespace_name.keyword"}}},
            {"deployment_name": {"terms": {"field": "deployment.keyword"}}},
        ]
        composite: dict = {"size": 1000, "sources": sources}
        while True:
            aggregation = {"composite": composite, **({"aggs": within} if within else {})}
            body = {"size": 0, "query": wanted, "aggs": {"bucket": aggregation}}
            answer = self.client.search(index=LOGS, body=body)["aggregations"]["bucket"]
            for bucket in answer["buckets"]:
                names = tuple(bucket["key"][next(iter(source))] for source in sources)
                if all(names):
                    yield names, bucket
            if "after_key" not in answer or not answer["buckets"]:
                return
            composite["after"] = answer["after_key"]

    @_available
    def histogram(self, body: dict, begin_ms: int, width_ms: int, count: int) -> list[dict[str, int]]:
        within = {"range": {"time": {"gte": begin_ms, "lt": begin_ms + width_ms * count}}}
        query = {"bool": {"filter": [translate(body), within]}}
        spans = {"field": "time", "fixed_interval": f"{width_ms}ms", "offset": f"{begin_ms % width_ms}ms"}
        bars: list[dict[str, int]] = [{} for _ in range(count)]
        for bucket in self._buckets(
            query, {"date_histogram": {**spans, "min_doc_count": 1}, "aggs": {"level": LEVELS}}
        ):
            levels = {level["key"]: level["doc_count"] for level in bucket["level"]["buckets"]}
            bars[(int(bucket["key"]) - begin_ms) // width_ms] = levels
        return bars

    @_available
    def by_workload(self, body: dict, size: int) -> list[tuple[str, str, str, int]]:
        asked = {"multi_terms": {"terms": WORKLOAD, "size": size}}
        return [(*bucket["key"], bucket["doc_count"]) for bucket in self._buckets(translate(body), asked)]

    @_available
    def templates(self, body: dict, size: int) -> list[dict]:
        within = {
            "first": {"min": {"field": "time"}},
            "last": {"max": {"field": "time"}},
            "level": LEVELS,
            "newest": {"top_hits": {"size": 1, "sort": [{"time": "desc"}, {"line_id": "desc"}]}},
            "workloads": {"multi_terms": {"terms": WORKLOAD, "size": WORKLOADS_SHOWN}},
        }
        asked = {"terms": {"field": "template_cluster_id", "size": size}, "aggs": within}
        return [template(bucket) for bucket in self._buckets(translate(body), asked)]

    @_available
    def template_minutes(self, names: Names, since_ms: int, until_ms: int) -> list[tuple[int | None, int, int]]:
        """Return those of the TEMPLATES_COUNTED most frequent templates only."""
        wanted = [{"term": {term["field"]: name}} for term, name in zip(WORKLOAD, names, strict=True)]
        wanted += [{"range": {"time": {"gte": since_ms, "lt": until_ms}}}, {"term": {"log_type": "workload"}}]
        minutes = {"date_histogram": {"field": "time", "fixed_interval": "1m", "min_doc_count": 1}}
        asked = {
            "terms": {"field": "template_cluster_id", "size": TEMPLATES_COUNTED}, "aggs": {"minute": minutes}
        }  # fmt: skip
        counts = [
            (bucket["key"], int(minute["key"]) // MINUTE_MS, minute["doc_count"])
            for bucket in self._buckets({"bool": {"filter": wanted}}, asked)
            for minute in bucket["minute"]["buckets"]
        ]
        without = {"bool": {"filter": wanted, "must_not": [{"exists": {"field": "template_cluster_id"}}]}}
        counts += [
            (None, int(bucket["key"]) // MINUTE_MS, bucket["doc_count"]) for bucket in self._buckets(without, minutes)
        ]
        return counts

    def _buckets(self, query: dict, aggregation: dict) -> list[dict]:
        body = {"size": 0, "query": query, "aggs": {"result": aggregation}}
        return self.client.search(index=LOGS, body=body)["aggregations"]["result"]["buckets"]

    @_available
    def forget(self, names: Names) -> int:
        wanted = [{"term": {term["field"]: name}} for term, name in zip(WORKLOAD, names, strict=True)]
        body = {"query": {"bool": {"filter": wanted}}}
        answer = self.client.delete_by_query(index=LOGS, body=body, conflicts="proceed", refresh=True)
        return answer["deleted"]

    @_available
    def retain(self, days: int, megabytes: int) -> int:
        """Remove lines older than the days, and the oldest above the size limit; return how many lines."""
        removed = self._remove(int(time.time() * 1000) - days * DAY_MS)
        whole = self.client.indices.stats(index=LOGS, metric="store,docs")["_all"]["primaries"]
        lines, gone = whole["docs"]["count"], whole["docs"]["deleted"]  # whose bytes are freed later
        size = whole["store"]["size_in_bytes"] * lines / ((lines + gone) or 1)
        if lines and size > megabytes << 20:
            excess = lines - int(lines * (megabytes << 20) / size)
            removed += self._remove(self._oldest(excess, lines))
        return removed

    def _oldest(self, excess: int, lines: int) -> int:
        """Return the time (ms) that about `excess` of the lines are older than."""
        asked = {"percentiles": {"field": "time", "percents": [min(100.0, 100 * excess / lines)]}}
        body = {"size": 0, "aggs": {"result": asked}}
        (hit,) = (
            value
            for name, value in self.client.search(index=LOGS, body=body)["aggregations"]["result"]["values"].items()
            if not name.endswith("_as_string")
        )
        return int(hit) + 1

    def _remove(self, before_ms: int) -> int:
        """Remove lines with an earlier time, as many as one request may take; the next one goes on."""
        answer = self.client.delete_by_query(
            index=LOGS,
            body={"query": {"range": {"time": {"lt": before_ms}}}},
            conflicts="proceed",
            refresh=True,
            max_docs=REMOVED_AT_ONCE,
            request_timeout=REMOVING_S,
        )
        return answer["deleted"]

    @_available
    def put_templates(self, templates: Sequence[dict]) -> None:
        actions = [template_write(template) for template in templates]
        _made, errors = helpers.bulk(self.client, actions, raise_on_error=False, refresh=self.refresh)
        if errors:
            raise Fault(UNAVAILABLE)

    @_available
    def forget_templates(self, model: int) -> None:
        body = {"query": {"term": {"doc.model": model}}}
        self.client.delete_by_query(index=TEMPLATES, body=body, conflicts="proceed", refresh=True)

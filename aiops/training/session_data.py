"""The lines from which a training learns the sessions of each workload: all of them, because a session is whole, with a
mark at those that name a problem.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from aiops import logstore
from aiops.judging import own_models
from aiops.logstore.base import Names
from aiops.wire.subjects import ANOMALY
from aiops.wire.watchlist import triples
from opnilog.learned_sessions import MAX_LINES
from opnilog.masking import MAX_CHARACTERS, mask

from .training_data import KEYWORDS, drafted

FIELDS = ("cluster_id", "namespace_name.keyword", "deployment.keyword")
MOST = 1_000_000  # lines of all workloads


def write(
    path: Path,
    workloads: dict,
    window: Mapping,
    most: int,
    labels: Mapping[str, str],
    beating: Callable[[Iterable[dict]], Iterator[dict]],
    model: int = own_models.PLATFORM,
) -> None:
    """Write the lines of the workloads in the window (`gte` and `lte`, ms) as JSON lines, atomically, those of a
    workload one after the other; at most `most`, of each the newest MAX_LINES. `beating` passes them on. Anomalies are
    those of `model`. Raises Fault.
    """
    left = min(MOST, most)
    with drafted(path) as file:
        for names in sorted(triples(workloads)):
            if left <= 0:
                break
            for row, _ in zip(
                _rows(names, window, labels, beating, model), range(min(left, 2 * MAX_LINES)), strict=False
            ):
                file.write(json.dumps(row) + "\n")
                left -= 1


def _rows(names: Names, window: Mapping, labels: Mapping[str, str], beating, model: int) -> Iterator[dict]:
    store = logstore.get()
    begin, end = int(window["gte"]), int(window["lte"])
    lines = store.count(_query(names, begin, end))
    if lines > MAX_LINES:
        begin = end - (end - begin) * MAX_LINES // lines
    for document in beating(store.scan(_query(names, begin, end))):
        log = document.get("log", "")[:MAX_CHARACTERS]
        if not log or not document.get("time"):
            continue
        row = {"workload": "/".join(names), "time": document["time"], "log": log}
        masked = document.get("masked_log") or mask(log)
        row["masked_log"] = masked
        if document.get("attributes"):
            row["attributes"] = document["attributes"]
        if label := labels.get(masked):
            row["label"] = label
        elif _is_anomaly(document, model) or any(word in log.lower() for word in KEYWORDS):
            row["problem"] = True
        yield row


def _is_anomaly(document: Mapping, model: int) -> bool:
    return document.get("anomaly_level") == ANOMALY and own_models.read(document)[1] == model


def _query(names: Names, begin: int, end: int) -> dict:
    filters: list[dict] = [{"term": {field: name}} for field, name in zip(FIELDS, names, strict=True)]
    return {"query": {"bool": {"filter": [*filters, {"range": {"time": {"gte": begin, "lte": end}}}]}}}

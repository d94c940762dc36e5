"""The training data: the OpenSearch query of the `train` message, and the file of lines made from its result.

The receiver uses the query as it is; only the range at `bool.filter[0]` is ever read.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from aiops.judging import own_models
from aiops.wire.subjects import ANOMALY, DRAIN, NULOG_TRAIN, OPNILOG
from aiops.wire.watchlist import triples
from opnilog.masking import mask

KEYWORDS = (
    "error", "fail", "fatal", "exception", "timeout", "unavailable", "crash", "connection refused", "network error",
    "deadlock", "out of disk", "high load",
)  # fmt: skip
LINE_BYTES = 300  # of each stored line, to estimate how many fit on the disk
DISK_SHARE = 0.8
DRAFT = ".part"  # the end of the names of files that are not complete
KEPT = ("log", "masked_log", "label")


def query(workloads: dict, begin_ms: int, end_ms: int, model: int = own_models.PLATFORM) -> dict:
    """Return the query for the workloads' lines in the window, without known anomalies and lines that name problems.
    What another model took for an anomaly is none for a tenant's own.

    It differs from the original's query where that is wrong: phrases are quoted, OR is an operator, the level's field
    is a keyword already, and every name is searched in its own field only.
    """
    anomalies: dict = {"match": {"anomaly_level": ANOMALY}}
    if model != own_models.PLATFORM:
        by = [own_models.stored(name, model) for name in (DRAIN, OPNILOG)]
        anomalies = {"bool": {"filter": [{"term": {"anomaly_level": ANOMALY}}, {"terms": {"inference_model": by}}]}}
    return {
        "query": {
            "bool": {
                "filter": [{"range": {"time": {"gte": begin_ms, "lte": end_ms}}}],
                "minimum_should_match": 1,
                "should": [{"query_string": {"query": _workload(*names)}} for names in sorted(triples(workloads))],
                "must_not": [
                    anomalies,
                    {"query_string": {"query": " OR ".join(map(_phrase, KEYWORDS)), "default_field": "log"}},
                ],
            }
        }
    }


def order(
    uuid: str,
    workloads: dict,
    *,
    window_s: int,
    now_s: float,
    count: int,
    folder: Path,
    model: int = own_models.PLATFORM,
) -> dict:
    """Return the body of `train`."""
    end_ms = int(now_s * 1000)
    return {
        "max_size": most_lines(folder),
        "count": count,
        "parameters": {"uuid": uuid, "workloads": workloads},
        "query": query(workloads, end_ms - window_s * 1000, end_ms, model),
    }


def internal(payload: dict) -> dict:
    """Return the body of `gpu_service_training_internal`."""
    return {"source": "drain", "model": NULOG_TRAIN, "payload": payload}


def check(payload) -> dict:
    """Return the body of `train` if it is valid. `count` and `parameters` may be missing (G1). Raises ValueError."""
    if not isinstance(payload, dict):
        raise ValueError("train: must be an object")
    try:
        window = payload["query"]["query"]["bool"]["filter"][0]["range"]["time"]
        int(window["gte"]), int(window["lte"])
    except (KeyError, IndexError, TypeError, ValueError):
        raise ValueError("train: query.query.bool.filter[0].range.time must have gte and lte")
    for name in ("max_size", "count"):
        if not isinstance(payload.get(name, 0), int):
            raise ValueError(f"train: {name} must be a whole number")
    return payload


def most_lines(folder: Path) -> int:
    """Return how many lines fit on the disk below the folder."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return int(DISK_SHARE * shutil.disk_usage(there).free / LINE_BYTES)


def write(
    documents: Iterable[dict],
    path: Path,
    most: int,
    labels: Mapping[str, str] | None = None,
    examples: Iterable[dict] = (),
) -> int:
    """Write the documents as JSON lines, at most so many, atomically; return how many.

    `labels` are users' feedback on masked texts, "normal" or "anomaly"; `examples` are lines with feedback, added where
    there is any document.
    """
    count = 0
    with drafted(path) as file:
        for document in documents:
            if count >= most:
                break
            line = {name: document[name] for name in KEPT if document.get(name)}
            if not line.get("log"):
                continue
            label = labels.get(line.get("masked_log") or mask(line["log"])) if labels else None
            if label:
                line["label"] = label
            names = [str(document.get(name) or "") for name in ("cluster_id", "namespace_name", "deployment")]
            file.write(json.dumps({**line, "workload": "/".join(names)}, ensure_ascii=False) + "\n")
            count += 1
        for example in examples if count else ():
            file.write(json.dumps(example, ensure_ascii=False) + "\n")
    return count


@contextmanager
def drafted(path: Path) -> Iterator[TextIO]:
    """Yield a file that gets the path's name once it is complete; where writing fails, nothing is left. Makes the
    folder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}{DRAFT}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _workload(cluster: str, namespace: str, deployment: str) -> str:
    fields = {"cluster_id": cluster, "namespace_name.keyword": namespace, "deployment.keyword": deployment}
    return " AND ".join(f"{name}:{_quoted(value)}" for name, value in fields.items())


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _phrase(words: str) -> str:
    return _quoted(words) if " " in words else words

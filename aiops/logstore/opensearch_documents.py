"""How lines and templates look in OpenSearch: the documents that are written, and what is read from them."""

from __future__ import annotations

from .base import OWN_TEMPLATES, clean

TEMPLATES = "templates"
LARGEST = 2**31 - 1  # of a number that Opni's mapping of templates takes
OWNER = ("cluster_id", "namespace_name")
OWN = ("time", "cluster_id", "namespace_name", "deployment", "service", "pod_name", "log_type", "log", "attributes")
VERDICT = (
    "masked_log", "anomaly_level", "template_matched", "template_cluster_id", "inference_model", "opnilog_confidence",
    "unexpected",
)  # fmt: skip


def creation(index: str, line: dict) -> dict:
    """Return the line as an action of a bulk request, which fails with 409 if its id is stored."""
    own = {name: _own(name, line[name]) for name in OWN if line.get(name) is not None}
    verdict = {name: line[name] for name in VERDICT if line.get(name) is not None}
    kind = line.get("log_type") or "workload"
    source = {**own, "line_id": str(line["_id"]), "log_type": kind, "anomaly_level": "", **verdict}
    return {"_op_type": "create", "_index": index, "_id": str(line["_id"]), "_source": source}


def template(bucket: dict) -> dict:
    """Return what a bucket of an aggregation says of a template, as LogStore.templates does."""
    levels = {level["key"]: level["doc_count"] for level in bucket["level"]["buckets"]}
    return {
        "template_cluster_id": bucket["key"],
        "lines": bucket["doc_count"],
        "anomalies": levels.get("Anomaly", 0),
        "first": int(bucket["first"]["value"]),
        "last": int(bucket["last"]["value"]),
        "newest": document(bucket["newest"]["hits"]["hits"][0]),
        "workloads": [tuple(workload["key"]) for workload in bucket["workloads"]["buckets"]],
    }


def template_write(template: dict) -> dict:
    """Return the template as an action of a bulk request.

    That of a tenant's own model names the model. Its own number, which the id has, may be too large for the mapping.
    """
    number = template.get("template_cluster_id") or 0
    own = {name: template[name] for name in ("log", "template_matched") if name in template}
    if number <= LARGEST:
        own["template_cluster_id"] = number
    if number >= OWN_TEMPLATES:
        own["model"] = number // OWN_TEMPLATES
    return {"_op_type": "index", "_index": TEMPLATES, "_id": str(template["_id"]), "_source": {"doc": own}}


def is_theirs(source: dict, change: dict) -> bool:
    """Return whether the change is for a line of the stored one's owner."""
    return "cluster_id" not in change or all((source.get(name) or "") == (change.get(name) or "") for name in OWNER)


def _own(name: str, value):
    if name == "attributes":
        return [f"{key}={text}" for key, text in value.items()]
    return int(value) if name == "time" else clean(value)


def document(hit: dict) -> dict:
    """Return the line of a hit, as LogStore.search does."""
    source = {name: value for name, value in hit["_source"].items() if name != "line_id"}
    if not source.get("anomaly_level"):
        source.pop("anomaly_level", None)
    if isinstance(source.get("attributes"), list):
        source["attributes"] = dict(text.split("=", 1) for text in source["attributes"])
    return {"_id": hit["_id"], **source}

"""The values of AIOps in NATS's key-value store, typed. Used by the services, the REST calls and reconcile.

Every call may raise bus.Fault. The buckets and keys are described in subjects.py.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from kernel import keyvalue

from . import status, watchlist
from .subjects import (
    AGGREGATION,
    AGGREGATION_BUCKET,
    BUCKETS,
    LAST_TRAINED,
    OWN_BUCKET,
    OWN_DECISION,
    OWN_DETAIL,
    OWN_EXCHANGE,
    OWN_RETRAIN,
    OWN_UNJUDGED,
    OWN_WATCHLIST,
    PARAMETERS,
    PARAMETERS_BUCKET,
    STATISTICS_BUCKET,
    STATUS,
)


@dataclass(frozen=True)
class Parameters:
    """The last requested watchlist; `uuid` is the request's."""

    uuid: str
    workloads: dict


def ensure() -> None:
    keyvalue.ensure(BUCKETS)


def parameters() -> Parameters | None:
    """Return the last requested watchlist; None when there is none. Raises ValueError for an invalid value."""
    value, revision = keyvalue.get_json(PARAMETERS_BUCKET, PARAMETERS)
    if not revision:
        return None
    if not isinstance(value, dict):
        raise ValueError(f"{PARAMETERS}: no watchlist")
    return Parameters(str(value.get("uuid") or ""), watchlist.check(value.get("workloads") or {}))


def put_parameters(uuid: str, workloads: dict) -> None:
    """Store a request. An empty watchlist is left out, as Go leaves it out."""
    keyvalue.put_json(PARAMETERS_BUCKET, PARAMETERS, {"uuid": uuid, **({"workloads": workloads} if workloads else {})})


def last_trained() -> Parameters:
    """Return what the serving model was trained on; empty when there is none."""
    value, _ = keyvalue.get_json(PARAMETERS_BUCKET, LAST_TRAINED)
    payload = value.get("payload") if isinstance(value, dict) else None
    asked = payload.get("parameters") if isinstance(payload, dict) else None
    if not isinstance(asked, dict):
        return Parameters("", {})
    return Parameters(str(asked.get("uuid") or ""), watchlist.check(asked.get("workloads") or {}))


def put_last_trained(order: dict) -> None:
    keyvalue.put_json(PARAMETERS_BUCKET, LAST_TRAINED, order)


def model_status() -> dict | None:
    """Return the status with its statistics (status.read); None when there is none or it cannot be read."""
    value, revision = keyvalue.get_json(STATISTICS_BUCKET, STATUS)
    if not revision:
        return None
    try:
        return status.read(value)
    except ValueError:
        return None


def put_model_status(value: dict) -> None:
    keyvalue.put_json(STATISTICS_BUCKET, STATUS, status.stored(value))


def detail() -> dict:
    """Return our own details of the status: uuid, reason, loss, epochs, device, at."""
    value, _ = keyvalue.get_json(OWN_BUCKET, OWN_DETAIL)
    return value if isinstance(value, dict) else {}


def put_detail(**fields) -> None:
    keyvalue.put_json(OWN_BUCKET, OWN_DETAIL, {**fields, "at": int(time.time())})


def decision() -> dict:
    value, _ = keyvalue.get_json(OWN_BUCKET, OWN_DECISION)
    return value if isinstance(value, dict) else {}


def is_retrain(uuid: str) -> bool:
    """Return whether that request wants a training even if no workload was added."""
    value, _ = keyvalue.get_json(OWN_BUCKET, OWN_RETRAIN)
    return bool(uuid) and value == uuid


def put_retrain(uuid: str) -> None:
    keyvalue.put_json(OWN_BUCKET, OWN_RETRAIN, uuid)


def watched() -> dict | None:
    """Return the watchlist in force: the last published by the training controller, else the last requested."""
    value, revision = keyvalue.get_json(OWN_BUCKET, OWN_WATCHLIST)
    if revision and isinstance(value, dict):
        return watchlist.check(value.get("workloads") or {})
    asked = parameters()
    return asked.workloads if asked else None


def put_watched(workloads: dict) -> None:
    keyvalue.put_json(OWN_BUCKET, OWN_WATCHLIST, {"workloads": workloads})


def exchange() -> dict:
    """Return {"version", "tags": {object: tag}, "announced"}: what the bucket of models holds of ours."""
    value, _ = keyvalue.get_json(OWN_BUCKET, OWN_EXCHANGE)
    return value if isinstance(value, dict) else {}


def change_exchange(**fields) -> None:
    keyvalue.change(OWN_BUCKET, OWN_EXCHANGE, lambda old: {**(old if isinstance(old, dict) else {}), **fields})


def unjudged() -> dict:
    """Return {"lines", "since"} of the lines that nobody can judge; empty when there are none."""
    value, _ = keyvalue.get_json(OWN_BUCKET, OWN_UNJUDGED)
    return value if isinstance(value, dict) else {}


def put_unjudged(value: dict) -> None:
    keyvalue.put_json(OWN_BUCKET, OWN_UNJUDGED, value)


def aggregation() -> dict | None:
    """Return {cluster: {namespace: {deployment: count}}}; None when it was never written."""
    value, revision = keyvalue.get_json(AGGREGATION_BUCKET, AGGREGATION)
    if not revision or not isinstance(value, dict):
        return None
    counts: dict = {}
    for cluster, by_cluster in (value.get("ByCluster") or {}).items():
        for namespace, by_namespace in (by_cluster.get("ByNamespace") or {}).items():
            for name, entry in (by_namespace.get("ByDeployment") or {}).items():
                counts.setdefault(cluster, {}).setdefault(namespace, {})[name] = int(entry.get("doc_count") or 0)
    return counts


def put_aggregation(counts: dict) -> None:
    """Store `counts`, as `aggregation` returns them, with the names that Go gives its fields."""
    keyvalue.put_json(
        AGGREGATION_BUCKET,
        AGGREGATION,
        {
            "ByCluster": {
                cluster: {
                    "ByNamespace": {
                        namespace: {
                            "ByDeployment": {
                                name: {"deployment_name": name, "doc_count": count}
                                for name, count in deployments.items()
                            }
                        }
                        for namespace, deployments in namespaces.items()
                    }
                }
                for cluster, namespaces in counts.items()
            }
        },
    )

"""Requests of the AIOps gateway: ask for a training, store its status. Called by REST, the pages, the services,
reconcile.

The order is Opni's: the watchlist's key, the status's key, then the request `train_model`. When nobody answers, the
keys are restored, so that nothing starts later that the caller was answered had failed.
"""

from __future__ import annotations

import logging
import time
import uuid as uuids

from aiops import lifecycle
from aiops.wire import kv, lease, status, subjects, watchlist
from kernel import bus, keyvalue
from kernel.errors import Fault, Refused
from kernel.messages import Message, message_of, restored

log = logging.getLogger(__name__)

OPNI = "opni"  # `kind` in the manifest of a model that another service has trained
REPLY_WITHIN_S = 8.0  # for all tries, while a REST caller waits
TRY_S = 3.0
PAUSE_S, GROWTH, MAX_PAUSE_S = 0.3, 1.2, 5.0
UNANSWERED = Message("the training controller does not answer; try again later")


def request_training(workloads: dict, retrain: bool = False) -> str:
    """Ask for exactly these workloads to be watched; {} clears the watchlist. Return the controller's reply.

    It trains when a workload was added; with `retrain` also when none was (newer lines, feedback). Raises Refused for
    illegal names, Fault when NATS is unavailable or no training controller answers.
    """
    try:
        workloads = watchlist.check(workloads)
    except ValueError as problem:
        raise Refused(message_of(problem)) from problem
    before = kv.parameters(), kv.model_status()
    uuid = str(uuids.uuid4())
    if retrain:
        kv.put_retrain(uuid)
    kv.put_parameters(uuid, workloads)
    if workloads:
        set_status(subjects.TRAINING, uuid=uuid, stage=subjects.FETCHING)
    else:
        set_status(subjects.NO_MODEL)
    asked = {"uuid": uuid, **({"workloads": workloads} if workloads else {})}
    try:
        return _ask(keyvalue.dump(asked)).decode(errors="replace")
    except Fault:
        _put_back(uuid, *before)
        raise Fault(UNANSWERED)


def _ask(body: bytes) -> bytes:
    end, pause = time.monotonic() + REPLY_WITHIN_S, PAUSE_S
    while True:
        try:
            return bus.request(subjects.TRAIN_MODEL, body, TRY_S)
        except bus.NoAnswer:
            if time.monotonic() + pause > end:
                raise
        time.sleep(pause)
        pause = min(pause * GROWTH, MAX_PAUSE_S)


def _put_back(uuid: str, asked: kv.Parameters | None, before: dict | None) -> None:
    now = kv.parameters()
    if now is None or now.uuid != uuid:
        return  # there was another request meanwhile
    if asked is None:
        keyvalue.delete(subjects.PARAMETERS_BUCKET, subjects.PARAMETERS)
    else:
        kv.put_parameters(asked.uuid, asked.workloads)
    if before is None:
        keyvalue.delete(subjects.STATISTICS_BUCKET, subjects.STATUS)
    else:
        kv.put_model_status(before)


def put_status(value: dict) -> None:
    """Store a trainer's own report (PUT current_status) unchanged, and renew its lease unless it is the last one."""
    kv.put_model_status(value)
    if value["status"] not in {subjects.COMPLETED, subjects.FAILED, subjects.NO_MODEL}:
        lease.renew("", seconds=lease.FOREIGN_S)


def put_statistics(statistics: dict) -> None:
    """Store the older report (G1, G2): the statistics only, which mean training unless all is done."""
    known = kv.model_status()
    word = known["status"] if known and known["status"] in {subjects.COMPLETED, subjects.FAILED} else subjects.TRAINING
    if statistics["stage"] in {"trained failed", subjects.FAILED}:
        word = subjects.FAILED
    elif 0 < statistics["percentageCompleted"] < 100:
        word = subjects.TRAINING
    put_status({"status": word, "statistics": statistics})


def set_status(word: str, *, uuid: str = "", stage: str = "", detail: dict | None = None, **statistics) -> None:
    """Set our own status. `detail` and the uuid go to our own key; the status has Opni's fields only."""
    if stage:
        statistics["stage"] = stage
    kv.put_detail(uuid=uuid, state=word, **(detail or {}))
    kv.put_model_status(status.make(word, **statistics))


def failed(uuid: str, reason: str) -> None:
    """Set the final status of a training that failed; the reason is in our own key, as text and as a message."""
    log.warning("training %s has failed: %s", uuid or "(unknown)", reason)
    set_status(subjects.FAILED, uuid=uuid, detail={"reason": reason, "message": Message(reason).as_data()})


def state() -> dict:
    """Return the status and our own details, for the pages and /api/v1/aiops."""
    known = kv.model_status() or {"status": "", "statistics": None}
    ours = kv.detail()
    mine = ours if ours.get("state") == known["status"] else {}
    asked, decision, row = kv.parameters(), kv.decision(), lifecycle.serving()
    training = known["status"] == subjects.TRAINING
    running = lifecycle.find(asked.uuid) if training and asked is not None else None
    return {
        "status": known["status"],
        "statistics": known["statistics"],
        "reason": running.reason if running else restored(mine.get("message"), str(mine.get("reason") or "")),
        "loss": mine.get("loss"),
        "epochs": int(mine.get("epochs") or 0),
        "device": ("gpu" if mine.get("gpu") else "cpu") if training and "gpu" in mine else "",
        "version": row.version if row else "",
        "foreign": row is not None and row.manifest.get("kind") == OPNI,
        "unjudged": int(kv.unjudged().get("lines") or 0),
        "queued": training and asked is not None and decision.get("uuid") != asked.uuid,
    }


def watched_rows() -> list[dict]:
    """Return the last requested watchlist, one row for each workload, sorted."""
    asked = kv.parameters()
    return [
        {"clusterId": cluster, "namespace": namespace, "deployment": deployment}
        for cluster, namespace, deployment in sorted(watchlist.triples(asked.workloads if asked else {}))
    ]


def count_rows(cluster: str) -> list[dict] | None:
    """Return how many lines are stored of each workload of the cluster; None when they were never counted."""
    counts = kv.aggregation()
    if counts is None:
        return None
    return [
        {"clusterId": cluster, "namespace": namespace, "deployment": name, "logCount": count}
        for namespace, deployments in sorted(counts.get(cluster, {}).items())
        for name, count in sorted(deployments.items())
    ]

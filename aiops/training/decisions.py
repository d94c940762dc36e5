"""Decisions of the training controller about the last requested watchlist: train, update or reset.

The state is in two keys: what was requested (the gateway's) and what was decided about it (ours):

    waiting  a training is wanted: another one runs, or no GPU controller answers yet
    sent     `train` was published, and `told` once the watchlist was, too; then done when a controller has taken it,
             waiting again when none did
    done     nothing left to do about this request

Written by compare-and-swap, so only one of several controllers publishes. What is repeated after a kill is harmless.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from django.conf import settings

from aiops import lifecycle, logstore
from aiops.wire import folders, kv, lease, subjects, watchlist
from kernel import keyvalue
from kernel.errors import Fault
from kernel.messages import Message

from . import requests, training_data, versions

log = logging.getLogger(__name__)

WAITING, SENT, DONE = "waiting", "sent", "done"
GPU_TRIES = 16
GPU_PAUSE_S = 30.0
TAKEN_WITHIN_S = 20.0
PUBLISHED_WITHIN_S = 5.0  # after `train`; later means that its sender was killed in between
CANCELLED = Message("cancelled: the watchlist was cleared")
NO_CONTROLLER = Message("no GPU controller answered; the training was not started")

Send = Callable[[list], None]


def step(send: Send, gpu_runs: Callable[[], bool]) -> bool:
    """Compare the last request with the decision and take the next step; return whether a later call may have one to
    take. Raises Fault when a server is unavailable.
    """
    asked = kv.parameters()
    if asked is None:
        return False
    decision = kv.decision()
    if decision.get("uuid") != asked.uuid or "state" not in decision:
        decision = {"uuid": asked.uuid, "state": WAITING, "tries": 0, "next": 0.0, "replaces": decision.get("uuid")}
    if decision["state"] == DONE:
        return False
    if decision["state"] == SENT:
        _look_after(decision, asked, send)
        return True
    last = kv.last_trained()
    kind = watchlist.decide(asked.workloads, last.workloads)
    if kind == watchlist.UPDATE and kv.is_retrain(asked.uuid):
        kind = watchlist.TRAIN
    if asked.workloads and asked.uuid == last.uuid:
        _decide(decision, state=DONE)
    elif kind == watchlist.RESET:
        reset(send)
        _decide(decision, state=DONE, kind=kind)
    elif kind == watchlist.UPDATE:
        publish_watchlist(send, asked.workloads, subjects.STATUS_UPDATE)
        requests.set_status(subjects.COMPLETED)
        _decide(decision, state=DONE, kind=kind)
    else:
        _train(decision, asked, send, gpu_runs)
    return True


def is_pending() -> bool:
    """Return whether something is left to do about the last request."""
    asked, decision = kv.parameters(), kv.decision()
    return asked is not None and (decision.get("uuid") != asked.uuid or decision.get("state") != DONE)


def reset(send: Send) -> None:
    """Return to no model: cancel a running training, serve nothing, watch nothing."""
    lifecycle.cancel_running(CANCELLED, by="training controller")
    versions.deactivate()
    kv.put_last_trained({})
    send([(subjects.MODEL_UPDATE, keyvalue.dump({"status": subjects.STATUS_RESET}))])
    publish_watchlist(send, {}, subjects.STATUS_RESET)
    requests.set_status(subjects.NO_MODEL)


def publish_watchlist(send: Send, workloads: dict, kind: str) -> None:
    """Publish the current watchlist to all services that filter or cache by it."""
    kv.put_watched(workloads)
    body = {"workloads": workloads, "status_type": kind}
    send([(subjects.WORKLOAD_PARAMETERS_UPDATE, keyvalue.dump(body))])


def _train(decision: dict, asked: kv.Parameters, send: Send, gpu_runs: Callable[[], bool]) -> None:
    if lease.is_live(lease.current()) or time.time() < decision["next"]:
        return  # a later step tries again
    if not gpu_runs():
        tries = decision["tries"] + 1
        if tries >= GPU_TRIES:
            requests.failed(asked.uuid, NO_CONTROLLER)
            _decide(decision, state=DONE, kind=watchlist.TRAIN)
        else:
            _decide(decision, tries=tries, next=time.time() + GPU_PAUSE_S)
        return
    window_s = settings.AIOPS_TRAINING_WINDOW_S
    order = training_data.order(
        asked.uuid, asked.workloads, window_s=window_s, now_s=time.time(), count=0, folder=folders.folder()
    )
    order["count"] = _count(order["query"])
    sent = _decide(decision, state=SENT, kind=watchlist.TRAIN, told=False)
    if sent:
        requests.set_status(subjects.TRAINING, uuid=asked.uuid, stage=subjects.FETCHING)
        kv.put_watched(asked.workloads)
        send([(subjects.TRAIN, keyvalue.dump(order))])
        publish_watchlist(send, asked.workloads, subjects.STATUS_TRAIN)
        _decide(sent, told=True)


def _count(query: dict) -> int:
    """Return how many lines there are to learn from, only a hint. When the store is unavailable the fetching side waits
    for it.
    """
    try:
        return logstore.get().count(query)
    except Fault as problem:
        log.warning("the lines to train on cannot be counted: %s", problem)
        return 0


def _look_after(decision: dict, asked: kv.Parameters, send: Send) -> None:
    """Check, after `train` was published, that a controller has taken it and that the watchlist was published."""
    age = time.time() - float(decision.get("at") or 0)
    if lease.current().get("uuid") == decision["uuid"] or lifecycle.find(decision["uuid"]) is not None:
        published = decision.get("told", True)
        if not published and age < PUBLISHED_WITHIN_S:
            return  # it is being published
        if not published:
            publish_watchlist(send, asked.workloads, subjects.STATUS_TRAIN)
        _decide(decision, state=DONE)
    elif age > TAKEN_WITHIN_S:
        log.warning("no controller has taken the training %s; sending it again", decision["uuid"])
        _decide(decision, state=WAITING)


def _decide(decision: dict, **changes) -> dict | None:
    """Store the decision and return it, unless another controller has moved on meanwhile."""
    new = {**decision, **changes, "at": time.time()}
    new.pop("replaces", None)

    def decide(old):
        old = old if isinstance(old, dict) else {}
        before = decision["replaces"] if "replaces" in decision else decision["uuid"]
        same_state = "replaces" in decision or old.get("state") == decision["state"]
        return new if old.get("uuid") == before and same_state else None

    return new if keyvalue.change(subjects.OWN_BUCKET, subjects.OWN_DECISION, decide) is not None else None

"""Lines of watched workloads that nobody can judge: counted, shown with the status, and notified to administrators
once.

With a serving model, lines without a verdict wait for their turn and are sent again. Without one they would wait for
ever, unless another service judges them; then there are none for long.
"""

from __future__ import annotations

import time

from django.db import transaction

from accounts import notices
from accounts.models import ADMINISTRATORS, State, User
from aiops import lifecycle, logstore
from aiops.judging import own_models, watching
from aiops.wire import kv, subjects, watchlist
from kernel.messages import Message

NOTIFIED_AFTER_S = 120  # without a verdict: time for other services to judge
WINDOW_S = 3600
TEXT = Message("the log lines of watched workloads are not judged: no model serves. Train one, or clear the watchlist")


def query(watched: set[watchlist.Triple], before_ms: int, after_ms: int = 0) -> dict:
    """Return the query for lines of those workloads with a time between the two and no verdict."""
    names = ("cluster_id", "namespace_name.keyword", "deployment.keyword")
    workloads = [
        {"bool": {"filter": [{"term": {name: value}} for name, value in zip(names, triple, strict=True)]}}
        for triple in sorted(watched)
    ]
    bounds = {"lte": before_ms, **({"gte": after_ms} if after_ms else {})}
    return {
        "query": {
            "bool": {
                "filter": [{"term": {"log_type": subjects.WORKLOAD}}, {"range": {"time": bounds}}],
                "must_not": [{"exists": {"field": "anomaly_level"}}],
                "should": workloads,
                "minimum_should_match": 1,
            }
        }
    }


def count() -> int:
    """Count the lines that nobody can judge, store the number, and notify administrators when there are the first.

    Raises Fault.
    """
    known = kv.unjudged()
    lines = _count()
    if not lines:
        if known:
            kv.put_unjudged({})
        return 0
    kv.put_unjudged({"lines": lines, "since": known.get("since") or int(time.time())})
    if not known:
        _notify()
    return lines


def _count() -> int:
    status = kv.model_status()
    training = status is not None and status["status"] == subjects.TRAINING
    watched = watching.general()
    if not watched or training or lifecycle.serving() is not None:
        return 0
    watched = own_models.those_of(watched, own_models.PLATFORM)
    if not watched:
        return 0
    now = time.time()
    return logstore.get().count(query(watched, int((now - NOTIFIED_AFTER_S) * 1000), int((now - WINDOW_S) * 1000)))


def _notify() -> None:
    with transaction.atomic():
        for user in User.objects.filter(ADMINISTRATORS, state=State.ACTIVED, owner=None):
            notices.notify(user=user, kind="alert", name="log model", event="alert", reason=TEXT)

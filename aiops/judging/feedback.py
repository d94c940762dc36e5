"""Users' feedback on a text: "this is normal", "this is an anomaly". Called by pages; read by DRAIN and trainings.

It applies to all lines with the same masked text: to stored ones, to new ones (through the template cache), and in the
next training. The row is the truth; a process that was away reads it later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from django.utils import timezone

from aiops import logstore
from aiops.models import Feedback
from aiops.wire import payloads, subjects
from aiops.wire.masking import mask
from kernel import after_commit, bus
from kernel.errors import Fault, Refused
from kernel.singleton import Holder

log = logging.getLogger(__name__)

IN_FLIGHT = timedelta(seconds=10)  # a line that is older has its verdict written
LATE = timedelta(seconds=60)
SETTLED_AT_ONCE = 2000
LEVELS = (subjects.NORMAL, subjects.ANOMALY)
FIELDS = ("_id", "cluster_id", "log", "log_type", "pod_name", "namespace_name", "deployment", "service")


def record(documents: Sequence[dict], level: str, user) -> None:
    """Store feedback on the texts of these lines. Idempotent.

    It applies once the template cache has read it (services/drain.py; a message makes that fast), and lines that were
    stored before get the verdict from `settle`. Raises Refused for an unknown level.
    """
    if level not in LEVELS:
        raise Refused("must be one of %(choices)s", field="level", choices=", ".join(LEVELS))
    texts = {one.get("masked_log") or mask(one["log"]): one for one in documents}
    texts.pop("", None)
    if not texts:
        raise Refused("must not be empty", field="log")
    judged = []
    for masked, document in texts.items():
        given = {"level": level, "sample": document["log"], "by": user, "settled": False}
        Feedback.objects.update_or_create(masked=masked, defaults=given)
        known = {name: document[name] for name in FIELDS if document.get(name)}
        judged.append(payloads.Payload(**known, masked_log=masked, anomaly_level=level, inference_model=subjects.DRAIN))
    after_commit.enqueue("aiops.feedback")
    after_commit.enqueue("aiops.feedback", delay_ms=1000 * (IN_FLIGHT.seconds + 2))
    try:
        bus.send([(subjects.FEEDBACK, data) for data in payloads.batches(judged)])
    except Fault as problem:
        log.warning("feedback on %s texts is stored and will apply later: %s", len(judged), problem.msg)


def settle() -> None:
    """Apply new feedback to the stored lines. Called by the actor.

    A line that is being judged meanwhile may be written back after this, so feedback is settled only when it is
    IN_FLIGHT old. Raises Fault while the log store is away.
    """
    alone = Holder("aiops.feedback")
    if not alone.hold():
        return  # another process is doing it
    try:
        begun = timezone.now()
        rows = list(Feedback.objects.filter(settled=False).order_by("pk")[:SETTLED_AT_ONCE])
        logstore.get().rejudge({row.masked: row.level for row in rows})
        for row in rows:
            if begun - row.at > IN_FLIGHT:
                Feedback.objects.filter(pk=row.pk, at=row.at).update(settled=True)
    finally:
        alone.release()


def heal() -> None:
    """Enqueue the task again for feedback whose task was lost. Called by reconcile."""
    if Feedback.objects.filter(settled=False, at__lt=timezone.now() - LATE).exists():
        after_commit.enqueue("aiops.feedback")


def since(after: datetime | None) -> list[Feedback]:
    """Return the feedback given after that time, or all, oldest first."""
    rows = Feedback.objects.order_by("at")
    return list(rows if after is None else rows.filter(at__gt=after))


def examples() -> Iterator[dict]:
    """Yield all feedback as lines to train on, whether or not the training's query selects such lines."""
    for row in Feedback.objects.order_by("pk").iterator():
        yield {"log": row.sample, "masked_log": row.masked, "label": row.level.lower()}


def of(document: dict) -> Feedback | None:
    """Return the feedback on the text of a line, if any."""
    masked = document.get("masked_log") or mask(document["log"])
    return Feedback.objects.filter(masked=masked).select_related("by").first()


def labels() -> dict[str, str]:
    """Return masked text -> "normal" or "anomaly", for a training."""
    return {masked: level.lower() for masked, level in Feedback.objects.values_list("masked", "level")}

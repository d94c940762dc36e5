"""A person's word on a text: "this is normal", "this is an anomaly". Called by pages; read by DRAIN and trainings.

It counts for all lines with the same masked text: those stored, those to come (through the template cache), and in the
next training. The row is the truth; whoever was away reads it later.
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


def tell(documents: Sequence[dict], level: str, user) -> None:
    """Keeps the word on the texts of these lines. Any number of times with the same effect.

    It is in force once the template cache has read it (services/drain.py; a message makes that fast), and the lines
    that were stored before are judged anew by `settle`. Raises Refused for a level that is none.
    """
    if level not in LEVELS:
        raise Refused("level: must be one of " + ", ".join(LEVELS))
    texts = {one.get("masked_log") or mask(one["log"]): one for one in documents}
    texts.pop("", None)
    if not texts:
        raise Refused("log: an empty line cannot be judged")
    judged = []
    for masked, document in texts.items():
        given = {"level": level, "sample": document["log"], "by": user, "settled": False}
        Feedback.objects.update_or_create(masked=masked, defaults=given)
        told = {name: document[name] for name in FIELDS if document.get(name)}
        judged.append(payloads.Payload(**told, masked_log=masked, anomaly_level=level, inference_model=subjects.DRAIN))
    after_commit.enqueue("aiops.feedback")
    after_commit.enqueue("aiops.feedback", delay_ms=1000 * (IN_FLIGHT.seconds + 2))
    try:
        bus.send([(subjects.FEEDBACK, data) for data in payloads.batches(judged)])
    except Fault as problem:
        log.warning("%s words are kept and will be in force later: %s", len(judged), problem.msg)


def settle() -> None:
    """Gives the stored lines the verdicts that people have told since. Called by the actor.

    A line that was being judged in that very moment may be written back after us, so a word is looked at once more when
    it is a little older. Raises Fault while the store is away.
    """
    alone = Holder("aiops.feedback")
    if not alone.hold():
        return  # it is being done
    try:
        begun = timezone.now()
        found = list(Feedback.objects.filter(settled=False).order_by("pk")[:SETTLED_AT_ONCE])
        logstore.get().rejudge({word.masked: word.level for word in found})
        for word in found:
            if begun - word.at > IN_FLIGHT:
                Feedback.objects.filter(pk=word.pk, at=word.at).update(settled=True)
    finally:
        alone.let_go()


def heal() -> None:
    """For reconcile: a word whose task was lost gets another."""
    if Feedback.objects.filter(settled=False, at__lt=timezone.now() - LATE).exists():
        after_commit.enqueue("aiops.feedback")


def words(after: datetime | None) -> list[Feedback]:
    """What was told after that time, or at all, in order."""
    rows = Feedback.objects.order_by("at")
    return list(rows if after is None else rows.filter(at__gt=after))


def examples() -> Iterator[dict]:
    """What people have judged, as lines to learn from, whether or not they are among those that are looked for."""
    for word in Feedback.objects.order_by("pk").iterator():
        yield {"log": word.sample, "masked_log": word.masked, "label": word.level.lower()}


def of(document: dict) -> Feedback | None:
    masked = document.get("masked_log") or mask(document["log"])
    return Feedback.objects.filter(masked=masked).select_related("by").first()


def labels() -> dict[str, str]:
    """masked text -> "normal" or "anomaly", for a training."""
    return {masked: level.lower() for masked, level in Feedback.objects.values_list("masked", "level")}

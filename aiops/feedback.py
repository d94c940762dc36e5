"""A person's word on a text: "this is normal", "this is an anomaly". Called by pages; read by trainings.

It counts for all lines with the same masked text: at once, through the template cache, and in the next training.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlp.kernel import bus
from mlp.kernel.errors import Refused

from . import subjects, wire
from .masking import mask
from .models import Feedback

LEVELS = (subjects.NORMAL, subjects.ANOMALY)
FIELDS = ("_id", "cluster_id", "log", "log_type", "pod_name", "namespace_name", "deployment", "service")


def tell(documents: Sequence[dict], level: str, user) -> None:
    """Keeps the word on the texts of these lines, then tells the template cache. Any number of times, the same effect.

    Raises Refused for a level that is none, Fault while NATS is away: the word is kept then, but not in force yet.
    """
    if level not in LEVELS:
        raise Refused("level: must be one of " + ", ".join(LEVELS))
    texts = {one.get("masked_log") or mask(one["log"]): one for one in documents}
    texts.pop("", None)
    if not texts:
        raise Refused("log: an empty line cannot be judged")
    judged = []
    for masked, document in texts.items():
        given = {"level": level, "sample": document["log"], "by": user}
        Feedback.objects.update_or_create(masked=masked, defaults=given)
        told = {name: document[name] for name in FIELDS if document.get(name)}
        judged.append(wire.Payload(**told, masked_log=masked, anomaly_level=level, inference_model=subjects.DRAIN))
    bus.send([(subjects.FEEDBACK, data) for data in wire.batches(judged)])


def of(document: dict) -> Feedback | None:
    masked = document.get("masked_log") or mask(document["log"])
    return Feedback.objects.filter(masked=masked).select_related("by").first()


def labels() -> dict[str, str]:
    """masked text -> "normal" or "anomaly", for a training."""
    return {masked: level.lower() for masked, level in Feedback.objects.values_list("masked", "level")}

"""Write-back: verdicts, templates and the words that explain an anomaly go into the log store.

Each write is idempotent. A store that is unavailable is retried for some seconds. Lines without a verdict after that
are judged again by the sweep; templates are kept until they are written.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence

from aiops import logstore
from aiops.intake import accept, tail
from aiops.judging import own_models
from aiops.wire import subjects
from kernel.errors import Fault
from kernel.serve import Route
from kernel.telemetry import meters

from . import base

log = logging.getLogger(__name__)

BATCH, LINGER_S = 64, 0.1
PAUSES_S = (0.5, 1, 2, 4)
LATE_EVERY_S = 15
MODELS, LEVELS = {subjects.DRAIN, subjects.OPNILOG}, {subjects.NORMAL, subjects.ANOMALY}  # others are not counted apart
FIELDS = ("masked_log", "anomaly_level", "template_matched", "inference_model")


class WriteBack:
    name = "write-back"

    def __init__(self):
        for model in MODELS:
            for level in LEVELS:
                meters.LOG_LINES_JUDGED.labels(model, level)  # is there, with 0, before the first verdict
        self.late: dict[str, dict] = {}  # templates that are not written yet: each is sent only once
        self.subjects = {
            subjects.INFERENCED: Route(self.verdicts, "workers", BATCH, LINGER_S),
            subjects.TEMPLATES_INDEX: Route(self.templates, "workers", BATCH, LINGER_S),
            subjects.EXPLANATIONS: Route(self.explanations, "workers", BATCH, LINGER_S),
        }
        self.ticks = ((LATE_EVERY_S, self.late_templates, lambda: bool(self.late)),)

    def verdicts(self, messages: list[bytes]) -> None:
        items = base.items_of(subjects.INFERENCED, messages)
        changes = [(item._id, {**verdict(item), **owner(item.cluster_id, item.namespace_name)}) for item in items]
        persist(subjects.INFERENCED, lambda: logstore.get().update_many(changes))
        for (model, level), count in Counter((item.inference_model, item.anomaly_level) for item in items).items():
            known = model if model in MODELS else "other", level if level in LEVELS else "other"
            meters.LOG_LINES_JUDGED.labels(*known).inc(count)
        tail.send_verdicts((item._id, item.anomaly_level) for item in items)

    def templates(self, messages: list[bytes]) -> None:
        self.late |= {
            item._id: {
                "_id": item._id,
                "template_matched": item.template_matched,
                "template_cluster_id": item.template_cluster_id,
                "log": item.log,
                "log_type": item.log_type,
            }
            for item in base.items_of(subjects.TEMPLATES_INDEX, messages)
        }
        self._write_templates(PAUSES_S)

    def late_templates(self) -> None:
        if self.late:
            self._write_templates(())

    def _write_templates(self, pauses: Sequence[float]) -> None:
        if persist(subjects.TEMPLATES_INDEX, lambda: logstore.get().put_templates(list(self.late.values())), pauses):
            self.late = {}

    def explanations(self, messages: list[bytes]) -> None:
        """Write [{"_id", …, "unexpected": [[position, word], …]}]: what the model did not expect in an anomaly."""
        changes = [
            (
                explanation["_id"],
                {
                    "unexpected": explanation["unexpected"],
                    **owner(explanation["cluster_id"], explanation["namespace_name"]),
                },
            )
            for message in messages
            for explanation in base.read_explanations(message)
        ]
        persist(subjects.EXPLANATIONS, lambda: logstore.get().update_many(changes))


def owner(cluster: str, namespace: str) -> dict:
    """Return the owner of the judged line: another user's line may have the same id and must not change."""
    names = {"cluster_id": cluster or accept.LOCAL, "namespace_name": namespace}
    return {name: logstore.clean(value)[: accept.MAX_NAME] for name, value in names.items()}


def verdict(item) -> dict:
    """Return the fields that a verdict changes, without empty ones."""
    fields = {name: getattr(item, name) for name in FIELDS if getattr(item, name)}
    if item.tenant and item.inference_model:
        fields["inference_model"] = own_models.stored(item.inference_model, item.tenant)
    if item.template_cluster_id:
        fields["template_cluster_id"] = item.template_cluster_id
    if item.inference_model == subjects.OPNILOG or (item.inference_model == subjects.DRAIN and item.opnilog_confidence):
        fields["opnilog_confidence"] = round(item.opnilog_confidence, 6)
    return fields


def persist(what: str, work: Callable[[], None], pauses: Sequence[float] | None = None) -> bool:
    """Write, and return whether it succeeded."""
    for pause in (*(PAUSES_S if pauses is None else pauses), None):
        try:
            work()
            return True
        except Fault as problem:
            if pause is None:
                log.error("%s: could not be written now and will be later: %s", what, problem.msg)
                return False
            time.sleep(pause)
    return False

"""Write-back: verdicts, templates and the words that explain an anomaly go into the log store.

Each write may come any number of times with the same effect. A store that is away is tried again for some seconds;
what could not be written by then is found without a verdict by the sweep, and judged anew.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable

from aiops import logstore, subjects, tail
from mlp.kernel.errors import Fault
from mlp.kernel.serve import Route

from . import base

log = logging.getLogger(__name__)

BATCH, LINGER_S = 64, 0.1
PAUSES_S = (0.5, 1, 2, 4)
FIELDS = ("masked_log", "anomaly_level", "template_matched", "inference_model")


class WriteBack:
    name = "write-back"

    def __init__(self):
        self.subjects = {
            subjects.INFERENCED: Route(self.verdicts, "workers", BATCH, LINGER_S),
            subjects.TEMPLATES_INDEX: Route(self.templates, "workers", BATCH, LINGER_S),
            subjects.EXPLANATIONS: Route(self.explanations, "workers", BATCH, LINGER_S),
        }

    def verdicts(self, messages: list[bytes]) -> None:
        items = base.items_of(subjects.INFERENCED, messages)
        changes = [(item._id, verdict(item)) for item in items]
        persist(subjects.INFERENCED, lambda: logstore.get().update_many(changes))
        tail.tell_verdicts((item._id, item.anomaly_level) for item in items)

    def templates(self, messages: list[bytes]) -> None:
        found = [
            {
                "_id": item._id,
                "template_matched": item.template_matched,
                "template_cluster_id": item.template_cluster_id,
                "log": item.log,
                "log_type": item.log_type,
            }
            for item in base.items_of(subjects.TEMPLATES_INDEX, messages)
        ]
        persist(subjects.TEMPLATES_INDEX, lambda: logstore.get().put_templates(found))

    def explanations(self, messages: list[bytes]) -> None:
        """[{"_id", "unexpected": [[position, word], …]}]: what the model did not expect in an anomaly."""
        changes: list[tuple[str, dict]] = []
        for message in messages:
            try:
                for one in json.loads(message):
                    words = [[int(position), str(word)] for position, word in one["unexpected"]]
                    changes.append((str(one["_id"]), {"unexpected": words}))
            except (ValueError, TypeError, KeyError) as problem:
                log.warning("%s: a wrong payload is dropped: %s", subjects.EXPLANATIONS, problem)
        persist(subjects.EXPLANATIONS, lambda: logstore.get().update_many(changes))


def verdict(item) -> dict:
    """The fields that a verdict changes; those that say nothing are left out."""
    fields = {name: getattr(item, name) for name in FIELDS if getattr(item, name)}
    if item.template_cluster_id:
        fields["template_cluster_id"] = item.template_cluster_id
    if item.inference_model == subjects.OPNILOG:
        fields["opnilog_confidence"] = round(item.opnilog_confidence, 6)
    return fields


def persist(what: str, work: Callable[[], None]) -> None:
    for pause in (*PAUSES_S, None):
        try:
            work()
            return
        except Fault as problem:
            if pause is None:
                log.error("%s: could not be written, the sweep makes up for it: %s", what, problem.msg)
                return
            time.sleep(pause)

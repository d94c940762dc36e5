"""Workload DRAIN: known texts get their verdict at once, the others go to the model, and its verdicts are learned.

Of several replicas one is active (it holds a lock in the database); the others wait and take over with the state that
the active one saves. So template numbers are unique and each line is judged once.
"""

from __future__ import annotations

import logging
import time

from aiops import storage, subjects, wire
from aiops.drain import TemplateCache
from mlp.kernel.serve import Route
from mlp.kernel.singleton import Holder

from . import base

log = logging.getLogger(__name__)

LINGER_S = 0.02
BATCH = 64
SAVE_EVERY_S = 60


class WorkloadDrain:
    name = "drain"

    def __init__(self, active: Holder | None = None):
        self.cache = TemplateCache()
        self.active = active or Holder("aiops.drain")
        self.loaded = False
        self.changed = False
        self.saved = time.monotonic()
        self.subjects = {
            subjects.PREPROCESSED_WORKLOAD: Route(self.judge, "", BATCH, LINGER_S),
            subjects.MODEL_INFERENCED_WORKLOAD: Route(self.learn, "", BATCH, LINGER_S),
            subjects.WORKLOAD_PARAMETERS_UPDATE: Route(self.parameters),
            subjects.MODEL_UPDATE: Route(self.model_update),
            subjects.FEEDBACK: Route(self.feedback),
        }
        self.ticks = ((1.0, self.look),)

    def start(self) -> None:
        self.look()

    def look(self) -> None:
        """Becomes active when nobody else is; saves what was learned now and then."""
        if not self.active.hold():
            self.loaded = False
            return
        if not self.loaded:
            self.cache = TemplateCache()
            data = storage.read(storage.drain_file())
            if data:
                self._load(data)
            self.loaded = True
        if self.changed and time.monotonic() - self.saved > SAVE_EVERY_S:
            self.save()

    def _load(self, data: bytes) -> None:
        try:
            self.cache.load(data)
        except Exception as problem:  # damaged, or of another version: the model judges once more what was known
            log.error("the saved templates cannot be read, beginning anew: %s", problem)
            self.cache = TemplateCache()

    def stop(self) -> None:
        if self.loaded and self.active.hold():
            if self.changed:
                self.save()
            self.active.let_go()

    def save(self) -> None:
        storage.write(storage.drain_file(), self.cache.dump())
        self.changed, self.saved = False, time.monotonic()

    # --- handlers --------------------------------------------------------------------------------------------------
    def judge(self, messages: list[bytes]) -> list[tuple[str, bytes]]:
        """Hits to `inferenced_logs`, misses to the model."""
        if not self.loaded:
            return []
        items = base.items_of(subjects.PREPROCESSED_WORKLOAD, messages)
        hits, misses = [], []
        for item, hit in zip(items, self.cache.match_many([item.masked_log for item in items]), strict=True):
            if hit is None:
                misses.append(item)
                continue
            item.anomaly_level = hit.level
            item.template_matched, item.template_cluster_id = hit.template, hit.cluster_id
            item.inference_model = subjects.DRAIN
            hits.append(item)
        return [*base.lists(subjects.INFERENCED, hits), *base.lists(subjects.OPNILOG_WORKLOAD, misses)]

    def learn(self, messages: list[bytes]) -> list[tuple[str, bytes]]:
        """The model's verdicts: into the cache, with their templates to `inferenced_logs`; new templates are told."""
        if not self.loaded:
            return []
        items = base.items_of(subjects.MODEL_INFERENCED_WORKLOAD, messages)
        judged = [item for item in items if item.anomaly_level]
        return self._learn(judged)

    def feedback(self, data: bytes) -> list[tuple[str, bytes]]:
        """A person's word on masked texts stands above the model's from now on. Lines come back by their ids, too."""
        items = [item for item in wire.decode(data) if item.masked_log and item.anomaly_level]
        return self._learn(items, told=True) if self.loaded else []

    def _learn(self, items: list, *, told: bool = False) -> list[tuple[str, bytes]]:
        learned = self.cache.learn([(item.masked_log, item.anomaly_level, item.log) for item in items], told=told)
        self.changed = self.changed or bool(items)
        changed = {}
        for item, known in zip(items, learned, strict=True):
            item.template_matched, item.template_cluster_id = known.template, known.cluster_id
            if known.changed:
                changed[known.cluster_id] = wire.Payload(
                    _id=str(known.cluster_id),
                    log=known.sample,
                    template_matched=known.template,
                    template_cluster_id=known.cluster_id,
                    log_type=subjects.WORKLOAD,
                )
        return [
            *base.lists(subjects.INFERENCED, items),
            *base.lists(subjects.TEMPLATES_INDEX, list(changed.values())),
        ]

    def parameters(self, data: bytes) -> None:
        _workloads, kind = base.read_parameters(data)
        if kind != subjects.STATUS_UPDATE:
            self._forget()

    def model_update(self, data: bytes) -> None:
        """A new model judges anew. (While it trains, the last one goes on and so does the cache.)"""
        update = base.read_json(data)
        if "bucket" in update or update.get("status") == subjects.STATUS_RESET:
            self._forget()

    def _forget(self) -> None:
        if self.loaded:
            self.cache.clear()
            self.save()

"""Workload DRAIN: known texts get their verdict at once, the others go to the model, and its verdicts are learned.

Of several replicas one is active (it holds a lock in the database); the others wait and take over with the state that
the active one saves. So template numbers are unique and each line is judged once.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta

from aiops.judging import feedback
from aiops.judging.template_cache import TemplateCache
from aiops.wire import folders, payloads, subjects
from kernel.serve import Route
from kernel.singleton import Holder

from . import base

log = logging.getLogger(__name__)

LINGER_S = 0.02
BATCH = 64
SAVE_EVERY_S = 60
OVERLAP = timedelta(minutes=1)  # a word may be committed later than one that was told after it


class WorkloadDrain:
    name = "drain"

    def __init__(self, active: Holder | None = None):
        self.cache = TemplateCache()
        self.active = active or Holder("aiops.drain")
        self.loaded = False
        self.changed = False
        self.words: dict[int, datetime] = {}  # people's words that are in the cache: when they were told
        self.saved = time.monotonic()
        self.subjects = {
            subjects.PREPROCESSED_WORKLOAD: Route(self.judge, "", BATCH, LINGER_S),
            subjects.MODEL_INFERENCED_WORKLOAD: Route(self.learn, "", BATCH, LINGER_S),
            subjects.WORKLOAD_PARAMETERS_UPDATE: Route(self.parameters),
            subjects.MODEL_UPDATE: Route(self.model_update),
            subjects.FEEDBACK: Route(self.feedback),
        }
        self.ticks = ((1.0, self.look),)

    def start(self) -> list[tuple[str, bytes]]:
        return self.look()

    def look(self) -> list[tuple[str, bytes]]:
        """Becomes active when nobody else is; learns what people have told; saves what was learned now and then."""
        if not self.active.hold():
            self.loaded = False
            return []
        if not self.loaded:
            self.cache = TemplateCache()
            data = folders.read(folders.drain_file())
            if data:
                self._load(data)
            self.loaded, self.words = True, {}
        messages = self.told()
        if self.changed and time.monotonic() - self.saved > SAVE_EVERY_S:
            self.save()
        return messages

    def told(self) -> list[tuple[str, bytes]]:
        """People's words that are not in the cache yet. (The message is only faster: it may be lost.)"""
        last = max(self.words.values(), default=None)
        found = feedback.words(last and last - OVERLAP)
        fresh = [word for word in found if self.words.get(word.pk) != word.at]
        self.words |= {word.pk: word.at for word in fresh}
        items = [payloads.Payload(masked_log=word.masked, anomaly_level=word.level, log=word.sample) for word in fresh]
        return self._learn(items, told=True) if items else []

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
        folders.write(folders.drain_file(), self.cache.dump())
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
        items = [item for item in payloads.decode(data) if item.masked_log and item.anomaly_level]
        return self._learn(items, told=True) if self.loaded else []

    def _learn(self, items: list, *, told: bool = False) -> list[tuple[str, bytes]]:
        learned = self.cache.learn([(item.masked_log, item.anomaly_level, item.log) for item in items], told=told)
        self.changed = self.changed or bool(items)
        changed = {}
        for item, known in zip(items, learned, strict=True):
            item.template_matched, item.template_cluster_id = known.template, known.cluster_id
            if known.changed:
                changed[known.cluster_id] = payloads.Payload(
                    _id=str(known.cluster_id),
                    log=known.sample,
                    template_matched=known.template,
                    template_cluster_id=known.cluster_id,
                    log_type=subjects.WORKLOAD,
                )
        return [
            *base.lists(subjects.INFERENCED, [item for item in items if item._id]),
            *base.lists(subjects.TEMPLATES_INDEX, list(changed.values())),
        ]

    def parameters(self, data: bytes) -> list[tuple[str, bytes]]:
        _workloads, kind = base.read_parameters(data)
        return self._forget() if kind != subjects.STATUS_UPDATE else []

    def model_update(self, data: bytes) -> list[tuple[str, bytes]]:
        """A new model judges anew. (While it trains, the last one goes on and so does the cache.)"""
        update = base.read_json(data)
        new = "bucket" in update or update.get("status") == subjects.STATUS_RESET
        return self._forget() if new else []

    def _forget(self) -> list[tuple[str, bytes]]:
        """All but what people have told, which outlives every model."""
        if not self.loaded:
            return []
        self.cache.clear()
        self.words = {}
        messages = self.told()
        self.save()
        return messages

"""What DRAIN knows of one model: the templates and verdicts of texts, and which values are usual.

Of the platform's model, and of each tenant's own. What a tenant's knows is of the version that is named in its file, so
whatever happens between two versions, no verdict of the one is taken for the other's.
"""

from __future__ import annotations

import logging
import time

from aiops.judging.own_models import PLATFORM
from aiops.judging.template_cache import TEXTS, TemplateCache
from aiops.logstore.base import OWN_TEMPLATES
from aiops.wire import folders, subjects
from opnilog import weighing
from opnilog.store import Versions
from opnilog.usual_values import UsualValues

log = logging.getLogger(__name__)

LEAST = 1e-6  # the least confidence: on the wire 0 is none
OWN_TEXTS = 50_000  # of a tenant's own model


class KnownModel:
    def __init__(self, model: int = PLATFORM):
        self.model = model
        self.values, self.version = UsualValues(), ""  # of the version that serves
        self.changed, self.saved = False, time.monotonic()
        self.cache = self._empty()

    def _empty(self) -> TemplateCache:
        return TemplateCache(OWN_TEXTS, self.model * OWN_TEMPLATES + 1) if self.model else TemplateCache(TEXTS)

    def load(self) -> None:
        """Read what was saved, in place of what is in memory."""
        self.cache, self.changed = self._empty(), False
        data = folders.read(folders.drain_file(self.model))
        try:
            if data:
                self.cache.load(data)
        except Exception as problem:  # damaged, or of another version: the model judges the known texts again
            log.error("the saved templates cannot be read, starting with an empty cache: %s", problem)
            self.cache = self._empty()

    def save(self) -> None:
        folders.write(folders.drain_file(self.model), self.cache.dump())
        self.changed, self.saved = False, time.monotonic()

    def follow(self) -> bool:
        """Read which values are usual, where another version serves. A version without them judges no values.

        Return whether it is a tenant's and its verdicts were dropped: those of the platform's model are when a message
        says so, since it may be another trainer's.
        """
        versions = Versions(folders.models(), self.model)
        serving = versions.serving() or ""
        if serving != self.version:
            self.values, self.version = UsualValues(), serving
            try:
                if serving:
                    self.values = UsualValues.open(versions.folder_of(serving))
            except (OSError, ValueError) as problem:
                log.error("the usual values of model version %s cannot be read: %s", serving, problem)
        if self.model == PLATFORM or self.cache.version == serving:
            return False
        self.cache.forget_verdicts()
        self.cache.version, self.changed = serving, True
        return True

    def judge_values(self, items: list) -> list[tuple]:
        """Make lines whose text is normal but whose values are not anomalies; return (line, its unusual values)."""
        reasons = []
        for item in items:
            if item.anomaly_level != subjects.NORMAL or self.cache.is_labelled(item.masked_log):
                continue
            if unusual := self.values.unusual(item.masked_log, item.log):
                item.anomaly_level = subjects.ANOMALY
                item.opnilog_confidence = max(weighing.confidence_of(unusual[0].ratio, 1.0), LEAST)
                reasons.append(
                    (item, [(deviation.position, deviation.value, deviation.usual) for deviation in unusual])
                )
        return reasons

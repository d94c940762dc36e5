"""The serving model inside a service: loaded when there is a line to score, replaced when another version serves.

torch takes 200 MiB, and most lines never need it: their texts were judged before. Used by inference (CPU) and the GPU
controller. Scores lists of Payloads, each distinct text once. Lines that a tenant's own model judges name its version:
each is scored by that version or not at all.
"""

from __future__ import annotations

import importlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aiops.wire import folders, subjects
from opnilog.store import Versions

from . import base

if TYPE_CHECKING:
    from opnilog.score import Scorer

log = logging.getLogger(__name__)

RETRY_S = 5.0  # after a model failed to load
MOST_OWN = 4  # tenants' models in memory at a time; the one that was used last stays


def open_model(folder: Path, device: str | None) -> Scorer:
    """Load a model. Raises ValueError with the reason."""
    # Imports torch: 150 MiB that a platform without a model does without.
    return importlib.import_module("opnilog.score").Scorer.open(folder, device)


class ServingModel:
    """At most one scorer in memory. `look` is cheap: it replaces a loaded version only; `judge` loads the first one."""

    def __init__(self, device: str | None = None):
        self.device = device  # None: CUDA where there is one
        self.version: str | None = None
        self.scorer: Scorer | None = None
        self.lock, self.loading = threading.Lock(), threading.Lock()
        self.again = 0.0  # not before that time another try to load the first one

    def is_loaded(self) -> bool:
        return self.scorer is not None

    def poll(self) -> bool:
        """Replace the loaded version if another one serves; return True when it was replaced.

        A model that fails to load is logged, and the last good one goes on.
        """
        return self.scorer is not None and self.load()

    def load(self) -> bool:
        """Load the serving version if it is new; return True when another model is loaded now."""
        with self.loading:
            versions = Versions(folders.models())
            serving = versions.serving()
            if serving == self.version:
                return False
            scorer = None
            if serving is not None:
                try:
                    scorer = open_model(versions.folder_of(serving), self.device)
                except Exception as problem:  # for example a broken file or no memory: the last good model goes on
                    log.error("model version %s cannot be loaded: %s", serving, problem)
                    self.again = time.monotonic() + RETRY_S
                    return False
            with self.lock:
                self.version, self.scorer = serving, scorer
            log.info("model version %s serves", serving)
            return True

    def judge(self, items: Sequence) -> list[tuple[str, bytes]]:
        """Return the messages with the items' verdicts and the explanations of anomalies.

        None when there is no model: the sweep forwards lines without a verdict again.
        """
        if not items:
            return []
        if self.scorer is None and time.monotonic() >= self.again:
            self.load()
        with self.lock:
            if self.scorer is None:
                return []
            reasons = score(self.scorer, items)
        messages = base.lists(subjects.MODEL_INFERENCED_WORKLOAD, items)
        return [*messages, *base.json_lists(subjects.EXPLANATIONS, reasons)]


class OwnModels:
    """The tenants' models that are in memory, by version. For one thread."""

    def __init__(self) -> None:
        self.scorers: OrderedDict[str, Scorer] = OrderedDict()
        self.again: dict[str, float] = {}  # not before that time another try to load the version

    def judge(self, items: Sequence) -> list[tuple[str, bytes]]:
        """Return the messages with the items' verdicts and the explanations of anomalies, as far as their versions are
        there; the sweep forwards the other lines again.
        """
        judged, reasons = [], []
        for version in dict.fromkeys(item.model_version for item in items):
            scorer = self._scorer(version)
            if scorer is not None:
                mine = [item for item in items if item.model_version == version]
                judged += mine
                reasons += score(scorer, mine)
        messages = base.lists(subjects.OWN_MODEL_VERDICTS, judged)
        return [*messages, *base.json_lists(subjects.EXPLANATIONS, reasons)]

    def _scorer(self, version: str) -> Scorer | None:
        if version in self.scorers:
            self.scorers.move_to_end(version)
            return self.scorers[version]
        if time.monotonic() < self.again.get(version, 0.0):
            return None
        try:
            self.scorers[version] = open_model(Versions(folders.models()).folder_of(version), "cpu")
        except Exception as problem:  # the version is gone, its files are broken, or there is no memory
            log.error("model version %s cannot be loaded: %s", version, problem)
            self.again = {version: time.monotonic() + RETRY_S}
            return None
        while len(self.scorers) > MOST_OWN:
            self.scorers.popitem(last=False)
        return self.scorers[version]


def score(scorer: Scorer, items: Sequence) -> list[dict]:
    """Write the model's verdicts to the items; return the rows of EXPLANATIONS of the anomalies."""
    texts = list(dict.fromkeys(item.masked_log for item in items))
    verdicts = dict(zip(texts, scorer.score(texts), strict=True))
    reasons = []
    for item in items:
        verdict = verdicts[item.masked_log]
        item.opnilog_confidence = verdict.confidence
        item.anomaly_level = verdict.level
        item.inference_model = subjects.OPNILOG
        if verdict.level == subjects.ANOMALY and verdict.unexpected:
            reasons.append(base.explanation(item, verdict.unexpected))
    return reasons

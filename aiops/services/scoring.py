"""The serving model inside a service: loaded when there is a line to score, replaced when another version serves.

torch takes 200 MiB, and most lines never need it: their texts were judged before. Used by inference (CPU) and the GPU
controller. Scores lists of Payloads, each distinct text once.
"""

from __future__ import annotations

import importlib
import logging
import threading
import time
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
            texts = list(dict.fromkeys(item.masked_log for item in items))
            verdicts = dict(zip(texts, self.scorer.score(texts), strict=True))
        reasons = []
        for item in items:
            verdict = verdicts[item.masked_log]
            item.opnilog_confidence = verdict.confidence
            item.anomaly_level = verdict.level
            item.inference_model = subjects.OPNILOG
            if verdict.level == subjects.ANOMALY and verdict.unexpected:
                reasons.append(base.explanation(item, verdict.unexpected))
        messages = base.lists(subjects.MODEL_INFERENCED_WORKLOAD, items)
        return [*messages, *base.json_lists(subjects.EXPLANATIONS, reasons)]

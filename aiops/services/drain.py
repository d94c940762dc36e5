"""Workload DRAIN: known texts get their verdict at once, others go to the model, and its verdicts are learned.

One of several replicas is active (it holds a lock in the database); the others wait and take over with the state that
the active one has saved. So template numbers are unique and each line is judged once.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta

from aiops.judging import feedback
from aiops.judging.template_cache import Learned, TemplateCache
from aiops.wire import folders, payloads, subjects
from kernel.serve import Reply, Route
from kernel.singleton import Holder
from opnilog import weighing
from opnilog.store import Versions
from opnilog.usual_values import UsualValues

from . import base
from .watched import LOOK_EVERY_S, Watched

log = logging.getLogger(__name__)

LINGER_S = 0.02
BATCH = 64
SAVE_EVERY_S = 60
MAX_ANSWER = 4 << 20  # characters of texts and templates in an answer about known verdicts
LEAST = 1e-6  # the least confidence: on the wire 0 is none
OVERLAP = timedelta(minutes=1)  # feedback may be committed later than feedback with a later time


class WorkloadDrain:
    name = "drain"

    def __init__(self, active: Holder | None = None):
        self.cache = TemplateCache()
        self.active = active or Holder("aiops.drain")
        self.loaded = False
        self.changed = False
        self.owned = feedback.Owned()
        self.workloads = Watched()
        self.values, self.version = UsualValues(), ""  # of the model that serves
        self.feedback_times: dict[int, datetime] = {}  # of the feedback that is in the cache, by its key
        self.newest: tuple = ()  # what `feedback.newest` returned before it was learned
        self.saved = time.monotonic()
        self.subjects = {
            subjects.PREPROCESSED_WORKLOAD: Route(self.judge, "", BATCH, LINGER_S),
            subjects.MODEL_INFERENCED_WORKLOAD: Route(self.learn, "", BATCH, LINGER_S),
            subjects.WORKLOAD_PARAMETERS_UPDATE: Route(self.parameters),
            subjects.MODEL_UPDATE: Route(self.model_update),
            subjects.FEEDBACK: Route(self.feedback),
            subjects.EXPLANATIONS: Route(self.explanations, "", BATCH, LINGER_S),
            subjects.KNOWN_VERDICTS: Route(self.known_verdicts),
        }
        self.ticks = ((1.0, self.poll), (LOOK_EVERY_S, self.look))

    def start(self) -> list[tuple[str, bytes]]:
        return self.poll()

    def poll(self) -> list[tuple[str, bytes]]:
        """Become active when no other replica is; learn new feedback; save every SAVE_EVERY_S seconds."""
        if not self.active.hold():
            self.loaded = False
            return []
        if not self.loaded:
            self.cache = TemplateCache()
            data = folders.read(folders.drain_file())
            if data:
                self._load(data)
            self.loaded, self.feedback_times, self.newest = True, {}, ()
            self.workloads.poll()
        self._follow_model()
        messages = []
        newest = feedback.newest(self._learned_until())
        if newest != self.newest:
            messages = self.learn_feedback()
            self.newest = newest
        if self.cache.is_regroup_due():
            messages += self.regroup()
        if self.changed and time.monotonic() - self.saved > SAVE_EVERY_S:
            self.save()
        return messages

    def look(self) -> None:
        if self.loaded:
            self.workloads.poll()

    def learn_feedback(self) -> list[tuple[str, bytes]]:
        """Learn the users' feedback that is not in the cache yet: the message about it is faster, but may be lost."""
        recent = feedback.since(self._learned_until())
        fresh = [row for row in recent if self.feedback_times.get(row.pk) != row.at]
        self.feedback_times |= {row.pk: row.at for row in fresh}
        self.owned.learn(fresh)
        items = [
            payloads.Payload(masked_log=row.masked, anomaly_level=row.level, log=row.sample)
            for row in fresh
            if not row.namespace
        ]
        return self._learn(items, from_feedback=True) if items else []

    def _learned_until(self) -> datetime | None:
        """Return the time after which there may be feedback that is not in the cache."""
        last = max(self.feedback_times.values(), default=None)
        return last and last - OVERLAP

    def regroup(self) -> list[tuple[str, bytes]]:
        """Learn the templates from all texts, and publish those that are new or have other words."""
        changed = self.cache.regroup()
        self.changed = True
        return base.lists(subjects.TEMPLATES_INDEX, [_template(known) for known in changed])

    def _load(self, data: bytes) -> None:
        try:
            self.cache.load(data)
        except Exception as problem:  # damaged, or of another version: the model judges the known texts again
            log.error("the saved templates cannot be read, starting with an empty cache: %s", problem)
            self.cache = TemplateCache()

    def _follow_model(self) -> None:
        """Read which values are usual, where another version serves. A version without them judges no values."""
        versions = Versions(folders.models())
        serving = versions.serving() or ""
        if serving == self.version:
            return
        self.values, self.version = UsualValues(), serving
        try:
            if serving:
                self.values = UsualValues.open(versions.folder_of(serving))
        except (OSError, ValueError) as problem:
            log.error("the usual values of model version %s cannot be read: %s", serving, problem)

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

    def stop(self) -> None:
        if self.loaded and self.active.hold():
            if self.changed:
                self.save()
            self.active.release()

    def save(self) -> None:
        folders.write(folders.drain_file(), self.cache.dump())
        self.changed, self.saved = False, time.monotonic()

    # --- handlers --------------------------------------------------------------------------------------------------
    def judge(self, messages: list[bytes]) -> list[tuple[str, bytes]]:
        """Publish hits on `inferenced_logs`, and send misses to the model."""
        if not self.loaded:
            return []
        items = base.items_of(subjects.PREPROCESSED_WORKLOAD, messages)
        hits, misses, unexpected = [], [], []
        for item, hit in zip(items, self.cache.match_many([item.masked_log for item in items]), strict=True):
            if hit is None:
                misses.append(item)
                continue
            item.anomaly_level = hit.level
            item.template_matched, item.template_cluster_id = hit.template, hit.cluster_id
            item.inference_model = subjects.DRAIN
            if hit.confidence is not None:
                item.opnilog_confidence = max(hit.confidence, LEAST)
            if hit.unexpected and hit.level == subjects.ANOMALY:
                unexpected.append((item, hit.unexpected))
            hits.append(item)
        unexpected += self.judge_values(hits)
        self.owned.apply(hits)
        return [
            *base.lists(subjects.INFERENCED, hits),
            *base.json_lists(subjects.EXPLANATIONS, _explanations(unexpected)),
            *base.lists(subjects.OPNILOG_WORKLOAD, misses),
        ]

    def known_verdicts(self, data: bytes) -> Reply | None:
        """Answer which verdicts are known, with what is usual for the values in lines of that text, if this replica is
        active: None for a workload that is not watched, and for a text without a verdict. Raises ValueError for a wrong
        request.
        """
        if not self.loaded:
            return None
        room, answer = MAX_ANSWER, []
        for cluster, namespace, deployment, texts, lines in base.read_questions(data):
            verdicts = None
            if self.workloads.covers((cluster, namespace, deployment)):
                verdicts = []
                for masked, count in zip(texts, lines, strict=True):
                    verdict = self._known(cluster, namespace, masked, count) if room > 0 else None
                    room -= len(masked) + len(verdict[1]) if verdict else 0
                    verdicts.append(verdict)
            answer.append(verdicts)
        return Reply(base.dump(answer))

    def _known(self, cluster: str, namespace: str, masked: str, count: int) -> list | None:
        hit = self.cache.match(masked, count)
        if hit is None:
            return None
        level, confidence, unexpected = hit.level, hit.confidence, hit.unexpected
        own = self.owned.level(cluster, namespace, masked)
        if own is not None:
            level, confidence, unexpected = own, None, None
        if confidence is not None:
            confidence = max(confidence, LEAST)
        if level == subjects.ANOMALY:
            return [level, hit.template, hit.cluster_id, confidence, unexpected, []]
        limits = [] if own or self.cache.is_labelled(masked) else self.values.limits(masked, count)
        return [level, hit.template, hit.cluster_id, confidence, None, limits]

    def explanations(self, messages: list[bytes]) -> None:
        """Keep with the text which words the model did not expect, for the next lines of that text."""
        for message in messages if self.loaded else ():
            for explanation in base.read_explanations(message):
                # Not of values, which are those of one line.
                if all(len(said) == 2 for said in explanation["unexpected"]):
                    self.cache.explain(explanation["masked_log"], explanation["unexpected"])
                    self.changed = True

    def learn(self, messages: list[bytes]) -> list[tuple[str, bytes]]:
        """Learn the model's verdicts, and publish them with their templates; new templates are published, too."""
        if not self.loaded:
            return []
        items = base.items_of(subjects.MODEL_INFERENCED_WORKLOAD, messages)
        judged = [item for item in items if item.anomaly_level]
        return self._learn(judged)

    def feedback(self, data: bytes) -> list[tuple[str, bytes]]:
        """Learn a user's feedback on masked texts, which overrides the model's verdicts from now on."""
        items = [item for item in payloads.decode(data) if item.masked_log and item.anomaly_level]
        return self._learn(items, from_feedback=True) if self.loaded else []

    def _learn(self, items: list, *, from_feedback: bool = False) -> list[tuple[str, bytes]]:
        verdicts = [
            (item.masked_log, item.anomaly_level, item.log, None if from_feedback else item.opnilog_confidence)
            for item in items
        ]
        learned = self.cache.learn(verdicts, from_feedback=from_feedback)
        self.changed = self.changed or bool(items)
        changed = {}
        for item, known in zip(items, learned, strict=True):
            item.template_matched, item.template_cluster_id = known.template, known.cluster_id
            if known.changed:
                changed[known.cluster_id] = _template(known)
        reasons = []
        if not from_feedback:
            reasons = self.judge_values(items)
            self.owned.apply(items)
        return [
            *base.lists(subjects.INFERENCED, [item for item in items if item._id]),
            *base.json_lists(subjects.EXPLANATIONS, _explanations(reasons)),
            *base.lists(subjects.TEMPLATES_INDEX, list(changed.values())),
        ]

    def parameters(self, data: bytes) -> list[tuple[str, bytes]]:
        _workloads, kind = base.read_parameters(data)
        self.workloads.parameters(data)
        return self._forget(kind) if kind != subjects.STATUS_UPDATE else []

    def model_update(self, data: bytes) -> list[tuple[str, bytes]]:
        """Drop the cached verdicts when a new model serves or the model is reset; not when a training starts."""
        update = base.read_json(data)
        self._follow_model()
        new = "bucket" in update or update.get("status") == subjects.STATUS_RESET
        return self._forget(update.get("status") or "") if new else []

    def _forget(self, status: str) -> list[tuple[str, bytes]]:
        """Drop every verdict but the users' feedback, which applies to every model; at a reset the templates, too."""
        if not self.loaded:
            return []
        if status == subjects.STATUS_RESET:
            self.cache.clear()
        else:
            self.cache.forget_verdicts()
        self.feedback_times = {}
        messages = [*self.learn_feedback(), *self.regroup()]
        self.save()
        return messages


def _explanations(unexpected: list[tuple]) -> list[dict]:
    """Return the rows of EXPLANATIONS; lines whose owner finds them normal need none."""
    return [base.explanation(item, words) for item, words in unexpected if item.anomaly_level == subjects.ANOMALY]


def _template(known: Learned) -> payloads.Payload:
    return payloads.Payload(
        _id=str(known.cluster_id),
        log=known.sample,
        template_matched=known.template,
        template_cluster_id=known.cluster_id,
        log_type=subjects.WORKLOAD,
    )

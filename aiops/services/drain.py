"""Workload DRAIN: known texts get their verdict at once, others go to the model, and its verdicts are learned.

One of several replicas is active (it holds a lock in the database); the others wait and take over with the state that
the active one has saved. So template numbers are unique and each line is judged once.

Each line is known by, sent to and learned from one model: the platform's, or its tenant's own (judging.own_models).
"""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta

from aiops.judging import feedback, own_models
from aiops.judging.own_models import PLATFORM
from aiops.judging.template_cache import Learned, TemplateCache
from aiops.wire import payloads, subjects
from kernel.database import reachable
from kernel.errors import Fault
from kernel.serve import Calm, Reply, Route
from kernel.singleton import Holder
from opnilog.usual_values import UsualValues

from . import base
from .known_model import LEAST, KnownModel
from .watched import LOOK_EVERY_S, Watched

log = logging.getLogger(__name__)

LINGER_S = 0.02
BATCH = 64
SAVE_EVERY_S = 60
POLL_QUIET_S = 5.0  # how late feedback is learned whose message was lost
MAX_ANSWER = 4 << 20  # characters of texts and templates in an answer about known verdicts
OVERLAP = timedelta(minutes=1)  # feedback may be committed later than feedback with a later time


class WorkloadDrain:
    name = "drain"

    def __init__(self, active: Holder | None = None):
        self.platform = KnownModel()
        self.own: dict[int, KnownModel] = {}  # tenants' own models
        self.owners: dict[str, int] = {}
        self.active = active or Holder("aiops.drain")
        self.loaded = False
        self.owned = feedback.Owned()
        self.workloads = Watched()
        self.feedback_times: dict[int, datetime] = {}  # of the feedback that is in the cache, by its key
        self.newest: tuple = ()  # what `feedback.newest` returned before it was learned
        self.subjects = {
            subjects.PREPROCESSED_WORKLOAD: Route(self.judge, "", BATCH, LINGER_S),
            subjects.MODEL_INFERENCED_WORKLOAD: Route(self.learn, "", BATCH, LINGER_S),
            subjects.OWN_MODEL_VERDICTS: Route(self.learn_own, "", BATCH, LINGER_S),
            subjects.WORKLOAD_PARAMETERS_UPDATE: Route(self.parameters),
            subjects.MODEL_UPDATE: Route(self.model_update),
            subjects.FEEDBACK: Route(self.feedback),
            subjects.EXPLANATIONS: Route(self.explanations, "", BATCH, LINGER_S),
            subjects.KNOWN_VERDICTS: Route(self.known_verdicts),
        }
        self.news = Calm(POLL_QUIET_S)  # feedback, models and new texts, which messages report
        self.ticks = ((1.0, self.poll, self.is_poll_due), (LOOK_EVERY_S, self.look))

    @property
    def cache(self) -> TemplateCache:
        """Return the templates and verdicts of the platform's model."""
        return self.platform.cache

    @property
    def values(self) -> UsualValues:
        """Return which values are usual by the platform's model."""
        return self.platform.values

    def start(self) -> list[tuple[str, bytes]]:
        return self.poll()

    def poll(self) -> list[tuple[str, bytes]]:
        """Become active when no other replica is; learn new feedback; save every SAVE_EVERY_S seconds."""
        if not self.active.hold():
            self.loaded = False
            return []
        if not self.loaded:
            self.own = {}
            if not self._look_at_owners():
                return []  # no line is judged before it is known by which model
            self.platform.load()
            self.loaded, self.feedback_times, self.newest = True, {}, ()
            self.workloads.poll()
        messages = []
        for model in self._models():
            if model.follow() and self._is_there(model):
                messages += self._regroup(model)
                model.save()
        newest = feedback.newest(self._learned_until())
        if newest != self.newest:
            messages += self.learn_feedback()
            self.newest = newest
        for model in self._models():
            if model.cache.is_regroup_due():
                messages += self._regroup(model)
            if model.changed and time.monotonic() - model.saved > SAVE_EVERY_S and self._is_there(model):
                model.save()
        return messages

    def is_poll_due(self) -> bool:
        """Return whether there may be something to do. No message reports the version of a tenant's own model."""
        return not self.loaded or bool(self.own) or not self.active.is_undisturbed() or self.news.is_due()

    def _is_there(self, model: KnownModel) -> bool:
        """Return whether the model is still somebody's. Asked before it is saved, which would bring it back where its
        tenant was deleted since the last look.
        """
        return model is self.platform or (self._look_at_owners() and self.own.get(model.model) is model)

    def _models(self) -> list[KnownModel]:
        return [self.platform, *self.own.values()]

    def look(self) -> None:
        """Read what is watched, and whose lines a tenant's own model judges."""
        if self.loaded:
            self.workloads.poll()
            self._look_at_owners()

    def _look_at_owners(self) -> bool:
        try:
            with reachable():
                self.owners, there = own_models.owners(), own_models.all_own()
        except Fault as problem:
            log.warning("the tenants' models cannot be read now: %s", problem.msg)
            return False
        for number in self.own.keys() - there:  # switched off, or its tenant is deleted: reconcile removes its file
            del self.own[number]
        for number in there - self.own.keys():
            self.own[number] = KnownModel(number)
            self.own[number].load()
            self.own[number].follow()
        return True

    def _model_of(self, cluster: str, namespace: str) -> KnownModel | None:
        """Return the model that judges these lines; None where it is not trained yet."""
        number = own_models.model_of(cluster, namespace, self.owners)
        if number == PLATFORM:
            return self.platform
        model = self.own.get(number)
        return model if model is not None and model.version else None

    def _by_model(self, items: list) -> list[tuple[KnownModel, list]]:
        """Return the lines by the model that judges them now; the others, whose model is not trained, are left out."""
        groups: dict[int, list] = {}
        for item in items:
            model = self._model_of(item.cluster_id, item.namespace_name)
            if model is not None:
                groups.setdefault(model.model, []).append(item)
        return [(self.own.get(number, self.platform), some) for number, some in groups.items()]

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
        return self._learn(self.platform, items, from_feedback=True) if items else []

    def _learned_until(self) -> datetime | None:
        """Return the time after which there may be feedback that is not in the cache."""
        last = max(self.feedback_times.values(), default=None)
        return last and last - OVERLAP

    @staticmethod
    def _regroup(model: KnownModel) -> list[tuple[str, bytes]]:
        """Learn the templates from all texts, and publish those that are new or have other words."""
        changed = model.cache.regroup()
        model.changed = True
        return base.lists(subjects.TEMPLATES_INDEX, [_template(known) for known in changed])

    def stop(self) -> None:
        if self.loaded and self.active.hold():
            for model in self._models():
                if model.changed and self._is_there(model):
                    model.save()
            self.active.release()

    # --- handlers --------------------------------------------------------------------------------------------------
    def judge(self, messages: list[bytes]) -> list[tuple[str, bytes]]:
        """Publish hits on `inferenced_logs`, and send misses to the model."""
        if not self.loaded:
            return []
        result = []
        for model, items in self._by_model(base.items_of(subjects.PREPROCESSED_WORKLOAD, messages)):
            result += self._judge(model, items)
        return result

    def _judge(self, model: KnownModel, items: list) -> list[tuple[str, bytes]]:
        hits, misses, unexpected = [], [], []
        for item, hit in zip(items, model.cache.match_many([item.masked_log for item in items]), strict=True):
            item.tenant, item.model_version = model.model, model.cache.version
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
        unexpected += model.judge_values(hits)
        self.owned.apply(hits, with_general=model is not self.platform)
        return [
            *base.lists(subjects.INFERENCED, hits),
            *base.json_lists(subjects.EXPLANATIONS, _explanations(unexpected)),
            *base.lists(subjects.OPNILOG_WORKLOAD if model is self.platform else subjects.OWN_MODEL_LOGS, misses),
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
                verdicts, model = [], self._model_of(cluster, namespace)
                for masked, count in zip(texts, lines, strict=True):
                    asked = room > 0 and model is not None
                    verdict = self._known(model, cluster, namespace, masked, count) if asked else None
                    room -= len(masked) + len(verdict[1]) if verdict else 0
                    verdicts.append(verdict)
            answer.append(verdicts)
        return Reply(base.dump(answer))

    def _known(self, model: KnownModel, cluster: str, namespace: str, masked: str, count: int) -> list | None:
        hit = model.cache.match(masked, count)
        if hit is None:
            return None
        level, confidence, unexpected = hit.level, hit.confidence, hit.unexpected
        own = self.owned.level(cluster, namespace, masked, with_general=model is not self.platform)
        number = [model.model] if model.model else []
        if own is not None:
            level, confidence, unexpected = own, None, None
        if confidence is not None:
            confidence = max(confidence, LEAST)
        if level == subjects.ANOMALY:
            return [level, hit.template, hit.cluster_id, confidence, unexpected, [], *number]
        limits = [] if own or model.cache.is_labelled(masked) else model.values.limits(masked, count)
        return [level, hit.template, hit.cluster_id, confidence, None, limits, *number]

    def explanations(self, messages: list[bytes]) -> None:
        """Keep with the text which words the model did not expect, for the next lines of that text."""
        for message in messages if self.loaded else ():
            for explanation in base.read_explanations(message):
                # Not of values, which are those of one line.
                version = explanation["version"]
                model = next((model for model in self._models() if model.cache.version == version), None)
                if model is not None and all(len(said) == 2 for said in explanation["unexpected"]):
                    model.cache.explain(explanation["masked_log"], explanation["unexpected"])
                    model.changed = True

    def learn(self, messages: list[bytes]) -> list[tuple[str, bytes]]:
        """Learn the model's verdicts, and publish them with their templates; new templates are published, too."""
        if not self.loaded:
            return []
        return self._learn_verdicts(subjects.MODEL_INFERENCED_WORKLOAD, messages, own=False)

    def learn_own(self, messages: list[bytes]) -> list[tuple[str, bytes]]:
        """Learn the verdicts of tenants' own models: those of the version that serves."""
        return self._learn_verdicts(subjects.OWN_MODEL_VERDICTS, messages, own=True) if self.loaded else []

    def _learn_verdicts(self, subject: str, messages: list[bytes], *, own: bool) -> list[tuple[str, bytes]]:
        """Learn each verdict that the line's present model gave. Left out are verdicts on lines of users who have moved
        to another tenant meanwhile, and those of a version that is no longer active.
        """
        result = []
        for model, items in self._by_model(base.items_of(subject, messages)):
            if own == (model is not self.platform):
                judged = [item for item in items if item.anomaly_level]
                if own:
                    judged = [item for item in judged if item.model_version == model.cache.version]
                result += self._learn(model, judged)
        return result

    def feedback(self, data: bytes) -> list[tuple[str, bytes]]:
        """Learn an administrator's feedback on masked texts, which overrides the model's verdicts from now on. `poll`
        learns that of users, soon after an empty message.
        """
        items = [item for item in payloads.decode(data) if item.masked_log and item.anomaly_level]
        self.news.stir()
        if not self.loaded:
            return []
        own = [item for item in items if own_models.model_of(item.cluster_id, item.namespace_name, self.owners)]
        for item in own:
            item._id = ""  # the line has its own model's template; its verdict is settled in the store
        return self._learn(self.platform, items, from_feedback=True)

    def _learn(self, model: KnownModel, items: list, *, from_feedback: bool = False) -> list[tuple[str, bytes]]:
        self.news.stir()  # the templates may have to be grouped again
        verdicts = [
            (item.masked_log, item.anomaly_level, item.log, None if from_feedback else item.opnilog_confidence)
            for item in items
        ]
        learned = model.cache.learn(verdicts, from_feedback=from_feedback)
        model.changed = model.changed or bool(items)
        changed = {}
        for item, known in zip(items, learned, strict=True):
            item.template_matched, item.template_cluster_id = known.template, known.cluster_id
            if known.changed:
                changed[known.cluster_id] = _template(known)
        reasons = []
        if not from_feedback:
            for item in items:
                item.tenant = model.model
            reasons = model.judge_values(items)
            self.owned.apply(items, with_general=model is not self.platform)
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
        self.news.stir()
        self.platform.follow()
        new = "bucket" in update or update.get("status") == subjects.STATUS_RESET
        return self._forget(update.get("status") or "") if new else []

    def _forget(self, status: str) -> list[tuple[str, bytes]]:
        """Drop the verdicts of the platform's model but the users' feedback, which applies to every version; at a reset
        the templates, too.
        """
        if not self.loaded:
            return []
        if status == subjects.STATUS_RESET:
            self.cache.clear()
        else:
            self.cache.forget_verdicts()
        self.feedback_times = {}
        messages = [*self.learn_feedback(), *self._regroup(self.platform)]
        self.platform.save()
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

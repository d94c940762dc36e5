"""Users' feedback on a text: "this is normal", "this is an anomaly". Called by pages; read by DRAIN and trainings.

It applies to all lines with the same masked text: to stored ones, to new ones (through the template cache), and in the
next training. A user's applies to the lines of the namespace only, and to the trainings of the model that a tenant has
of its own for that namespace. The row is the truth; a process
that was not running reads it later.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from accounts.lifecycle import hold_active
from accounts.models import User
from aiops import logstore
from aiops.models import Feedback
from aiops.wire import payloads, subjects
from kernel import after_commit, bus
from kernel.database import execute_prepared
from kernel.errors import Fault, Refused
from kernel.singleton import Holder
from opnilog.masking import mask

from . import scope
from .scope import LOCAL

log = logging.getLogger(__name__)

IN_FLIGHT = timedelta(seconds=10)  # a line that is older has its verdict written
LATE = timedelta(seconds=60)
SENT_S = 1  # how long a label waits for the bus: DRAIN finds it in the database without the message, too
SETTLED_AT_ONCE = 2000
NEWEST = "SELECT count(*), max(at) FROM aiops_feedback WHERE at > %s"
LEVELS = (subjects.NORMAL, subjects.ANOMALY)
FIELDS = ("_id", "cluster_id", "log", "log_type", "pod_name", "namespace_name", "deployment", "service")


def require_room(user: User) -> None:
    """Raise Refused for a user who has as many labels as are allowed: those that are there can be changed only."""
    _require_count(user, _count(user) + 1)


def _count(user: User) -> int:
    return Feedback.objects.filter(by=user).exclude(namespace="").count()


def _require_count(user: User, count: int) -> None:
    most = settings.AIOPS_LABELS_PER_USER
    if not user.is_administrator and count > most:
        raise Refused("at most %(most)s labels of a user", field="level", most=most)


def record(documents: Sequence[dict], level: str, user: User) -> list[Feedback]:
    """Store feedback on the texts of these lines, and return it. Idempotent.

    An administrator's is for all lines. A user's is for lines of the namespace of each line only: the caller has
    checked that the user may see them. It applies once the template cache has read it (services/drain.py; a message
    makes that fast), and lines that were stored before get the verdict from `settle`. Raises Refused for an unknown
    level and above the limit.
    """
    if level not in LEVELS:
        raise Refused("must be one of %(choices)s", field="level", choices=", ".join(LEVELS))
    texts = {
        (
            "" if user.is_administrator else document.get("namespace_name", ""),
            document.get("masked_log") or mask(document["log"]),
        ): document
        for document in documents
    }
    texts = {key: document for key, document in texts.items() if key[1]}
    if not texts:
        raise Refused("must not be empty", field="log")
    with transaction.atomic():
        if not user.is_administrator:
            hold_active(user)
        rows = [_put(key, document, level, user) for key, document in texts.items()]
        _require_count(user, _count(user))
        after_commit.enqueue("aiops.feedback")
        after_commit.enqueue("aiops.feedback", delay_ms=1000 * (IN_FLIGHT.seconds + 2))
    if user.is_administrator:
        _publish(texts, level)
    else:
        _mark(texts.values(), level)
        _send([b""])  # the cache reads it from the database
    return rows


def _put(key: tuple[str, str], document: dict, level: str, user: User) -> Feedback:
    given = {"level": level, "sample": document["log"], "by": user, "settled": False}
    return Feedback.objects.update_or_create(namespace=key[0], masked=key[1], defaults=given)[0]


def _mark(documents: Iterable[dict], level: str) -> None:
    """Write the verdict to these lines at once, also where nobody judges them."""
    try:
        logstore.get().update_many([_change(document, level) for document in documents])
    except Fault as problem:
        log.warning("feedback is stored and will apply to stored lines later: %s", problem.msg)


def _publish(texts: dict, level: str) -> None:
    judged = []
    for (_namespace, masked), document in texts.items():
        known = {name: document[name] for name in FIELDS if document.get(name)}
        judged.append(payloads.Payload(**known, masked_log=masked, anomaly_level=level, inference_model=subjects.DRAIN))
    _send(payloads.batches(judged))


def _send(bodies: Iterable[bytes]) -> None:
    try:
        bus.send([(subjects.FEEDBACK, data) for data in bodies])
    except Fault as problem:
        log.warning("feedback is stored and will apply later: %s", problem.msg)


def settle() -> None:
    """Apply new feedback to the stored lines. Called by the actor.

    A line that is being judged meanwhile may be written back after this, so feedback is settled only when it is
    IN_FLIGHT old. Feedback of a namespace has precedence over that for all lines. Raises Fault while the log store is
    away.
    """
    alone = Holder("aiops.feedback")
    if not alone.hold():
        return  # another process is doing it
    try:
        begun = timezone.now()
        rows = list(Feedback.objects.filter(settled=False).order_by("pk")[:SETTLED_AT_ONCE])
        general = {row.masked: row.level for row in rows if not row.namespace}
        logstore.get().rejudge(general)
        owned = [row for row in rows if row.namespace]
        owned += Feedback.objects.filter(masked__in=general, settled=True).exclude(namespace="")
        _rejudge(owned)
        for row in rows:
            if begun - row.at > IN_FLIGHT:
                Feedback.objects.filter(pk=row.pk, at=row.at).update(settled=True)
    finally:
        alone.release()


def _rejudge(rows: Sequence[Feedback]) -> None:
    """Write the verdicts of namespaces to their stored lines."""
    words = {(row.namespace, row.masked): row.level for row in rows}
    store, changes = logstore.get(), []
    for line in store.with_texts(sorted({masked for _namespace, masked in words})) if words else ():
        level = words.get((line.get("namespace_name", ""), line.get("masked_log", "")))
        if level is not None and line.get("cluster_id") == LOCAL and line.get("anomaly_level") != level:
            changes.append(_change(line, level))
        if len(changes) >= SETTLED_AT_ONCE:
            store.update_many(changes)
            changes = []
    store.update_many(changes)


def _change(document: dict, level: str) -> tuple[str, dict]:
    """Return the change of a line's verdict, for that line of that namespace only."""
    owner = {name: document.get(name, "") for name in ("cluster_id", "namespace_name")}
    masked = document.get("masked_log") or mask(document["log"])
    return document["_id"], {"anomaly_level": level, "masked_log": masked, **owner}


def heal() -> None:
    """Enqueue the task again for feedback whose task was lost. Called by reconcile."""
    if Feedback.objects.filter(settled=False, at__lt=timezone.now() - LATE).exists():
        after_commit.enqueue("aiops.feedback")


def newest(after: datetime | None) -> tuple:
    """Return how much feedback was given after that time, or at all, and when the last: the same while nothing is new.
    Asked every few seconds, so it is a statement that the server has planned.
    """
    connection.ensure_connection()
    (counted,) = execute_prepared(NEWEST, [after or datetime.min.replace(tzinfo=UTC)])
    return counted


def since(after: datetime | None) -> list[Feedback]:
    """Return the feedback given after that time, or all, oldest first."""
    rows = Feedback.objects.order_by("at")
    return list(rows if after is None else rows.filter(at__gt=after))


def examples(namespaces: Collection[str] = ("",)) -> Iterator[dict]:
    """Yield the feedback of these namespaces as lines to train on, whether or not the training's query selects such
    lines; by default that for all lines. Of several labels on a text the last one counts.
    """
    rows = Feedback.objects.filter(namespace__in=namespaces).order_by("at")
    for row in {row.masked: row for row in rows.iterator()}.values():
        yield {"log": row.sample, "masked_log": row.masked, "label": row.level.lower()}


def visible(user: User):
    """Return the feedback on lines of namespaces that the user may see; all feedback for an administrator."""
    rows = Feedback.objects.select_related("by")
    names = scope.namespaces(user)
    return rows if names is None else rows.filter(namespace__in=names)


def from_document(document: dict) -> Feedback | None:
    """Return the feedback on the text of a line, if any: that of its namespace rather than that for all lines."""
    masked = document.get("masked_log") or mask(document["log"])
    names = [""] + ([document["namespace_name"]] if document.get("cluster_id") == LOCAL else [])
    rows = Feedback.objects.filter(masked=masked, namespace__in=names).select_related("by")
    return rows.order_by("-namespace").first()


def labels(namespaces: Collection[str] = ()) -> dict[str, str]:
    """Return masked text -> "normal" or "anomaly" for a training: of the feedback for all lines, and of that of these
    namespaces, which has precedence. Of several labels on a text the last one counts.
    """
    general = Feedback.objects.filter(namespace="").values_list("masked", "level")
    own = Feedback.objects.filter(namespace__in=namespaces).exclude(namespace="").order_by("at")
    rows = [*general, *own.values_list("masked", "level")]
    return {masked: level.lower() for masked, level in rows}


class Owned:
    """The feedback by namespace and text ("": for all lines), for lines that are judged now.

    Feedback for all lines is in the template cache of the platform's model, too. It is kept out of the caches of
    tenants' own models, since its texts may be lines of other tenants.
    """

    def __init__(self) -> None:
        self.levels: dict[tuple[str, str], str] = {}

    def learn(self, rows: Sequence[Feedback]) -> None:
        self.levels |= {(row.namespace, row.masked): row.level for row in rows}

    def level(self, cluster: str, namespace: str, masked: str, *, with_general: bool = False) -> str | None:
        """Return the namespace's verdict on a text, if any; with_general: else that for all lines."""
        level = self.levels.get((namespace, masked)) if namespace and cluster in ("", LOCAL) else None
        return level or (self.levels.get(("", masked)) if with_general else None)

    def apply(self, items: Sequence, *, with_general: bool = False) -> None:
        """Give the lines (payloads) that have such feedback its verdict, which has no confidence."""
        for item in items if self.levels else ():
            level = self.level(item.cluster_id, item.namespace_name, item.masked_log, with_general=with_general)
            if level is not None:
                item.anomaly_level, item.inference_model, item.opnilog_confidence = level, subjects.DRAIN, 0.0

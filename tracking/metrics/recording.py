"""The Metrics-manager: the only writer of metrics. Called by ingest and journal.

A report is taken when it was sent while its job ran and its metrics were open (until `finish`, or until the row whose
progress is 100 or -1). The time of sending is JetStream's: a message there has been acknowledged to its sender, so it
is stored however late ingest reads it, also after the job's end. Other messages are logged and dropped.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from datetime import UTC, datetime

from django.conf import settings
from django.db import DatabaseError, DataError, transaction
from django.db.models import Max
from django.utils import timezone

from jobs import lifecycle
from jobs.models import Job, Metrics, ProgressSource, Value
from jobs.summaries import metrics as summaries
from kernel import after_commit, bus, nats_jwt, sanitize, stored
from kernel.bus import Delivery, Stream
from kernel.errors import Refused
from kernel.locking import lock_row, locked
from kernel.messages import Message
from kernel.models import StateChange

from . import blocks, series
from .serializers import MetricsIn, ValuesIn
from .series import MEASURED

log = logging.getLogger(__name__)

MAX_WAITING = 5000  # messages of one job on one subject: what one job keeps waiting, others wait for, too
STREAM = Stream(
    name="JOB_METRICS",
    subjects=("job_metrics.>",),
    max_bytes=8 << 30,
    most_waiting=MAX_WAITING,
    most_payload=nats_jwt.MAX_PAYLOAD,
)
DURABLE = "platform"
ENDED = (100, -1)
MESSAGE_BYTES = 1 << 20
PACK, PACK_BYTES = 250, 48 << 10  # rows of numbers in one message, and their bytes
CROWDED = Message(
    "The job reports faster than its reports can be stored: %(limit)s messages were waiting. Messages over NATS beyond "
    "that number were refused.",
    limit=MAX_WAITING,
)
MAX_ID = 180  # characters of a message's id; its rows' ids add their number, and may have 200


def subject(user: str, job: str) -> str:
    """Return the subject of a job's metrics."""
    return f"job_metrics.{user}.{job}"


def values_subject(user: str, job: str) -> str:
    """Return the subject of values beyond the contract's four (tracking.metrics.series); of the same stream, so in the
    same order.
    """
    return f"job_metrics.{user}.{job}.values"


def record(deliveries: list[Delivery]) -> int:
    """Store the reports of a batch, one transaction for each job; return how many rows are new.

    Idempotent: a message that was stored before is recognised by its id. Raises what the database raises: then nothing
    may be acknowledged. A message that the database cannot store is dropped, so that it does not hold up the others.
    """
    by_job: dict[tuple[str, str], list[tuple[Delivery, dict]]] = defaultdict(list)
    for delivery in deliveries:
        parsed = _parse(delivery)
        if parsed is not None:
            by_job[parsed["user"], parsed["name"]].append((delivery, parsed))
    return sum(_record_what_can_be(user, name, rows) for (user, name), rows in by_job.items())


def _record_what_can_be(user: str, name: str, rows: list[tuple[Delivery, dict]]) -> int:
    try:
        return _record_job(user, name, rows)
    except (DataError, UnicodeError, OverflowError) as problem:
        if len(rows) > 1:
            return sum(_record_what_can_be(user, name, [row]) for row in rows)
        log.warning("ignored a message on %r: %s", rows[0][0].subject, problem)
        return 0


def _record_job(user: str, name: str, rows: list[tuple[Delivery, dict]]) -> int:
    with transaction.atomic():
        job = lock_row(Job, user__username=user, name=name)
        # Reports older than the job itself are of an earlier job of the same name.
        taken = [(sent, row) for sent, row in rows if job is not None and _was_sent_by(job, sent)]
        if len(taken) < len(rows):
            log.info("ignored %s metrics of %s/%s: not running", len(rows) - len(taken), user, name)
        if not taken:
            return 0
        rows = taken
        if job.is_live:
            lifecycle.begin(job, by="job")
        room = _room(job)
        values = [(_id(sent), sent.sent, row["rows"]) for sent, row in rows if "rows" in row]
        added = series.store(job, values, room) if values else 0
        added += _store(job, [(sent, row) for sent, row in rows if "rows" not in row], room)
        is_full = _count(job, added)
        if added:
            after_commit.wake("job", job.pk)
            after_commit.changed(user, "job", name, moving=not is_full, progress=job.progress)
    if (job.values_kept - added) // blocks.EVERY < job.values_kept // blocks.EVERY:
        _summarise(job)
    return added


def _room(job: Job) -> int:
    """Return how many values may still be kept of a locked job; its page shows when its user has no more room."""
    try:
        stored.require(job.user_id)
    except stored.TooMuch as refusal:
        if job.metrics_notice != refusal.problem:
            job.metrics_notice = refusal.problem
            job.save(update_fields=["metrics_notice"])
        return 0
    return max(0, settings.JOB_VALUES - job.values_kept)


def _summarise(job: Job) -> None:
    """Create blocks for a job with many reports. A failure must not delay its reports, since readers create blocks,
    too.
    """
    try:
        blocks.fill_all(job.pk)
    except DatabaseError:
        log.exception("the blocks of job %s could not be filled", job)


def _count(job: Job, added: int) -> bool:
    """Count the values of a locked job; return whether it has reached the limit, which its page then shows."""
    if not added:
        return False
    job.values_kept += added
    is_full = job.values_kept >= settings.JOB_VALUES
    if is_full:
        job.metrics_notice = too_many()
    job.save(update_fields=["values_kept", "metrics_notice"])
    return is_full


def too_many() -> Message:
    """Return what is said of a job that has reported all that it may."""
    return Message(
        "The job has reported %(limit)s values, the most that are kept (MLP_JOB_VALUES). Later ones are not stored.",
        limit=settings.JOB_VALUES,
    )


def note_crowded(subject: str) -> None:
    """Record for the page of the subject's job that its reports were refused. Idempotent."""
    _, user, name, *_kind = subject.split(".")
    changed = Job.objects.filter(user__username=user, name=name, metrics_notice="").update(metrics_notice=CROWDED)
    if changed:
        log.warning("job %s/%s: %s", user, name, CROWDED)
        after_commit.changed(user, "job", name)


def _was_sent_by(job: Job, sent: Delivery) -> bool:
    """Return whether a report was sent while this locked job ran: by its time, where the clock allows that.

    A clock that is set back gives the job's reports times before its creation. Then they are told from those of an
    earlier job of the same name by whether there was one, and, if they came over HTTP, by their id (api.message_ids).
    """
    if job.ran_at(sent.sent):
        return True
    if job.metrics_from or sent.sent >= job.created or not job.ran_and_had_not_ended_at(sent.sent):
        return False
    earlier = StateChange.objects.filter(kind="job", owner=job.user.username, name=job.name).exclude(object_id=job.pk)
    return sent.message_id.startswith(f"{job.pk}.") or not earlier.exists()


def _store(job: Job, rows: list[tuple[Delivery, dict]], room: int) -> int:
    """Add the new ones of these JobMetrics, at most so many, to a locked job that ran then; return how many."""
    if not rows:
        return 0
    known = set(
        Metrics.objects.filter(job=job, msg_id__in=[_id(sent) for sent, _ in rows]).values_list("msg_id", flat=True)
    )
    seq = Metrics.objects.filter(job=job).aggregate(last=Max("seq"))["last"] or 0
    fresh, over = [], set()
    for sent, row in rows:
        attempt = job.attempt_at(sent.sent)
        if attempt != job.attempt:  # of an earlier attempt, whose last row closes that attempt only
            is_open = attempt not in over and not _has_reported_its_end(job, attempt)
        else:
            is_open = job.metrics_until is None or sent.sent < job.metrics_until
        if _id(sent) in known or not is_open or len(fresh) >= room:
            continue
        known.add(_id(sent))
        seq += 1
        numbers = {key: row.get(key) for key in ("epoch", *MEASURED, "progress")}
        at = datetime.fromtimestamp(row["time"], UTC) if "time" in row else sent.sent
        fresh.append(Metrics(job=job, seq=seq, msg_id=_id(sent), attempt=attempt, at=at, **numbers))
        job.progress = max(job.progress, row["progress"])
        if row["progress"] > 0 and job.progress_source in ("", ProgressSource.LOG):
            job.progress_source, job.expected_end = ProgressSource.SCRIPT, None
        if row["progress"] in ENDED:
            over.add(attempt)
            if attempt == job.attempt:
                job.metrics_until = sent.sent
    Metrics.objects.bulk_create(fresh)
    measured = {name: [row for row in fresh if getattr(row, name) is not None] for name in MEASURED}
    summaries.add(
        job,
        [
            summaries.summary_of(name, [getattr(row, name) for row in rows], rows[-1].epoch, rows[-1].at)
            for name, rows in measured.items()
            if rows
        ],
    )
    job.save(update_fields=[*lifecycle.PROGRESS, "metrics_until"])
    return len(fresh)


def _has_reported_its_end(job: Job, attempt: int) -> bool:
    return Metrics.objects.filter(job=job, attempt=attempt, progress__in=ENDED).exists()


def begin(job_pk: int) -> None:
    """Register a running job: its metrics are taken. Idempotent."""
    with locked(Job, pk=job_pk) as job:
        if job.is_live:
            job.metrics_until = None
            job.save(update_fields=["metrics_until"])


def finish(job_pk: int) -> None:
    """Unregister a job: metrics sent from now on are ignored. Idempotent."""
    with locked(Job, pk=job_pk) as job:
        job.metrics_until = job.metrics_until or timezone.now()
        job.save(update_fields=["metrics_until"])
        after_commit.wake("job", job.pk)


def delete(job_pk: int) -> None:
    """Delete the job's metrics and values, and ignore those still in transit. Idempotent."""
    with locked(Job, pk=job_pk) as job:
        job.metrics_from, job.values_kept, job.metrics_notice = timezone.now(), 0, ""
        job.save(update_fields=["metrics_from", "values_kept", "metrics_notice"])
        Metrics.objects.filter(job=job).delete()
        Value.objects.filter(job=job).delete()
        summaries.forget(job)
        blocks.forget(job.pk)


def all_recorded(job: Job) -> bool:
    """Return whether all that the job has sent until now is stored; read its rows after this call, not before.

    Raises Fault when the message bus is unavailable.
    """
    mine = (subject(job.user.username, job.name), values_subject(job.user.username, job.name))
    return all(bus.is_consumed(STREAM, DURABLE, subject_name, job.created, timeout_s=2) for subject_name in mine)


def as_object(row: Metrics, user: str, name: str) -> dict:
    """Return a JobMetrics object for REST and the websocket."""
    return {
        "user": user,
        "name": name,
        "epoch": row.epoch,
        "accuracy": row.accuracy,
        "loss": row.loss,
        "progress": row.progress,
    }


def _id(delivery: Delivery) -> str:
    """Return an id of the message that can be stored with a row's number appended. A script may
    choose any message id.
    """
    given = delivery.message_id or f"{delivery.sequence}@{delivery.sent.timestamp()}"
    if len(given) <= MAX_ID and sanitize.text(given) == given:
        return given
    return "sha256:" + hashlib.sha256(given.encode(errors="surrogatepass")).hexdigest()


def _parse(delivery: Delivery) -> dict | None:
    """Return the message's values with the user and the job of its subject, or None when it is to be ignored."""
    try:
        _, user, name, *kind = delivery.subject.split(".")
        if kind not in ([], ["values"]):
            raise Refused("unknown", field="subject")
        if len(delivery.data) > MESSAGE_BYTES:
            raise Refused("too large", field="body")
        body = sanitize.read_json(delivery.data)  # NaN and infinities are values; MetricsIn refuses them by name
        if kind:
            rows = [ValuesIn.read(row) for row in (body if isinstance(body, list) else [body])]
            if any(row.get("user", user) != user or row.get("name", name) != name for row in rows):
                raise Refused("does not match its subject", field="body")
            return {"rows": rows, "user": user, "name": name}
        values = MetricsIn.read(body)
        if values.get("user", user) != user or values.get("name", name) != name:
            raise Refused("does not match its subject", field="body")
    except Exception as problem:  # whatever a client can send: it is logged and dropped, and ingest goes on
        log.warning("ignored a message on %s: %s", delivery.subject, problem)
        return None
    return {**values, "user": user, "name": name}

"""Every change of an export goes through here. Called by api, pages, the worker that sends, and reconcile."""

from __future__ import annotations

from contextlib import suppress

from django.db import transaction
from django.utils import timezone

from accounts import lifecycle as accounts
from kernel import after_commit, broker
from kernel.errors import Refused
from kernel.locking import Missing, locked
from kernel.messages import Message
from kernel.models import record_created
from kernel.outcomes import Outcome

from ..buckets import rows as buckets
from ..models import Export, ExportState
from . import sources

LIVE = (ExportState.QUEUED, ExportState.RUNNING)
WAITING = 100  # of a user
KEPT = 500  # of a user, the newest that have ended
CANCELLED = Message("cancelled")


def create_export(*, user, src: str, target: str, by: str) -> Export:
    """Create an export: the files of a dataset, of a model or of a finished job are sent to `s3/{bucket}[/{path}]`.

    Raises Refused, which names the field; Fault, with nothing stored, when the task queue is not available.
    """
    target = buckets.spelled(target).rstrip("/")
    name, _path = buckets.parse(target, "target")
    buckets.find_writable(user, name)
    source = sources.find(user, src)
    broker.require()
    with transaction.atomic():
        return _create(user, source, target, by)


def _create(user, source: sources.Source, target: str, by: str) -> Export:
    accounts.hold_active(user)
    mine = Export.objects.filter(user=user)
    if mine.filter(state__in=LIVE, src=source.src, target=target).exists():
        raise Refused("%(src)s is being sent there already", field="target", src=source.src)
    if mine.filter(state__in=LIVE).count() >= WAITING:
        raise Refused("at most %(limit)s exports can wait; wait until some have ended", field="src", limit=WAITING)
    ended = mine.exclude(state__in=LIVE).order_by("-pk").values_list("pk", flat=True)
    Export.objects.filter(pk__in=list(ended[KEPT - 1 :])).delete()
    return add(user=user, src=source.src, object_id=source.object_id, target=target, by=by)


def add(*, user, src: str, object_id: int, target: str, by: str) -> Export:
    """Create an export of a source that was found; whether it can be sent is found by the worker, and is its reason."""
    row = Export.objects.create(user=user, src=src, target=target, object_id=object_id)
    record_created(row, by=by)
    after_commit.enqueue("datasets.export", row.pk, queue="files")
    return row


def begin(pk: int) -> bool:
    """Let a queued export run; return whether it does, also because it was running before."""
    with suppress(Missing), locked(Export, pk=pk) as row:
        if row.state == ExportState.QUEUED:
            row.start(by="export")
            row.touched = timezone.now()
            row.save()
        return row.state == ExportState.RUNNING
    return False


def note_wait(pk: int, reason: Message) -> None:
    """Record why the files are not sent yet."""
    with suppress(Missing), locked(Export, pk=pk) as row:
        if row.state == ExportState.QUEUED and row.reason != reason:
            row.reason = reason
            row.save(update_fields=["reason"])
            after_commit.changed(row.user.username, "export", row.history_name)


def complete(pk: int, *, size: int, files: int, sent: int, reason: Message | str) -> None:
    """Complete an export whose files are all in the bucket. One that was cancelled meanwhile stays so."""
    with suppress(Missing), locked(Export, pk=pk) as row:
        if row.state == ExportState.RUNNING:
            row.size, row.files, row.sent = size, files, sent
            row.complete(by="export", reason=reason)
            row.save()


def fail(pk: int, reason: Message | str, by: str = "export") -> None:
    """Fail an export that is queued or running."""
    with suppress(Missing), locked(Export, pk=pk) as row:
        if row.state in LIVE:
            row.fail(by=by, reason=reason)
            row.save()


def cancel(*, user, number: int, by: str) -> Export:
    """Cancel an export; what was sent stays in the bucket. Raises Missing, WrongState."""
    with locked(Export, user=user, pk=number) as row:
        row.fail(by=by, reason=CANCELLED, outcome=Outcome.CANCELLED)
        row.save()
    return row


def fail_all_of(user, by: str) -> None:
    """End the exports of a user who is being de-registered, inside that transaction."""
    live = Export.objects.filter(user=user, state__in=LIVE).order_by("pk")
    for row in list(live.select_for_update(no_key=True)):
        row.fail(by=by, reason=accounts.DEACTIVATED, outcome=Outcome.CANCELLED)
        row.save()

"""Lists the buckets of external datasets: when one is created, and again when its owner asks for it.

Where objects have changed since, the new manifest is the next version of the dataset; jobs that named or began with an
earlier one go on with that. A listing that was killed begins again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta

from django.utils import timezone

from kernel import after_commit, broker
from kernel.errors import Refused
from kernel.locking import Missing, WrongState, locked
from kernel.messages import Message
from kernel.models import record_change

from .. import copies, lifecycle
from ..copies import holding
from ..models import Bucket, Dataset, State
from . import fetching, manifests, rows
from .store import Store

AGAIN_AFTER = timedelta(seconds=10)
NO_FILES = Message("%(src)s has no files, or only empty ones")


def create(row: Dataset, written: Callable[[int], object]) -> None:
    """Complete an external dataset. Raises Refused, OSError, and what the function raises."""
    left_out = copies.LeftOut()
    found = listed(row, left_out, lambda: written(0))
    said = left_out.reason() or ("" if found.entries else Message("%(src)s has no files", src=row.src))
    lifecycle.complete_listing(row.pk, found, said)


def listed(row: Dataset, left_out: copies.LeftOut, goes_on: Callable[[], object]) -> manifests.Listed:
    """Return what the bucket of an external dataset has now. Raises Refused, OSError, and what `goes_on` raises."""
    found = list_source(row.user, row.src, manifests.MAX_OBJECTS, left_out, goes_on)
    bucket = rows.find(row.user, rows.parse(row.src)[0])
    to_be_filled = bucket.access == Bucket.Access.WRITE and not row.size  # by uploads
    if not to_be_filled and not found.size:
        raise Refused(NO_FILES, field="src", src=row.src)
    return found


def list_source(
    user, src: str, most: int, left_out: Callable[[str], object], goes_on: Callable[[], object], soon: bool = False
) -> manifests.Listed:
    """Return the objects of a source, at most so many. `left_out` is called with the path of each that cannot be a
    file, `goes_on` now and then; what it raises ends it. With `soon` the server is not waited for. Raises Refused.
    """
    name, path = rows.parse(src)
    entries = fetching.listed(Store(rows.find(user, name), soon=soon), path, most, left_out, goes_on)
    top = fetching.top_of(path, entries)
    skipped = len(top) + 1 if top else 0
    return manifests.Listed(top, [entry._replace(path=entry.path[skipped:]) for entry in entries])


def ask(*, user, name: str, by: str) -> Dataset:
    """Let the bucket of an external dataset be listed again, in the background. Raises Missing, WrongState; Fault, with
    nothing stored, when the task queue is not available.
    """
    broker.require()
    with locked(Dataset, user=user, name=name) as row:
        if not row.external:
            raise WrongState("the files of the dataset %(name)s are not in a bucket", name=name)
        if row.state != State.READY or row.trashed is not None:
            raise WrongState("the dataset %(name)s is not ready", name=name)
        row.refresh_asked = timezone.now()
        row.save(update_fields=["refresh_asked"])
        after_commit.enqueue("datasets.refresh", row.pk, by, queue="files")
        after_commit.changed(user.username, "dataset", name)
    return row


def refresh(pk: int, by: str) -> None:
    """List the bucket again, unless another worker does. What goes wrong is the dataset's reason."""
    with holding(f"datasets.refresh.{pk}") as alone, holding(*copies.PLACES if alone else ()) as has_place:
        row = Dataset.objects.select_related("user").filter(pk=pk, external=True, state=State.READY).first()
        if not has_place or row is None or row.refresh_asked is None:
            return  # without a place `heal` sends it again
        asked, left_out = row.refresh_asked, copies.LeftOut()
        try:
            found = listed(row, left_out, lambda: None)
        except Refused as problem:
            _end(pk, asked, problem.msg)
        except OSError as problem:
            _end(pk, asked, Message("could not be listed (%(problem)s)", problem=problem.strerror))
        else:
            _record(pk, asked, found, left_out.reason(), by)


def _end(pk: int, asked, reason: Message | str) -> None:
    Dataset.objects.filter(pk=pk, refresh_asked=asked).update(refresh_asked=None)
    row = Dataset.objects.select_related("user").filter(pk=pk).first()
    if row is not None:
        Dataset.objects.filter(pk=pk).update(reason=reason)
        after_commit.changed(row.user.username, "dataset", row.name)


def _record(pk: int, asked, listed: manifests.Listed, reason: Message | str, by: str) -> None:
    try:
        with locked(Dataset, pk=pk) as row:
            if row.state != State.READY:
                return
            current = row.versions.get(number=row.version)
            if current.sha256 != hashlib.sha256(listed.text).hexdigest():
                last = row.versions.order_by("-number").first()
                row.version, row.size = last.number + 1, listed.size
                row.touched = timezone.now()  # by which a cached step of a pipeline knows that it is to run again
                manifests.record(row, listed, by)
                said = Message("version %(number)s", number=row.version)
                record_change(row, transition="refresh", source=row.state, target=row.state, by=by, reason=said)
            if row.refresh_asked == asked:
                row.refresh_asked = None
            row.refreshed, row.reason = timezone.now(), reason
            row.save(update_fields=["version", "size", "touched", "refreshed", "refresh_asked", "reason"])
            after_commit.wake("dataset", pk)
            after_commit.changed(row.user.username, "dataset", row.name)
    except Missing:  # deleted meanwhile
        return


def heal() -> None:
    """Send the listings again whose message was lost."""
    unsent = Dataset.objects.filter(refresh_asked__lt=timezone.now() - AGAIN_AFTER).select_related("user")
    for row in unsent[:200]:
        after_commit.enqueue("datasets.refresh", row.pk, row.user.username, queue="files")

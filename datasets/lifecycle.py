"""Every change of a dataset goes through here. Called by api, pages, admin, the data service, actors and reconcile.

The tenant's disk space (rom) is tried when the row is created, confirmed when the upload has ended (ready or error: the
bytes are stored), and released when the files are deleted.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts.tenancy import members
from kernel import after_commit, copying, names, storage, trash
from kernel.database import violated
from kernel.errors import Refused
from kernel.locking import Missing, WrongState, locked
from kernel.messages import Message, word
from kernel.models import record_created
from kernel.outcomes import Outcome
from kernel.singleton import Holder
from resources import tcc

from . import litter, uses, versions
from .buckets import manifests
from .buckets.manifests import Listed
from .claims import APPLIER, request_id
from .models import Dataset, Lock, State

REPORTED = Message("reported by the uploader")
CANCELLED = Message("cancelled")
ERASED_AGAIN_MS = 300


def create_dataset(
    *, user, name: str, size: int, src: str = "", external: bool = False, title: str = "", tenant: str | None = None,
    by: str,
) -> Dataset:  # fmt: skip
    """Reserve `size` bytes of the tenant's rom and create the dataset; from `src` its files are copied
    (datasets.copies), or only listed where it is `external`, else they are uploaded. Raises Refused, which names the
    field.
    """
    names.dataset_name(name)
    try:
        with transaction.atomic():
            tenant_row = members.hold(user, tenant)
            dataset = Dataset.objects.create(
                user=user, tenant=tenant_row, name=name, title=title, size=size, src=src, external=external
            )
            record_created(dataset, by=by)
            tcc.try_(
                id=request_id(dataset.pk),
                applier=APPLIER,
                request_type="request",
                tenant=tenant_row.name,
                owner=user.username,
                rom=size,
            )
            if src:
                after_commit.enqueue("datasets.copy", dataset.pk, queue="files")
    except IntegrityError as problem:
        if violated(problem) == "dataset_name_once_per_user":
            raise Refused(_taken(user, name), field="name")
        raise
    return dataset


def _taken(user, name: str) -> Message:
    """Return why the name is not free."""
    if Dataset.objects.filter(user=user, name=name).exclude(trashed=None).exists():
        return Message("you already have a dataset named %(name)s; it is in the trash", name=name)
    return Message("you already have a dataset named %(name)s", name=name)


def heartbeat(*, user, name: str, state: str, progress: int, by: str) -> None:
    """Record the uploader's report. `ready` with other bytes than declared fails the dataset, and raises Refused.

    Raises WrongState, also of a dataset that is being copied: that is only cancelled.
    """
    if state == State.READY:
        _complete(user, name, progress, by)
        return
    with locked(Dataset, user=user, name=name) as dataset:
        _must_be_creating(dataset)
        if state != State.ERROR:
            _must_be_uploaded(dataset)
        if state == State.ERROR:
            _fail(dataset, REPORTED, by)
        else:
            dataset.progress = max(dataset.progress, progress)
            dataset.touched = timezone.now()
            dataset.save(update_fields=["progress", "touched"])
            after_commit.wake("dataset", dataset.pk)
            after_commit.changed(user.username, "dataset", name, moving=True)


def _complete(user, name: str, progress: int, by: str) -> None:
    """Complete the upload. Files are measured before the lock is taken, and again if an upload came in between."""
    while True:
        seen = Dataset.objects.filter(user=user, name=name).first()
        if seen is None:
            raise Missing("dataset")
        _must_be_creating(seen)
        _must_be_uploaded(seen)
        folder = storage.dataset_dir(user.username, name)
        on_disk = storage.tree_size(folder)
        left = litter.sizes(folder) if progress == 100 and on_disk >= seen.size else {}
        if on_disk == seen.size and any(left.values()):
            left = {}  # what desktops leave was declared, too: it is wanted
        with locked(Dataset, user=user, name=name) as dataset:
            _must_be_creating(dataset)
            if (dataset.pk, dataset.stored, dataset.touched) != (seen.pk, seen.stored, seen.touched):
                continue
            on_disk -= sum(left.values())
            wrong = _mismatch(dataset, progress, on_disk)
            if wrong:
                _fail(dataset, wrong.msg, by)
            else:
                litter.remove(folder, left)
                _complete_row(dataset, on_disk, by, litter.reason(left) if left else "")
        if wrong:
            raise wrong
        return


def note_wait(pk: int, reason: Message) -> None:
    """Record why the copy of the files does not begin yet."""
    with suppress(Missing), locked(Dataset, pk=pk) as dataset:
        if dataset.state == State.CREATING and dataset.reason != reason:
            dataset.reason = reason
            dataset.save(update_fields=["reason"])
            after_commit.wake("dataset", pk)


def declare_again(pk: int, size: int) -> None:
    """Reserve space for files that have changed before they are copied. Raises Refused where there is not enough."""
    with suppress(Missing), locked(Dataset, pk=pk) as dataset:
        if dataset.state == State.CREATING and dataset.src and (dataset.size, dataset.reason) != (size, ""):
            tcc.resize(
                id=request_id(pk), applier=APPLIER, tenant=dataset.tenant_id, owner=dataset.user.username, rom=size
            )
            dataset.size, dataset.reason = size, ""
            dataset.save(update_fields=["size", "reason"])


def complete_copy(pk: int, left_out: Message | str = "") -> None:
    """Complete a dataset whose files have been copied; its reason says what was left out. One that has left creating
    stays as it is, without files; one that is deleted stays so.
    """
    row = Dataset.objects.select_related("user").filter(pk=pk).first()
    if row is None:
        return
    folder, useless = storage.dataset_dir(row.user.username, row.name), False
    stored = storage.tree_size(folder)
    with suppress(Missing), locked(Dataset, pk=pk) as dataset:
        if dataset.state == State.CREATING:
            if stored == dataset.size:
                _complete_row(dataset, stored, "copy", left_out)
                return
            _fail(dataset, copying.CHANGED, "copy")
        useless = dataset.state == State.ERROR  # or it was cancelled when the last of its files had been copied
    if useless:
        storage.remove_tree(folder)


def complete_listing(pk: int, listed: Listed, left_out: Message | str = "") -> None:
    """Complete an external dataset whose objects have been listed. One that has left creating stays as it is."""
    with suppress(Missing), locked(Dataset, pk=pk) as dataset:
        if dataset.state != State.CREATING:
            return
        dataset.complete(by="copy", reason=left_out)
        dataset.size, dataset.refreshed = listed.size, timezone.now()
        dataset.save()
        tcc.confirm(id=request_id(pk), applier=APPLIER)
        manifests.record(dataset, listed, "copy")
        after_commit.wake("dataset", pk)


def _complete_row(dataset: Dataset, stored: int, by: str, reason: Message | str = "") -> None:
    dataset.complete(by=by, reason=reason)
    dataset.stored = stored
    dataset.save()
    tcc.confirm(id=request_id(dataset.pk), applier=APPLIER)
    versions.record_first(dataset, by)
    after_commit.wake("dataset", dataset.pk)


def _mismatch(dataset: Dataset, progress: int, on_disk: int) -> Refused | None:
    """Return what is wrong with the uploader's report that all bytes are stored; None when nothing is."""
    if progress != 100:
        return Refused("must be 100 for ready, not %(progress)s", field="progress", progress=progress)
    if on_disk != dataset.size:
        declared = dataset.size
        return Refused(
            "%(stored)s bytes are stored, but %(declared)s were declared",
            field="size", stored=on_disk, declared=declared,
        )  # fmt: skip
    return None


def fail(pk: int, reason: str, by: str, outcome: str = "") -> None:
    """Move the dataset from creating to error. One that has left creating, or is deleted, stays as it is."""
    with suppress(Missing, WrongState), locked(Dataset, pk=pk) as dataset:
        _fail(dataset, reason, by, outcome)


def end_upload(*, user, name: str, by: str) -> Dataset:
    """Cancel an upload: creating > error. Raises WrongState once it has ended."""
    with locked(Dataset, user=user, name=name) as dataset:
        _must_be_creating(dataset)
        _fail(dataset, CANCELLED, by, Outcome.CANCELLED)
    return dataset


def fail_silent(pk: int, since, reason: str) -> None:
    """Fail a dataset without activity since the moment `since`, unless there was some meanwhile."""
    with suppress(Missing, WrongState), locked(Dataset, pk=pk) as dataset:
        if dataset.touched <= since:
            _fail(dataset, reason, "reconcile")


def fail_all_of(user, by: str) -> None:
    """End the uploads and the locks of a user who is being de-registered, inside that transaction."""
    Lock.objects.filter(holder=user.username).delete()
    uploading = Dataset.objects.filter(user=user, state=State.CREATING).order_by("pk")
    for dataset in list(uploading.select_for_update(no_key=True)):
        _fail(dataset, accounts.DEACTIVATED, by, Outcome.CANCELLED)


def delete_dataset(*, user, name: str, by: str, trashed: datetime | None = None) -> Dataset:
    """Move the dataset from ready or error to deleting; its files are removed in the background.

    `trashed`: only if it has been in the trash since then. Raises WrongState, also while a job, sweep, pipeline or
    schedule uses it.
    """
    with locked(Dataset, user=user, name=name) as dataset:
        trash.require_since(dataset, trashed)
        if dataset.state == State.READY and dataset.trashed is None:
            uses.require_unused(dataset)
        dataset.erase(by=by)
        dataset.save()
        after_commit.enqueue("datasets.erase", dataset.pk, queue="files")
        after_commit.wake("dataset", dataset.pk)
    return dataset


def give_away(dataset: Dataset, reason: Message, by: str) -> None:
    """Move a locked dataset from ready to deleting: its files become a version of another one (datasets.publishing)."""
    dataset.erase(by=by, reason=reason)
    dataset.save()
    after_commit.enqueue("datasets.erase", dataset.pk, queue="files")
    after_commit.wake("dataset", dataset.pk)


def set_notes(*, user, name: str, notes: str) -> Dataset:
    """Save the owner's notes, in any state."""
    with locked(Dataset, user=user, name=name) as dataset:
        dataset.notes = notes
        dataset.save(update_fields=["notes"])
        after_commit.changed(user.username, "dataset", name)
    return dataset


def copying_of(pk: int) -> str:
    """Return the name of the lock of who copies a dataset's files."""
    return f"datasets.copy.{pk}"


def erase(pk: int) -> None:
    """Remove the files, then the row, and release the rom. Idempotent."""
    dataset = Dataset.objects.select_related("user").filter(pk=pk, state=State.DELETING).first()
    if dataset is None:
        return
    versions.finish_from(pk)
    folder, copying_now = storage.dataset_dir(dataset.user.username, dataset.name), Holder(copying_of(pk))
    if dataset.src and not copying_now.hold():  # it would put its files there after they are removed
        after_commit.enqueue("datasets.erase", pk, queue="files", delay_ms=ERASED_AGAIN_MS)
        return
    try:
        copying.sweep(folder)
        storage.remove_tree(folder)
        versions.remove_folders(dataset)
    finally:
        copying_now.release()
    with suppress(Missing), locked(Dataset, pk=pk) as row:
        row.delete()
        Lock.objects.filter(user=dataset.user, dataset=dataset.name).delete()
        tcc.release(id=request_id(pk), applier=APPLIER)
        after_commit.wake("dataset", pk)
        after_commit.changed(dataset.user.username, "dataset", dataset.name)


def recount(pk: int) -> None:
    """Count the bytes that are stored of a dataset that is not ready; called when its row is wrong about them."""
    while (seen := Dataset.objects.select_related("user").filter(pk=pk).first()) is not None:
        real = storage.tree_size(storage.dataset_dir(seen.user.username, seen.name))
        with locked(Dataset, pk=pk) as dataset:
            if (dataset.stored, dataset.touched) != (seen.stored, seen.touched):
                continue
            if dataset.state in {State.CREATING, State.ERROR}:
                dataset.stored = real
                dataset.save(update_fields=["stored"])
                after_commit.wake("dataset", pk)
            return


def _must_be_creating(dataset: Dataset) -> None:
    if dataset.state != State.CREATING:
        raise WrongState(
            "the dataset is %(state)s; it accepts heartbeats only during the upload", state=word(dataset.state)
        )


def _must_be_uploaded(dataset: Dataset) -> None:
    if dataset.src:
        raise WrongState("the dataset is being copied from %(src)s; nothing is uploaded to it", src=dataset.src)


def _fail(dataset: Dataset, reason: str, by: str, outcome: str = "") -> None:
    dataset.fail(by=by, reason=reason, outcome=outcome)
    dataset.save()
    tcc.confirm(id=request_id(dataset.pk), applier=APPLIER)
    after_commit.wake("dataset", dataset.pk)

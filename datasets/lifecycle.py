"""Every change of a dataset goes through here. Called by api, pages, admin, the data service, actors and reconcile.

The tenant's rom: tried when the row is made, confirmed when the upload has ended (ready or error: the bytes are
there), released when the files are gone.
"""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts import lifecycle as accounts
from kernel import after_commit, names, storage
from kernel.errors import Refused
from kernel.locking import Missing, WrongState, locked
from kernel.messages import Message, word
from kernel.models import record_created
from resources import tcc

from .models import Dataset, Lock, State

APPLIER = "dm"
REPORTED = Message("reported by the uploader")


def request_id(pk: int) -> str:
    return f"dataset:{pk}"


def create_dataset(*, user, name: str, size: int, tenant: str | None = None, by: str) -> Dataset:
    """Reserves `size` bytes of the tenant's rom and makes the row. Raises Refused naming the field."""
    names.dataset_name(name)
    found = user.tenant
    if tenant not in (None, found.name):
        raise Missing("tenant")  # somebody else's, or none at all: the two answer alike
    try:
        with transaction.atomic():
            accounts.hold_active(user)
            dataset = Dataset.objects.create(user=user, tenant=found, name=name, size=size)
            record_created(dataset, by=by)
            tcc.try_(
                id=request_id(dataset.pk),
                applier=APPLIER,
                request_type="request",
                tenant=found.name,
                owner=user.username,
                rom=size,
            )
    except IntegrityError as problem:
        if "dataset_name_once_per_user" in str(problem):
            raise Refused("you already have a dataset named %(name)s", field="name", name=name)
        raise
    return dataset


def heartbeat(*, user, name: str, state: str, progress: int, by: str) -> Dataset:
    """The uploader's report. `ready` is believed only when the bytes add up; else the dataset fails, and Refused."""
    if state == State.READY:
        return _complete(user, name, progress, by)
    with locked(Dataset, user=user, name=name) as dataset:
        _must_be_creating(dataset)
        if state == State.ERROR:
            _fail(dataset, REPORTED, by)
        else:
            dataset.progress = max(dataset.progress, progress)
            dataset.touched = timezone.now()
            dataset.save(update_fields=["progress", "touched"])
            after_commit.wake("dataset", dataset.pk)
            after_commit.changed(user.username, "dataset", name, moving=True)
    return dataset


def _complete(user, name: str, progress: int, by: str) -> Dataset:
    """The files are measured before the lock is taken, and again when an upload came in between."""
    while True:
        seen = Dataset.objects.filter(user=user, name=name).first()
        if seen is None:
            raise Missing("dataset")
        on_disk = storage.tree_size(storage.dataset_dir(user.username, name)) if seen.state == State.CREATING else 0
        with locked(Dataset, user=user, name=name) as dataset:
            _must_be_creating(dataset)
            if (dataset.pk, dataset.stored, dataset.touched) != (seen.pk, seen.stored, seen.touched):
                continue
            wrong = _mismatch(dataset, progress, on_disk)
            if wrong:
                _fail(dataset, wrong.msg, by)
            else:
                dataset.complete(by=by)
                dataset.stored = on_disk
                dataset.save()
                tcc.confirm(id=request_id(dataset.pk), applier=APPLIER)
                after_commit.wake("dataset", dataset.pk)
        if wrong:
            raise wrong
        return dataset


def _mismatch(dataset: Dataset, progress: int, on_disk: int) -> Refused | None:
    """Return what contradicts the uploader's word that all bytes are there; None when nothing does."""
    if progress != 100:
        return Refused("must be 100 for ready, not %(progress)s", field="progress", progress=progress)
    if on_disk != dataset.size:
        declared = dataset.size
        return Refused(
            "%(stored)s bytes are stored, but %(declared)s were declared",
            field="size", stored=on_disk, declared=declared,
        )  # fmt: skip
    return None


def fail(pk: int, reason: str, by: str) -> None:
    """creating > error; a dataset that is not creating any more, or gone, is left alone."""
    try:
        with locked(Dataset, pk=pk) as dataset:
            _fail(dataset, reason, by)
    except (Missing, WrongState):
        return


def fail_silent(pk: int, since, reason: str) -> None:
    """Fails a dataset whose uploader is silent, unless a sign of life came meanwhile."""
    try:
        with locked(Dataset, pk=pk) as dataset:
            if dataset.touched <= since:
                _fail(dataset, reason, "reconcile")
    except (Missing, WrongState):
        return


def fail_all_of(user, by: str) -> None:
    """Ends the uploads and the locks of a user who is being de-registered; called inside that transaction."""
    Lock.objects.filter(holder=user.username).delete()
    uploading = Dataset.objects.filter(user=user, state=State.CREATING).order_by("pk")
    for dataset in list(uploading.select_for_update(of=("self",), no_key=True)):
        _fail(dataset, accounts.DEACTIVATED, by)


def delete_dataset(*, user, name: str, by: str) -> Dataset:
    """ready, error > deleting; the files go in the background, then the row. Raises WrongState otherwise."""
    with locked(Dataset, user=user, name=name) as dataset:
        dataset.erase(by=by)
        dataset.save()
        after_commit.enqueue("datasets.erase", dataset.pk, queue="files")
        after_commit.wake("dataset", dataset.pk)
    return dataset


def erase(pk: int) -> None:
    """Removes the files, then the row, and gives the rom back. Any number of times."""
    dataset = Dataset.objects.select_related("user").filter(pk=pk, state=State.DELETING).first()
    if dataset is None:
        return
    storage.remove_tree(storage.dataset_dir(dataset.user.username, dataset.name))
    try:
        with locked(Dataset, pk=pk) as row:
            row.delete()
            Lock.objects.filter(user=dataset.user, dataset=dataset.name).delete()  # the name is free for another one
            tcc.release(id=request_id(pk), applier=APPLIER)
            after_commit.wake("dataset", pk)
            after_commit.changed(dataset.user.username, "dataset", dataset.name)
    except Missing:
        return


def recount(pk: int) -> None:
    """Notes what really lies there of a dataset that is not ready; called when the two have come apart."""
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


def _fail(dataset: Dataset, reason: str, by: str) -> None:
    dataset.fail(by=by, reason=reason)
    dataset.save()
    tcc.confirm(id=request_id(dataset.pk), applier=APPLIER)
    after_commit.wake("dataset", dataset.pk)

"""The disk space of a run's artifacts: counted with every file, and reserved in the tenant's disk.

More is reserved than stored, up to a sixteenth, so that most files are stored without the tenant's lock. A crash
between the rename of a file and the commit can make the count wrong, so files are counted again before one is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from datasets.webdav.inflight import NONE, Others
from jobs.models import ENDED, ArtifactSpace, Job, State
from kernel import disk, storage
from kernel.errors import Refused
from kernel.locking import Missing, lock_row
from kernel.messages import Message
from resources import limits, tcc
from resources.models import Tenant

from . import arriving, outputs

APPLIER = "jm"
FOLDERS = ("artifacts", "models")  # of a run's output: of the run, and of the models that it has logged
LEAST = 4096  # bytes that are reserved at a time


class NoRoom(Refused):
    """The tenant's disk, or the user's share of it, has no room for the artifact."""


def request_id(pk: int) -> str:
    return f"artifacts:{pk}"


def places(job: Job) -> list[str]:
    """Return where uploads in flight to the run count (datasets.webdav.inflight): to its owner, and in its tenant."""
    return [f"artifacts of user {job.user_id}", f"artifacts in tenant {job.tenant_id}"]


def require(job: Job, growth: int, others: Others = NONE) -> int:
    """Return how many bytes may still be stored for a run beside the other uploads in flight. Raises NoRoom or DiskFull
    when `growth` bytes more are too many.
    """
    disk.require(growth)
    if growth > 0 and (coming := others.coming()):
        disk.require(growth + coming)
    if (over := outputs.problem(job.user_id)) is not None:
        raise NoRoom(over.problem, field="artifact")
    left = min(_left(job, others), outputs.left(job.user_id) - others.at(places(job)[0]))
    if growth > left:
        problem = Message("needs %(size)s bytes more, but only %(left)s are left", size=growth, left=max(0, left))
        raise NoRoom(problem, field="artifact")
    return max(0, min(left, disk.room() - others.coming()))


def _left(job: Job, others: Others) -> int:
    """Return how many bytes the tenant and the owner's limit leave to the run beside the other uploads in flight."""
    tenant, (of_owner, in_tenant) = Tenant.objects.get(pk=job.tenant_id), places(job)
    left, owner = tenant.left("rom") - others.at(in_tenant), job.user.username
    limit = limits.limit_of(tenant.pk, owner)
    if limit is not None and limit.rom is not None:
        left = min(left, limit.rom - limits.used_by(tenant.pk, owner)["rom"] - others.at(of_owner))
    own = ArtifactSpace.objects.filter(pk=job.pk).first()
    return left + (own.reserved - own.stored if own else 0)


class Space:
    """The space of a run, locked."""

    def __init__(self, job: Job, row: ArtifactSpace):
        self.job, self.row = job, row

    def charge(self, growth: int) -> None:
        """Account for `growth` bytes, negative for files that are removed. Raises NoRoom, and changes nothing then."""
        if growth > 0 and (over := outputs.problem(self.job.user_id)) is not None:
            raise NoRoom(over.problem, field="artifact")
        stored = max(0, self.row.stored + growth)
        if stored > self.row.reserved or (self.row.reserved and padded(stored) <= self.row.reserved // 2):
            self._reserve(stored, growth)
        else:
            self.row.stored = stored
        self.row.save(update_fields=["stored", "reserved"])
        Job.objects.filter(pk=self.job.pk, state__in=ENDED).update(output_measured=None)  # it is counted again

    def _reserve(self, stored: int, growth: int) -> None:
        try:
            self._hold(stored, padded(stored))
        except Refused:
            stored = max(0, counted(self.job) + growth)
            try:
                self._hold(stored, stored)
            except Refused as refused:
                raise NoRoom(refused.problem, field=refused.field) from None

    def _hold(self, stored: int, reserved: int) -> None:
        tcc.resize(
            id=request_id(self.job.pk), applier=APPLIER, tenant=self.row.tenant_id, owner=self.job.user.username,
            rom=reserved,
        )  # fmt: skip
        self.row.stored, self.row.reserved = stored, reserved


@contextmanager
def writing(job: Job) -> Iterator[Space]:
    """Open a transaction with the run's space locked. Raises Missing for a run that is being deleted."""
    with transaction.atomic():
        row = lock_row(ArtifactSpace, pk=job.pk) or _made(job)
        yield Space(job, row)


def _made(job: Job) -> ArtifactSpace:
    """Make the row of a run's first artifact. The run's lock keeps it from being deleted meanwhile."""
    run = lock_row(Job, pk=job.pk)
    if run is None or run.state == State.DELETING:
        raise Missing("job")
    ArtifactSpace.objects.get_or_create(job=run, defaults={"user_id": run.user_id, "tenant_id": run.tenant_id})
    return lock_row(ArtifactSpace, pk=job.pk)


def close(pk: int) -> None:
    """Release the space of a run that is being deleted: nothing can be stored for it any more."""
    with transaction.atomic():
        row = lock_row(ArtifactSpace, pk=pk)
        if row is not None:
            row.delete()
            tcc.release(id=request_id(pk), applier=APPLIER)


def counted(job: Job) -> int:
    """Return the bytes of a run's artifacts, and of those that arrive in parts, counted from the files."""
    top = storage.job_dir(job.user.username, job.name)
    files = sum(storage.tree_size(top / folder, on_disk=True) for folder in FOLDERS)
    return files + arriving.charged_to(job)


def padded(stored: int) -> int:
    """Return how many bytes are reserved for so many: up to a sixteenth more."""
    step = max(LEAST, 1 << max(0, stored.bit_length() - 5))
    return -(-stored // step) * step

"""Datasets that are made of files which are here already: a job's output, or a folder of `.home` (`Dataset.src`).

The files are copied in the background, in place of an upload; the size is measured first, and reserved as a declared
one is. A copy that was killed begins again. Apps above register what they say of their kind of source (`apps.py`), and
kinds whose files they write themselves, such as the records of an application.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from django.utils import timezone

from kernel import after_commit, broker, copying, disk, storage
from kernel.errors import Refused
from kernel.messages import Message
from kernel.singleton import Holder

from . import lifecycle
from .buckets import rows as buckets
from .models import Dataset, State

KINDS = ("jobs", "home")  # whose files are in the storage
MAX_FILES = 1_000_000
AGAIN_MS = 1000
TOUCHED_EVERY_S = 1.0
AT_ONCE = 4  # with what else takes as long: fetches from buckets and their lists (datasets.buckets)
PLACES = tuple(f"datasets.copies.{number}" for number in range(AT_ONCE))
WAITS = Message("the job of its source has not exited yet")
TURN = Message("waits for the copies of other datasets")
NAMED = 5  # of what is left out


class Source(NamedTuple):
    """What an app says of the objects of its kind: whether the one of a name may be copied from (raises Refused),
    whether its files may still change by themselves, and whether all of them are still to come.
    """

    require: Callable[[Any, str], object]
    may_still_write: Callable[[Any, str], bool]
    is_to_come: Callable[[Any, str], bool]


class Writer(Protocol):
    """What writes the files of a dataset to an empty folder. It calls the function with the bytes written so far, about
    once a MiB; what that raises ends it. It returns what is to be said of the dataset, a Message, or None.
    """

    def __call__(self, row: Dataset, folder: Path, written: Callable[[int], object]) -> Message | None: ...


class _Ended(Exception):
    """The dataset is not being created any more: its owner has cancelled."""


_sources: dict[str, Source] = {}
_writers: dict[str, Writer] = {}
_checks: dict[str, Callable[[Any, str], int]] = {}
_listers: dict[str, Callable[[Dataset, Callable[[int], object]], object]] = {}


def register(kind: str, source: Source) -> None:
    """Add what allows a copy of this kind of source."""
    _sources[kind] = source


def register_writer(kind: str, writer: Writer, check: Callable[[Any, str], int] | None = None) -> None:
    """Add what writes the datasets with this kind of source. They are created by its app, or, with a `check`, by any
    user who names such a source: it returns the bytes to reserve until they are written, and raises Refused.
    """
    _writers[kind] = writer
    if check is not None:
        _checks[kind] = check


def register_lister(kind: str, lister: Callable[[Dataset, Callable[[int], object]], object]) -> None:
    """Add what completes external datasets with this kind of source: it lists their files, and calls the function
    meanwhile, which ends it by what it raises.
    """
    _listers[kind] = lister


def create(
    *, user, name: str, src: str, external: bool = False, title: str = "", tenant: str | None = None, by: str
) -> Dataset:
    """Create a dataset of the files of `jobs/{job}`, `jobs/{job}/{path}`, `home/{path}` or `s3/{bucket}/{path}`, which
    are copied next. Those of an `external` one stay in the bucket, and are only listed.

    Raises Refused, which names the field; DiskFull; Fault, with nothing stored, when the task queue is not available.
    """
    src = buckets.spelled(src)
    if external and src.partition("/")[0] not in _listers:
        raise Refused(buckets.NOT_EXTERNAL, field="external")
    size = _measured(user, src)
    broker.require()
    return lifecycle.create_dataset(
        user=user, name=name, size=size, src=src, external=external, title=title, tenant=tenant, by=by
    )


def _measured(user, src: str) -> int:
    """Return the bytes of the source's files. Raises Refused where it has none, DiskFull."""
    kind = src.partition("/")[0]
    if kind in _checks:
        return _checks[kind](user, src)
    if kind not in KINDS:
        raise Refused("must be jobs/{job}[/{path}], home/{path} or s3/{bucket}[/{path}]", field="src")
    kind, name, _path = copying.parse(src)
    if kind in _sources:
        _sources[kind].require(user, name)
    try:
        size = copying.size(copying.origin(user.username, src), MAX_FILES)
    except OSError:
        raise Refused("%(src)s cannot be read, or its path contains a symbolic link", field="src", src=src)
    if not size:
        raise Refused("%(src)s has no files, or only empty ones", field="src", src=src)
    disk.require(size)
    return size


def job_of(row: Dataset) -> str:
    """Return the name of the job whose output the dataset was copied from; "" for any other."""
    kind, _slash, rest = row.src.partition("/")
    return rest.partition("/")[0] if kind == "jobs" else ""


def copy(pk: int, follow: bool = True) -> None:
    """Copy the files, unless another worker does: a copy may take longer than the time after which it is sent again.

    One of a user at a time, and AT_ONCE of all: a copy may take hours, and the worker's threads start the jobs, too.
    """
    rows = Dataset.objects.filter(pk=pk, state=State.CREATING).exclude(src="")
    owner, ended = rows.values_list("user_id", flat=True).first(), False
    if owner is None:
        return
    with holding(lifecycle.copying_of(pk)) as alone:
        if not alone:
            return
        with holding(f"datasets.copies.of.{owner}") as first, holding(*PLACES if first else ()) as has_place:
            if has_place:
                ended = _copy(pk, follow)
            else:
                lifecycle.note_wait(pk, TURN)
    if ended:
        waiting = Dataset.objects.filter(state=State.CREATING).exclude(src="")
        firsts = waiting.order_by("user", "pk").distinct("user").values_list("pk", flat=True)  # of each user
        for other in sorted(firsts)[:AT_ONCE]:
            after_commit.enqueue("datasets.copy", other, False, queue="files")


@contextlib.contextmanager
def holding(*names: str) -> Iterator[bool]:
    """Take the first lock of these names that is free; yield whether one was."""
    for name in names:
        lock = Holder(name)
        if lock.hold():
            try:
                yield True
            finally:
                lock.release()
            return
    yield False


def _copy(pk: int, follow: bool) -> bool:
    """Copy the files; return whether that has ended, in one way or another."""
    row = Dataset.objects.select_related("user").filter(pk=pk, state=State.CREATING).exclude(src="").first()
    if row is None:
        return True
    if row.external:
        return _list(row)
    if row.src.partition("/")[0] in _writers:
        return _write(row, _writers[row.src.partition("/")[0]])
    kind, name, _path = copying.parse(row.src)
    if kind in _sources and _must_wait(row, _sources[kind], name):
        lifecycle.note_wait(pk, WAITS)
        if follow and row.size:  # else reconcile asks again
            after_commit.enqueue("datasets.copy", pk, queue="files", delay_ms=AGAIN_MS)
        return False
    target, left_out = storage.dataset_dir(row.user.username, row.name), LeftOut()
    try:
        copying.sweep(target)
        if kind in _sources:
            _sources[kind].require(row.user, name)  # it may have been deleted, and another may have its name
        origin = copying.origin(row.user.username, row.src)
        lifecycle.declare_again(pk, copying.size(origin, MAX_FILES))
        row.refresh_from_db(fields=["size"])
        copying.copy(origin, target, row.size, summed=False, copied=_Progress(row), left_out=left_out)
    except _Ended:
        return True
    except (Refused, disk.DiskFull, OSError) as problem:
        _fail(row, problem)
        return True
    lifecycle.complete_copy(pk, left_out.reason())
    return True


def _must_wait(row: Dataset, source: Source, name: str) -> bool:
    """Return whether the source may still change. Of one that was to come when the dataset was created nothing was
    measured; where something was, one that is to come is another of that name.
    """
    return source.may_still_write(row.user, name) or (not row.size and source.is_to_come(row.user, name))


def _fail(row: Dataset, problem: Refused | disk.DiskFull | OSError) -> None:
    refused = not isinstance(problem, OSError)
    reason = problem.msg if refused else Message("could not be copied (%(problem)s)", problem=problem.strerror)
    storage.remove_tree(storage.dataset_dir(row.user.username, row.name))  # of a copy that was killed at its end
    lifecycle.fail(row.pk, reason, by="copy")


def _list(row: Dataset) -> bool:
    """Let an app list the files, which stay where they are."""
    try:
        _listers[row.src.partition("/")[0]](row, _Progress(row))
    except _Ended:
        return True
    except (Refused, disk.DiskFull, OSError) as problem:
        _fail(row, problem)
    return True


def _write(row: Dataset, writer: Writer) -> bool:
    """Let an app write the files, to a folder beside the dataset's that takes its place at the end."""
    target = storage.dataset_dir(row.user.username, row.name)
    try:
        copying.sweep(target)
        with copying.beside(target) as side:
            said = writer(row, side, _Progress(row))
            lifecycle.declare_again(row.pk, storage.tree_size(side))
    except _Ended:
        return True
    except (Refused, disk.DiskFull, OSError) as problem:
        _fail(row, problem)
        return True
    lifecycle.complete_copy(row.pk, said or "")
    return True


class LeftOut:
    """Counts what is not copied, also empty folders where they are left out, and remembers the first names."""

    def __init__(self):
        self.count, self.names, self.folders = 0, [], 0

    def __call__(self, path: str) -> None:
        self.count += 1
        if len(self.names) < NAMED:
            self.names.append(storage.shown(path))

    def empty(self, path: str) -> None:
        """Count an empty folder: a bucket has none."""
        self.folders += 1
        self(f"{path}/")

    def reason(self) -> Message | str:
        if not self.count:
            return ""
        names = ", ".join([*self.names, *(["…"] if self.count > NAMED else [])])
        if self.folders == self.count:
            return Message("left out, as a bucket has no empty folders: %(count)s (%(names)s)",
                           count=self.count, names=names)  # fmt: skip
        if self.folders:
            return Message(
                "left out, as links and the like, names that cannot be sent and empty folders are: "
                "%(count)s (%(names)s)",
                count=self.count, names=names,
            )  # fmt: skip
        return Message("left out, as links and the like and names that cannot be sent are: %(count)s (%(names)s)",
                       count=self.count, names=names)  # fmt: skip


class _Progress:
    """Writes down, at most once a second, how far the copy is. Raises _Ended when nobody wants it any more."""

    def __init__(self, row: Dataset):
        self.row, self.written = row, 0.0

    def __call__(self, copied: int) -> None:
        now = time.monotonic()
        if now - self.written < TOUCHED_EVERY_S:
            return
        self.written, row = now, self.row
        wanted = Dataset.objects.filter(pk=row.pk, state=State.CREATING)
        if not wanted.update(progress=min(100 * copied // max(row.size, 1), 99), touched=timezone.now()):
            raise _Ended
        after_commit.changed(row.user.username, "dataset", row.name, moving=True)

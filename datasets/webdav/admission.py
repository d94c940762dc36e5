"""Where a caller may read and write on the data service, and how many bytes: the dataset's row and the home's limit.

`admit_write` is the quick look before an upload's body is sent; `writing` is the exact one, under the locks, around
the moment in which files change place. Both raise HttpError. Used by put.py and verbs.py.

A dataset's `stored` is kept in step with its files under the row's lock. A crash between the rename and the commit can
leave it off, so it is counted anew from the files before anything is refused for it, and when a dataset gets ready.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone
from redis.exceptions import RedisError

from accounts.models import User
from accounts.tokens import Holder
from kernel import storage
from kernel.broker import broker
from kernel.locking import lock_row

from ..models import Dataset
from . import tree
from .errors import HttpError
from .paths import Target

log = logging.getLogger(__name__)

DISK_RESERVE = 64 << 20  # bytes of the disk that uploads leave alone, so that the platform itself can go on
TOUCH_EVERY = timedelta(seconds=20)
HOME_COUNT_S = 60  # for how long the count of a home's bytes is trusted; jobs and operators write there too


def find(target: Target) -> Dataset | None:
    """The dataset's row, None for `.home`. Raises HttpError 404, the same for a missing one and a foreign one."""
    if target.is_home:
        if not User.objects.filter(username=target.user).exists():
            raise HttpError(404, "path: no such user or dataset")
        return None
    row = Dataset.objects.filter(user__username=target.user, name=target.dataset).first()
    if row is None:
        raise HttpError(404, "path: no such user or dataset")
    return row


def own(holder: Holder, target: Target) -> None:
    """Raises HttpError 404 for somebody else's tree: it looks like a missing one."""
    if target.user and target.user != holder.username and not holder.is_staff:
        raise HttpError(404, "path: no such user or dataset")


def must_be_creating(row: Dataset | None) -> None:
    if row is not None and row.state != "creating":
        raise HttpError(409, f"state: the dataset is {row.state}, files change only while it is creating")


def must_be_readable(row: Dataset | None) -> None:
    if row is not None and row.state != "ready":
        raise HttpError(409, f"state: the dataset is {row.state}, files are given out once it is ready")


def admit_write(
    target: Target, length: int | None, *, held: Callable[[], int] = lambda: 0, coming: int | None = None
) -> tuple[Dataset | None, int]:
    """May a file of this length (None: not told) be uploaded there? Returns the row, and how many bytes it may have.

    `held` counts the bytes of other files that are on their way; `coming`: bytes that come now, where not all do.
    What is on its way is always counted after what is stored: a file that moves from the one to the other in between is
    missed for once (the exact look is still to come), and never counted twice.

    Raises HttpError 404, 405, 409, 413 or 507.
    """
    row = find(target)
    must_be_creating(row)
    there = tree.look(target.steps)
    if there is not None and stat.S_ISDIR(there.st_mode):
        raise HttpError(405, "path: a folder of that name is there", Allow="PROPFIND, DELETE, MOVE, COPY")
    replaced = there.st_size if there else 0
    if row is None:
        stored = home_bytes(target.user)
        _check_home(target.user, stored, (length or 0) - replaced + held())
        left = settings.DATA_HOME_LIMIT - stored
    else:
        left = row.size - row.stored
        if (length or 0) - replaced + held() > max(left, 0):
            real = tree.size((target.user, target.dataset))
            there = tree.look(target.steps)
            replaced = there.st_size if there else 0
            _check_size(row, real, (length or 0) - replaced + held())
            left = row.size - real
        if timezone.now() - row.touched > TOUCH_EVERY:
            Dataset.objects.filter(pk=row.pk, state="creating").update(touched=timezone.now())
    disk = os.statvfs(tree.base())
    free = disk.f_bavail * disk.f_frsize - DISK_RESERVE
    if free < (length or 0 if coming is None else coming):
        raise HttpError(507, "the platform's disk is full")
    return row, min(left + replaced, free)


@dataclass
class Room:
    """A dataset (or home) held for writing; `grow` says what its files gained or lost."""

    target: Target
    row: Dataset | None

    def grow(self, by: int) -> None:
        """Accounts for `by` bytes. Raises HttpError 413 or 507 when they are too many; nothing has changed then."""
        if self.row is None:
            held = home_bytes(self.target.user)
            _check_home(self.target.user, held, by)
            _remember_home(self.target.user, held + by)
            return
        stored = self.row.stored + by
        if (by > 0 and stored > self.row.size) or stored < 0:
            real = tree.size((self.target.user, self.target.dataset))
            _check_size(self.row, real, by)
            stored = real + by
        self.row.stored, self.row.touched = stored, timezone.now()
        self.row.save(update_fields=["stored", "touched"])


@contextmanager
def writing(*targets: Target) -> Iterator[list[Room]]:
    """One transaction in which these places are locked, in one order for everybody, and in state `creating`."""
    with transaction.atomic():
        rooms = {}
        for user, dataset in sorted({(target.user, target.dataset) for target in targets}):
            target = Target(user, dataset)
            row = find(target)
            if row is None:
                _lock_home(user)
            else:
                row = lock_row(Dataset, pk=row.pk)
                if row is None:
                    raise HttpError(404, "path: no such user or dataset")
            must_be_creating(row)
            rooms[user, dataset] = Room(target, row)
        yield [rooms[target.user, target.dataset] for target in targets]


def discard(steps: tuple[str, ...]) -> Path | None:
    """Takes what lies there out of sight at once; `clear` the path returned after the commit. A sweep does it too."""
    trash = storage.spool_dir() / f"trash-{uuid.uuid4().hex}"
    try:
        with tree.folder(steps[:-1]) as parent:
            os.rename(steps[-1], trash, src_dir_fd=parent)
    except FileNotFoundError:
        return None
    return trash


def clear(trash: Path | None) -> None:
    if trash is None:
        return
    try:
        if trash.is_dir() and not trash.is_symlink():
            storage.remove_tree(trash)
        else:
            trash.unlink(missing_ok=True)
    except OSError as problem:
        log.warning("%s stays for the next sweep: %s", trash.name, problem)


def home_bytes(user: str) -> int:
    """Bytes in the user's `.home`: counted from the files at most once a minute."""
    with contextlib.suppress(RedisError, ValueError, TypeError):
        return int(broker().client.get(_home_key(user)))
    held = tree.size((user, ".home"))
    _remember_home(user, held)
    return held


def _home_key(user: str) -> str:
    return f"mlp:home:{user}"


def _remember_home(user: str, held: int) -> None:
    with contextlib.suppress(RedisError):
        broker().client.set(_home_key(user), held, ex=HOME_COUNT_S)


def _lock_home(user: str) -> None:
    """A home has no row: an advisory lock, held to the end of the transaction, stands for it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('mlp.home'), hashtext(%s))", [user])


def _check_home(user: str, held: int, growth: int) -> None:
    if growth > 0 and held + growth > settings.DATA_HOME_LIMIT:
        raise HttpError(507, f"{user}'s .home is full: {settings.DATA_HOME_LIMIT} bytes at most, {held} are stored")


def _check_size(row: Dataset, real: int, growth: int) -> None:
    if growth > 0 and real + growth > row.size:
        raise HttpError(413, f"size: the dataset was declared with {row.size} bytes, {real} are stored already")

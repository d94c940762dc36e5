"""Where a caller may read and write on the data service, and how many bytes: the dataset's row, the home's quota.

`admit_write` is the quick check before an upload's body is sent; `writing` is the exact one, under the locks, around
the rename. Both raise HttpError. Used by put/, verbs.py and the pages.

A dataset's `stored` is updated with its files under the row's lock. A crash between the rename and the commit can make
it wrong, so the files are counted again before anything is refused because of it, and when a dataset becomes ready.
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

from accounts import scopes
from accounts.models import Share, User
from accounts.sharing import access, grants
from accounts.tokens import Holder
from kernel import disk, storage
from kernel.broker import broker
from kernel.database import by_key
from kernel.effects import SUBMIT, Effect
from kernel.locking import lock_row
from kernel.messages import Message, word
from kernel.registering import ALL

from .. import home, litter
from ..models import Dataset, State
from . import tree
from .errors import HttpError
from .paths import Target

log = logging.getLogger(__name__)

TOUCH_EVERY = timedelta(seconds=20)
MAX_SHARED = 10_000  # datasets of others in a listing
HOME_COUNT_S = 60  # how long the count of a home's bytes is cached; jobs and operators write there too


def find_dataset(target: Target) -> Dataset | None:
    """Return the dataset's row, None for `.home`. Raises HttpError 404."""
    if target.is_home:
        if not User.objects.filter(username=target.user).exists():
            raise HttpError(404, "no such user or dataset", field="path")
        return None
    row = Dataset.kept.filter(user__username=target.user, name=target.dataset).first()
    if row is None:
        raise HttpError(404, "no such user or dataset", field="path")
    return row


def require_scope(holder: Holder, target: Target, effect: Effect, *, whole: bool = False) -> None:
    """Raise HttpError 403 unless the holder's token is for this. A token of one dataset may do everything to its files,
    and nothing to the `whole` of it. In `.home` a token writes no code that runs with more rights than it has.
    """
    if not scopes.may(holder, effect, target.user, "" if whole else target.dataset):
        raise HttpError(403, scopes.refused(holder).msg, field="token")
    if target.is_home and effect == SUBMIT and holder.rights != ALL:
        problem = home.refusal(target.user, target.parts, holder.rights)
        if problem is not None:
            raise HttpError(403, problem, field="token")


def require_owner(holder: Holder, target: Target) -> None:
    """Raise HttpError 404 for the files of another user, as for missing ones, and 403 where they are shared with the
    holder, who may only read them. Operators may use everybody's.
    """
    if is_own(holder, target):
        return
    require_reader(holder, target)
    raise HttpError(403, "is shared with you for reading; only its owner can change it", field="path")


def require_reader(holder: Holder, target: Target) -> None:
    """Raise HttpError 404 for the files of another user that are not shared with the holder, as for missing ones."""
    if is_own(holder, target):
        return
    visitor = access.Visitor(by_key(User, holder.user_id))
    if visitor.user is not None and target.dataset and not target.is_home:
        rows = Dataset.objects.select_related("user")
        readable = access.look_up(visitor, rows, target.user, target.dataset)
    else:
        readable = shared_datasets(holder, target.user) if not target.dataset else None
    if not readable:
        raise HttpError(404, "no such user or dataset", field="path")


def is_own(holder: Holder, target: Target) -> bool:
    """Return whether the holder may read and change what is there."""
    return not target.user or target.user == holder.username or holder.is_administrator


def shared_datasets(holder: Holder, owner: str = "") -> list[tuple[str, str]]:
    """Return (owner, name) of the datasets that are shared with the holder, of that owner where one is given."""
    user = by_key(User, holder.user_id)
    shares = grants.made_for(user).filter(kind="dataset") if user is not None else Share.objects.none()
    if owner:
        shares = shares.filter(owner__username=owner)
    rows = Dataset.kept.filter(pk__in=shares.order_by().values("object_id")).exclude(state=State.DELETING)
    names = rows.order_by("user__username", "name").values_list("user__username", "name")
    return list(names[:MAX_SHARED])


def must_be_creating(row: Dataset | None) -> None:
    """Raise HttpError 409 unless the dataset's files may change; those of `.home` (None) always may."""
    if row is not None and row.src and row.state == "creating":
        text = "the dataset is being copied from %(src)s; nothing is uploaded to it"
        raise HttpError(409, Message(text, src=row.src), field="state")
    if row is not None and row.state != "creating":
        raise HttpError(
            409,
            Message("the dataset is %(state)s; its files can only change during the upload", state=word(row.state)),
            field="state",
        )


def must_be_readable(row: Dataset | None) -> None:
    """Raise HttpError 409 unless the dataset's files are given out; those of `.home` (None) always are."""
    if row is not None and row.state != "ready":
        raise HttpError(
            409,
            Message("the dataset is %(state)s; its files can be read once it is ready", state=word(row.state)),
            field="state",
        )


def admit_write(
    target: Target, length: int | None, *, held: Callable[[], int] = lambda: 0, coming: int | None = None,
    reserved: Callable[[], int] = lambda: 0,
) -> tuple[Dataset | None, int]:  # fmt: skip
    """Check whether a file of this length (None: not declared) may be uploaded there.

    Returns the dataset's row (None for a home) and how many bytes may come. `held` counts the bytes of other files that
    are on their way; `coming` are the bytes that come now, where not all do; `reserved` counts what other uploads will
    write to the disk. What is on its way is always counted after what is stored: a file that moves from one to the
    other in between is missed (the exact check is still to come), and never counted twice.

    Raises HttpError 404, 405, 409, 413 or 507, DiskFull.
    """
    row = find_dataset(target)
    must_be_creating(row)
    length = length or 0
    replaced = _replaced_bytes(target)
    if row is None:
        stored = home_bytes(target.user)
        _check_home(target.user, stored, length - replaced + held())
        space = settings.DATA_HOME_LIMIT - stored
    else:
        space = row.size - row.stored
        if length - replaced + held() > max(space, 0):
            stored = tree.size((target.user, target.dataset)) - sum(litter.sizes(_root(target)).values())
            replaced = _replaced_bytes(target)
            if not litter.may_be(target.path):  # judged when its contents are here
                _check_size(row, stored, length - replaced + held())
            space = row.size - stored
        if timezone.now() - row.touched > TOUCH_EVERY:
            Dataset.objects.filter(pk=row.pk, state="creating").update(touched=timezone.now())
    require_room(length if coming is None else coming, reserved)
    return row, min(space + replaced, disk.room(tree.base()) - reserved())


def require_room(coming: int = 0, reserved: Callable[[], int] = lambda: 0) -> None:
    """Raise DiskFull unless the disk has room for `coming` bytes beside those `reserved`. The datasets may be on
    another disk than the database: both are asked.
    """
    disk.require()
    disk.require(coming, tree.base())
    if coming and (others := reserved()):
        disk.require(coming + others, tree.base())


def _replaced_bytes(target: Target) -> int:
    """Return the size of the file that an upload would replace, 0 for none. Raises HttpError 405 for a folder."""
    info = tree.status(target.steps)
    if info is not None and stat.S_ISDIR(info.st_mode):
        raise HttpError(405, "a folder of that name already exists", field="path", Allow="PROPFIND, DELETE, MOVE, COPY")
    return info.st_size if info else 0


@dataclass
class Quota:
    """The space of a dataset (or home) that is locked for writing; `row` is None for a home."""

    target: Target
    row: Dataset | None

    def charge(self, growth: int) -> None:
        """Account for `growth` bytes, negative for bytes that are removed.

        Raises HttpError 413 or 507 when they do not fit; nothing has changed then.
        """
        if self.row is None:
            used = home_bytes(self.target.user)
            _check_home(self.target.user, used, growth)
            _remember_home(self.target.user, used + growth)
            return
        stored = self.row.stored + growth
        if (growth > 0 and stored > self.row.size) or stored < 0:
            real = tree.size((self.target.user, self.target.dataset))
            if real + growth > self.row.size:
                real -= self._tidy(real + growth - self.row.size)
            _check_size(self.row, real, growth)
            stored = real + growth
        self.row.stored, self.row.touched = stored, timezone.now()
        self.row.save(update_fields=["stored", "touched"])

    def _tidy(self, wanted: int) -> int:
        """Remove what desktops have left if that makes room for `wanted` bytes. Return the bytes of it."""
        left = litter.sizes(_root(self.target))
        if sum(left.values()) < wanted:
            return 0
        litter.remove(_root(self.target), left)
        return sum(left.values())


@contextmanager
def writing(*targets: Target) -> Iterator[list[Quota]]:
    """Open one transaction with the targets' datasets and homes locked, and give the quota of each target.

    Everybody locks in the same order. Two targets in one dataset share a quota. Raises HttpError 404, and 409 for a
    dataset that is not `creating`.
    """
    with transaction.atomic():
        quotas = {}
        for user, dataset in sorted({(target.user, target.dataset) for target in targets}):
            target = Target(user, dataset)
            row = find_dataset(target)
            if row is None:
                _lock_home(user)
            else:
                row = lock_row(Dataset, pk=row.pk)
                if row is None:
                    raise HttpError(404, "no such user or dataset", field="path")
            must_be_creating(row)
            quotas[user, dataset] = Quota(target, row)
        yield [quotas[target.user, target.dataset] for target in targets]


def discard(steps: tuple[str, ...]) -> Path | None:
    """Move what lies there into the spool, out of sight at once. Pass the path returned to `clear` after the commit."""
    trash = storage.spool_dir() / f"trash-{uuid.uuid4().hex}"
    try:
        with tree.folder(steps[:-1]) as parent:
            os.rename(steps[-1], trash, src_dir_fd=parent)
    except FileNotFoundError:
        return None
    return trash


def clear(path: Path | None) -> None:
    """Remove a file or folder of the spool. What cannot be removed is left to the next sweep."""
    if path is None:
        return
    try:
        if path.is_dir() and not path.is_symlink():
            storage.remove_tree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as problem:
        log.warning("could not remove %s from the spool, the next sweep will try again: %s", path.name, problem)


def _root(target: Target) -> Path:
    return storage.dataset_dir(target.user, target.dataset)


def home_bytes(user: str) -> int:
    """Return the bytes in the user's `.home`, counted from the files at most once in HOME_COUNT_S seconds."""
    with contextlib.suppress(RedisError, ValueError, TypeError):
        return int(broker().client.get(_home_key(user)))
    used = tree.size((user, ".home"))
    _remember_home(user, used)
    return used


def _home_key(user: str) -> str:
    return f"mlp:home:{user}"


def _remember_home(user: str, used: int) -> None:
    with contextlib.suppress(RedisError):
        broker().client.set(_home_key(user), used, ex=HOME_COUNT_S)


def _lock_home(user: str) -> None:
    """Lock a home, which has no row, by an advisory lock until the end of the transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('mlp.home'), hashtext(%s))", [user])


def _check_home(user: str, used: int, growth: int) -> None:
    if growth > 0 and used + growth > settings.DATA_HOME_LIMIT:
        full = Message(
            "the .home of %(user)s is full: it has %(held)s bytes, the limit is %(limit)s",
            user=user, held=used, limit=settings.DATA_HOME_LIMIT,
        )  # fmt: skip
        raise HttpError(507, full)


def _check_size(row: Dataset, stored: int, growth: int) -> None:
    if growth > 0 and stored + growth > row.size:
        raise HttpError(
            413,
            Message(
                "the upload would make it %(stored)s bytes, but the dataset was declared with %(declared)s bytes",
                stored=stored + growth,
                declared=row.size,
            ),
            field="size",
        )

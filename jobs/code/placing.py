"""Writes contents that a user's saved code has into a checkout in `.home`: what a client need not send again."""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from datasets.webdav import admission, conditions, lock_store, paths, tree
from datasets.webdav.errors import HttpError
from datasets.webdav.paths import Target
from datasets.webdav.put.store import existing
from kernel import storage
from kernel.errors import Fault, Refused
from snapshots import store

PLACE = "checkouts"  # also in client/mlp_client/sending.py, which imports nothing of the platform


@dataclass(frozen=True)
class Draft:
    """A file in the spool, of `size` bytes, that is to be renamed to the target."""

    target: Target
    path: Path
    size: int


def place(username: str, folder: str, files: Mapping[str, str]) -> list[str]:
    """Write the files whose contents the user's saved code has; return the paths of the others, in order.

    `files` are SHA-256 checksums in hexadecimal by path below `.home/checkouts/{folder}`. What is there is replaced.
    All of those that are written appear together. Raises Refused for a path that is none, for a locked file, and where
    they do not fit; DiskFull, Fault.
    """
    drafts: list[Draft] = []
    missing = []
    try:
        with store.shared(username):
            for path, checksum in files.items():
                target = _target(username, f"{PLACE}/{folder}/{path}")
                blob = store.open_blob(username, checksum) or store.open_blob(username, f"{checksum}x")
                if blob is None:
                    missing.append(path)
                else:
                    drafts.append(_draft(target, blob))
        admission.require_room(sum(draft.size for draft in drafts))
        if drafts:
            _publish(username, drafts)
    except HttpError as problem:
        raise Refused(problem.problem, field=problem.field) from problem
    except (NotADirectoryError, IsADirectoryError) as problem:
        raise Refused("a file and a folder have the same path", field="path") from problem
    except OSError as problem:
        raise Fault("the files could not be written: %(problem)s", problem=problem.strerror or "") from problem
    finally:
        for draft in drafts:
            admission.clear(draft.path)
    return missing


def _target(username: str, path: str) -> Target:
    if not path.rpartition("/")[2]:
        raise Refused("must be the path of a file", field="path")
    return paths.parse(paths.href(username, paths.HOME, *path.split("/")))


def _draft(target: Target, blob: BinaryIO) -> Draft:
    """Copy a content into the spool."""
    path = storage.spool_dir() / f"copy-{uuid.uuid4().hex}"
    with blob:
        size = os.fstat(blob.fileno()).st_size
        writer = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            tree.copy_bytes(blob.fileno(), writer, size, 0)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(writer)
    tree.make_public(path)
    return Draft(target, path, size)


def _publish(username: str, drafts: list[Draft]) -> None:
    with contextlib.ExitStack() as stack:
        (quota,) = stack.enter_context(admission.writing(Target(username, paths.HOME)))
        lock_store.require(conditions.parse({}), username, *(draft.target for draft in drafts))
        parents: dict[tuple[str, ...], int] = {}
        sizes = []
        for draft in drafts:
            steps = draft.target.steps[:-1]
            if steps not in parents:
                parents[steps] = stack.enter_context(tree.folder(steps, make=True))
            old = existing(parents[steps], draft.target.steps[-1])
            if old and stat.S_ISDIR(old.st_mode):
                raise HttpError(405, "a folder of that name already exists", field="path")
            sizes.append(draft.size - (old.st_size if old and stat.S_ISREG(old.st_mode) else 0))
        quota.charge(sum(sizes))
        for draft in drafts:
            os.rename(draft.path, draft.target.steps[-1], dst_dir_fd=parents[draft.target.steps[:-1]])

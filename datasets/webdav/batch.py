"""Uploads that wait together are taken together: one look at the token, one transaction for each dataset.

What is asked for thousands of times, a new small file, costs no round trip of its own so. Called by server.py with
those that arrived meanwhile; whatever is not the plain case is left to put.store, one by one.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass

from django.db import connection
from django.db.utils import DatabaseError
from django.http import HttpRequest, HttpResponse
from psycopg import ClientCursor
from psycopg import Error as LinkError

from accounts.tokens import Holder
from kernel import storage

from . import tree
from .gate import answer_to, authenticate
from .paths import Target
from .put import at, put_target, verify_digest

LIMIT = 100_000  # a larger body is taken alone: its checksum would keep the others waiting
# headers that make an upload no plain one
SPECIAL = {"HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH", "HTTP_IF", "HTTP_CONTENT_RANGE"}

# Two round trips for all of them. A dataset that somebody else holds is not waited for here. The commit does not wait
# for the disk: were it lost with a crash of the machine, `stored` would be counted anew. `touched` is in an index, so
# it is renewed now and then only.
FIND = 'SELECT id FROM dataset WHERE user_id = (SELECT id FROM "user" WHERE username = %s) AND name = %s'
HOLD = """
BEGIN; SET LOCAL synchronous_commit = off;
SELECT size, stored FROM dataset WHERE id = %s AND state = 'creating'
AND NOT EXISTS (SELECT 1 FROM dataset_lock WHERE user_id = dataset.user_id AND dataset_lock.dataset = dataset.name)
FOR NO KEY UPDATE SKIP LOCKED
"""
KEEP = """
UPDATE dataset SET stored = %s, touched = CASE WHEN touched < now() - interval '5 s' THEN now() ELSE touched END
WHERE id = %s; COMMIT
"""
_known: dict[tuple[str, str], int] = {}  # a dataset's row keeps its user and its name as long as it lives
KNOWN_LIMIT = 10_000


@dataclass
class Upload:
    """A spooled body on its way to its place; `index` is its number among the requests."""

    index: int
    target: Target
    spool: str
    size: int


def store_all(requests: list[HttpRequest]) -> list[HttpResponse | None]:
    """Takes the plain ones among these uploads; None for each that is left to put.store."""
    answers: list[HttpResponse | None] = [None] * len(requests)
    spool, holders = str(storage.spool_dir()), {}
    groups: dict[tuple[str, str], dict[Target, Upload]] = {}
    for index, request in enumerate(requests):
        try:
            upload = _plain(index, request, spool, holders)
        except Exception as problem:
            answers[index] = answer_to(problem, "store")
            continue
        if upload is not None:
            group = groups.setdefault((upload.target.user, upload.target.dataset), {})
            group.setdefault(upload.target, upload)  # a second one of that name waits for its turn
    for group in groups.values():
        try:
            for index, replaced in _place(list(group.values())).items():
                answers[index] = HttpResponse(status=204 if replaced else 201)
        except (DatabaseError, LinkError) as problem:
            for upload in group.values():
                answers[upload.index] = answer_to(problem, "store")
    return answers


def _plain(index: int, request: HttpRequest, spool: str, holders: dict[str, Holder]) -> Upload | None:
    """The upload when it is a plain one. Raises what put.store would raise."""
    told = request.META.get("HTTP_X_DATA_FILE", "")
    if os.path.dirname(told) != spool or not SPECIAL.isdisjoint(request.META):
        return None
    shown = request.META.get("HTTP_AUTHORIZATION", "")
    if shown not in holders:
        holders[shown] = authenticate(request)
    target = put_target(request, holders[shown])
    info = os.lstat(told)
    if target.is_home or info.st_size >= LIMIT or not stat.S_ISREG(info.st_mode):
        return None
    verify_digest(request, told)
    os.chmod(told, 0o644)
    return Upload(index, target, told, info.st_size)


def _place(uploads: list[Upload]) -> dict[int, bool]:
    """Renames into place what fits, under the dataset's lock. Number of the upload -> whether it replaced a file."""
    done: dict[int, bool] = {}
    first = uploads[0].target
    connection.ensure_connection()
    link = connection.connection  # psycopg's: two statements in one message are beyond Django's cursor
    try:
        with contextlib.ExitStack() as stack, ClientCursor(link) as cursor:
            if (pk := _row_of(cursor, first)) is None:
                return done
            cursor.execute(HOLD, [pk])
            while cursor.nextset():
                pass
            if (row := cursor.fetchone()) is None:
                cursor.execute("ROLLBACK")
                _known.pop((first.user, first.dataset), None)  # perhaps another one has that name now
                return done
            limit, stored = row
            parents: dict[tuple[str, ...], int] = {}
            for upload in uploads:
                above, name = upload.target.steps[:-1], upload.target.steps[-1]
                try:
                    if above not in parents:
                        parents[above] = stack.enter_context(tree.folder(above, make=True))
                    replaced = at(parents[above], name)
                    growth = upload.size - (replaced.st_size if replaced else 0)
                    if (replaced and not stat.S_ISREG(replaced.st_mode)) or not 0 <= stored + growth <= limit:
                        continue
                    if replaced:
                        tree.carry_properties(parents[above], name, upload.spool)
                    os.rename(upload.spool, name, dst_dir_fd=parents[above])
                except OSError:
                    continue  # put.store meets it too, and says so
                stored += growth
                done[upload.index] = replaced is not None
            cursor.execute(KEEP, [stored, pk])
    except BaseException:
        connection.close()  # Django knows nothing of what was done past it
        raise
    return done


def _row_of(cursor: ClientCursor, target: Target) -> int | None:
    key = (target.user, target.dataset)
    if key not in _known:
        row = cursor.execute(FIND, key).fetchone()
        if row is None:
            return None
        if len(_known) >= KNOWN_LIMIT:
            _known.clear()
        _known[key] = row[0]
    return _known[key]

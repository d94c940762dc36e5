"""Removes what no job needs: trees of ended runs, blobs that no snapshot has, drafts of killed submissions.

Called by reconcile. What is unused is read from the rows (a blob without references) and from the folders.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from django.db.models import Q

from jobs.models import ENDED, Blob, Job, Snapshot, State
from kernel import healing, storage
from snapshots import manifest, store, tree

MAX_AT_ONCE = 500
Needed = Callable[[], set[tuple[str, str]]]
_others: list[Needed] = []


def register(needed: Needed) -> None:
    """Add a function that returns which snapshots, by user and digest, others than jobs have mounted now."""
    if needed not in _others:
        _others.append(needed)


def release(snapshot_id: int | None) -> None:
    """Remove the row of a snapshot that nothing refers to any more: no job, nor what makes jobs of it. Called in the
    transaction that has deleted the last of them and holds the user's row.
    """
    row = Snapshot.objects.select_for_update(no_key=True).filter(pk=snapshot_id).first() if snapshot_id else None
    if row is None or any(_refers(relation, row) for relation in Snapshot._meta.related_objects):
        return
    names = {file.blob for file in manifest.from_data(row.manifest).files}
    for blob in Blob.objects.filter(user=row.user_id, name__in=names).order_by("name").select_for_update():
        blob.refs -= 1
        blob.save(update_fields=["refs"])
    row.delete()


def _refers(relation, row: Snapshot) -> bool:
    return relation.related_model.objects.filter(**{relation.field.name: row}).exists()


def sweep() -> None:
    """Run one round over the users with something to remove."""
    healing.each(_sweep_drafts, sorted(store.users_with_drafts()))
    unused = Blob.objects.filter(refs=0).values_list("user_id", "user__username").distinct()[:MAX_AT_ONCE]
    healing.each(_sweep_blobs, list(unused))
    healing.each(_sweep_trees, sorted(_unneeded(_trees())))


def _sweep_drafts(user: str) -> None:
    with store.alone(user) as mine:
        for draft in store.left_by_killed(user) if mine else ():
            names = store.names_in(draft)
            known = set(Blob.objects.filter(user__username=user, name__in=names).values_list("name", flat=True))
            for name in set(names) - known:
                store.blob_path(user, name).unlink(missing_ok=True)
            storage.remove(draft)


def _sweep_blobs(user: tuple[int, str]) -> None:
    """Remove blobs, the file before its row: a row without a file is found again."""
    pk, username = user
    with store.alone(username) as mine:
        unused = Blob.objects.filter(user=pk, refs=0).order_by("pk")[:MAX_AT_ONCE] if mine else ()
        for blob in list(unused):
            store.blob_path(username, blob.name).unlink(missing_ok=True)
            blob.delete()


def _trees() -> dict[str, list[str]]:
    with contextlib.suppress(FileNotFoundError):
        return {user: os.listdir(tree.folder() / user) for user in os.listdir(tree.folder())}
    return {}


def _sweep_trees(user: str) -> None:
    with store.alone(user) as mine, contextlib.suppress(FileNotFoundError):
        place = tree.folder() / user
        for name in _unneeded({user: os.listdir(place)}).get(user, ()) if mine else ():
            storage.remove(place / name)
        with contextlib.suppress(OSError):  # others are left
            place.rmdir()


def _unneeded(contents: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the trees, by user, whose snapshot no job has that may still run."""
    alive = ~Q(state__in=[*ENDED, State.DELETING]) | ~Q(run_name="")
    digests = {tree.digest_of(name) for names in contents.values() for name in names}
    if not digests:
        return {}
    jobs = Job.objects.filter(alive, user__username__in=contents, snapshot__digest__in=digests)
    needed = set(jobs.values_list("user__username", "snapshot__digest").distinct())
    needed = needed.union(*(others() for others in _others))
    left = {
        user: [name for name in names if (user, tree.digest_of(name)) not in needed] for user, names in contents.items()
    }
    return {user: names for user, names in left.items() if names}

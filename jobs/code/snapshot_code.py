"""Takes the snapshot of a submission: first the files, then, in the submission's transaction, its rows."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings
from django.db import connection
from django.db.models import Sum

from jobs.models import Blob, Snapshot
from kernel import names, storage
from kernel.errors import Fault, Refused
from kernel.locking import lock_row
from kernel.messages import Message
from snapshots import git, scan, store
from snapshots.manifest import File, Manifest, from_data
from snapshots.seen import Seen

TRIES = 5  # to read a file that changes meanwhile
FULL = Message("your storage for code is full; delete jobs that you no longer need")
COUNT = """
    INSERT INTO code_blob (user_id, name, size, refs)
    SELECT %s, name, size, 1 FROM unnest(%s::text[], %s::bigint[]) AS new (name, size) ORDER BY name
    ON CONFLICT (user_id, name) DO UPDATE SET refs = code_blob.refs + 1
"""


@dataclass
class Taken:
    """The code of a submission. `git` describes its checkout, None if there is none."""

    manifest: Manifest
    git: dict | None = field(default=None)


@contextlib.contextmanager
def taken(
    user, entry: str, earlier: Snapshot | None = None, script: str | None = None, home: Path | None = None
) -> Iterator[Taken]:
    """Keep the folder of the script as it is now, or take the files of an earlier snapshot; `script` is a text that
    replaces the script's, `home` a folder in place of `.home`, whose hidden files are left out. The caller's block
    commits the rows (`record`); until it ends nothing is removed.

    An earlier snapshot may be another user's: its files are copied, the caller has checked the right to them.

    Raises Refused: no script, an invalid .mlpignore, a storage that is full. Raises Fault when it cannot be stored.
    """
    names.entry(entry)
    owner = earlier.user.username if earlier is not None else user.username
    with store.shared(user.username), store.shared(owner) if owner != user.username else contextlib.nullcontext():
        draft = store.Draft(user.username)
        taking = _Taking(user, entry, draft, home)
        if earlier is None:
            result = taking.of_home(script)
        else:
            manifest = taking.of_snapshot(from_data(earlier.manifest), script)
            if owner != user.username:
                taking.copy(manifest, owner)
            result = Taken(manifest, _git_of(earlier))
        draft.publish()
        yield result
        draft.close()  # not after a failure: what is not referred to is found by its draft


def record(user, code: Taken) -> Snapshot:
    """Return the row of the snapshot, locked, in the transaction that holds the user's row."""
    digest = code.manifest.digest
    row = lock_row(Snapshot, user=user, digest=digest)
    if row is not None:
        return row
    blobs = {each.blob: each.size for each in code.manifest.files}
    with connection.cursor() as cursor:
        cursor.execute(COUNT, [user.pk, list(blobs), list(blobs.values())])
    return Snapshot.objects.create(user=user, digest=digest, manifest=code.manifest.as_data())


def _git_of(earlier: Snapshot) -> dict | None:
    job = earlier.jobs.filter(capture__git__isnull=False).select_related("capture").first()
    return job.capture.git if job else None


class _Taking:
    """The state of one submission while its files are stored."""

    def __init__(self, user, entry: str, draft: store.Draft, home: Path | None = None):
        self.user, self.entry, self.draft = user, entry, draft
        self.elsewhere, self.home = home is not None, home or storage.home_dir(user.username)
        used = Blob.objects.filter(user=user).aggregate(bytes=Sum("size"))["bytes"] or 0
        self.room = max(0, settings.CODE_LIMIT - used)  # bytes that the user's new blobs may have

    def of_home(self, script: str | None) -> Taken:
        """Save the files of the script's folder within the limits: the script, then small texts, then the rest."""
        top = os.path.dirname(self.entry)
        if script is None:
            first = scan.script_of(self.home, self.entry)
            if first.size > settings.CODE_BYTES:
                limit = settings.CODE_BYTES
                raise Refused("the script must have at most %(limit)s bytes", field="entry", limit=limit)
        listing = scan.scan(self.home, self.entry)
        manifest, seen = listing.manifest, Seen(self.user.username, top)
        manifest.skipped = [each for each in manifest.skipped if each.path.rstrip("/") != self.entry]
        others = [each for each in listing.files if each.path != self.entry]
        if self.elsewhere:
            others = [each for each in others if not any(part.startswith(".") for part in each.path.split("/"))]
        kept = [self._text(script) if script is not None else self._keep(first, seen, True)]
        self._keep_others(listing, others, kept, seen)
        if self.elsewhere:  # what is not saved is not in `.home`, where the run would look for it
            manifest.skipped, manifest.open = [], []
        manifest.files = sorted(kept, key=lambda file: file.path)
        manifest.skipped.sort(key=lambda each: each.path)
        manifest.open.sort()
        seen.save()
        return Taken(manifest, git.read(self.home, top, [file.path for file in kept]))

    def _keep_others(self, listing: scan.Listing, others: list[scan.Found], kept: list[File], seen: Seen) -> None:
        left = settings.CODE_BYTES - kept[0].size
        for file in sorted(others, key=lambda each: (not each.is_text, each.size, each.path)):
            if len(kept) >= settings.CODE_FILES:
                listing.skip(file.path, "count", file.size)
            elif file.size > left:
                listing.skip(file.path, "bytes", file.size)
            elif isinstance(result := self._keep(file, seen, False), File):
                left -= result.size
                kept.append(result)
            elif result:
                listing.skip(file.path, result, file.size)

    def of_snapshot(self, manifest: Manifest, script: str | None) -> Manifest:
        """Return the manifest of an earlier snapshot; the given text replaces the script's."""
        here = os.path.dirname(self.entry) == manifest.folder
        if manifest.file(self.entry) is None and (script is None or not here):
            raise Refused("%(entry)s is not in the code of that job", field="entry", entry=self.entry)
        if script is None:
            return manifest
        before = manifest.file(self.entry)
        files = [each for each in manifest.files if each.path != self.entry]
        files.append(self._text(script, executable=bool(before and before.blob.endswith("x"))))
        manifest.files = sorted(files, key=lambda file: file.path)
        manifest.skipped = [each for each in manifest.skipped if each.path.rstrip("/") != self.entry]
        return manifest

    def copy(self, manifest: Manifest, owner: str) -> None:
        """Copy the files of another user's snapshot. Raises Refused where there is no room or they are gone."""
        for file in {each.blob: each for each in manifest.files}.values():
            if file.blob in self.draft.new or self.draft.is_kept(file.blob):
                continue
            handle = store.open_blob(owner, file.blob)
            if handle is None:
                raise Refused("the code of that job is no longer kept", field="code_from")
            with handle:
                blob, size, is_new = self.draft.add(_chunks(handle, file.size), file.blob.endswith("x"))
            if blob != file.blob:
                raise Fault("the code could not be stored: %(problem)s", problem="checksum")
            if is_new and not self._fits(blob, size):
                raise Refused(FULL, field="code_from")

    def _text(self, text: str, executable: bool = False) -> File:
        data = text.encode()
        if len(data) > settings.CODE_BYTES:
            raise Refused("must have at most %(limit)s bytes", field="script", limit=settings.CODE_BYTES)
        blob, size, is_new = self.draft.add(iter([data]), executable)
        if is_new and not self._fits(blob, size):
            raise Refused(FULL, field="script")
        return File(self.entry, blob, size)

    def _fits(self, blob: str, size: int) -> bool:
        """Account for a new blob. Return False, and forget it, when there is no room for it."""
        if size > self.room:
            self.draft.drop(blob)
            return False
        self.room -= size
        return True

    def _keep(self, file: scan.Found, seen: Seen, needed: bool) -> File | str:
        """Save one file; return the reason if that fails, "" if the file is gone. Raises Refused for the script."""
        blob = seen.blob(file)
        if blob and self.draft.is_kept(blob):
            return File(file.path, blob, file.size)
        for _ in range(TRIES):
            result = self._read(file, seen)
            if not isinstance(result, scan.Found):
                break
            file = result  # it changed while it was read
        else:
            result = "changed"
        if needed and not isinstance(result, File):
            if result == "changed":
                raise Refused("the script changes while it is read; submit the job again", field="entry")
            if result == "storage":
                raise Refused(FULL, field="entry")
            raise Refused("the script could not be read", field="entry")
        return result

    def _read(self, file: scan.Found, seen: Seen) -> File | scan.Found | str:
        handle = storage.open_file(self.home, file.path)
        if handle is None:
            return "unread" if os.path.lexists(self.home / file.path) else ""
        with handle:
            before = scan.file_of(file.path, os.fstat(handle.fileno()))
            if before.size > settings.CODE_BYTES:
                return "bytes"
            try:
                blob, size, is_new = self.draft.add(_chunks(handle, before.size), before.executable)
            except _Unread:
                return "unread"
            after = scan.file_of(file.path, os.fstat(handle.fileno()))
        if after != before or size != before.size:
            if is_new:
                self.draft.drop(blob)
            return after
        if is_new and not self._fits(blob, size):
            return "storage"
        seen.note(after, blob)
        return File(file.path, blob, size)


class _Unread(Exception):
    """The file cannot be read."""


def _chunks(handle, size: int) -> Iterator[bytes]:
    """Yield at most `size` bytes and one more, so that a file that grows is noticed and does not fill the disk."""
    left = size + 1
    while left > 0:
        try:
            chunk = handle.read(min(store.CHUNK, left))
        except OSError as problem:
            raise _Unread from problem
        if not chunk:
            return
        left -= len(chunk)
        yield chunk

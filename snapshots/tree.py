"""The files of a snapshot as a folder that runs use instead of `.home`.

Saved files are hard links to the blobs, never to the user's own files, which may be changed in place. What was not
saved is a symbolic link to the entry in `.home`, at the path at which the run sees it. A tree is put in place by a
rename and stays while a job that has not ended, or whose run still exists, has its snapshot.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
from itertools import islice
from pathlib import Path

from kernel import storage
from kernel.errors import Fault

from . import store
from .manifest import Manifest, from_data

MAX_LINKS = 200_000  # in a folder that has more entries than the manifest lists


def folder() -> Path:
    return storage.root() / "code" / ".trees"


def place_of(user: str, digest: str, live: str) -> Path:
    """Return the path of the snapshot's tree for a run; `live` is the path at which the run sees `.home`."""
    return folder() / user / f"{digest}-{hashlib.sha256(live.encode()).hexdigest()[:8]}"


def ensure(user: str, snapshot, live: str) -> Path:
    """Return the path of the snapshot's tree; create it if necessary. Raises Fault when that fails."""
    with store.shared(user):
        place = place_of(user, snapshot.digest, live)
        if place.is_dir():
            return place
        draft = place.with_name(f".{place.name}.{secrets.token_hex(6)}")
        try:
            _write_tree(draft, user, from_data(snapshot.manifest), live)
            with contextlib.suppress(FileExistsError):
                try:
                    draft.rename(place)
                except OSError as problem:
                    if problem.errno != errno.ENOTEMPTY:
                        raise
        except OSError as problem:
            raise Fault("the code could not be prepared: %(problem)s", problem=problem) from problem
        finally:
            storage.remove(draft)
    return place


def digest_of(name: str) -> str:
    """Return the snapshot's digest of a folder of `trees`; drafts of killed writers have that of none."""
    return name.partition("-")[0]


def _write_tree(draft: Path, user: str, manifest: Manifest, live: str) -> None:
    draft.mkdir(parents=True)
    names: dict[str, set[str]] = {"": set()}  # by folder

    def folder_of(path: str) -> None:
        above, _, name = path.rpartition("/")
        if above not in names:
            folder_of(above)
            (draft / above).mkdir()
            names[above] = set()
        names[above].add(name)

    for file in manifest.files:
        folder_of(file.path)
        _link(store.blob_path(user, file.blob), draft / file.path)
    for entry in manifest.skipped:
        if entry.reason == "name":  # its folder is open
            continue
        path = entry.path.rstrip("/")
        folder_of(path)
        (draft / path).symlink_to(f"{live}/{path}")
    # Above the script's folder nothing was looked at.
    above = [str(each) for each in Path(manifest.folder).parents] if manifest.folder else []
    for place in dict.fromkeys(["" if each == "." else each for each in above] + manifest.open):
        if place not in names:
            folder_of(place)
            (draft / place).mkdir()
            names[place] = set()
        _link_the_rest(draft, storage.home_dir(user), place, names[place], live)


def _link_the_rest(draft: Path, home: Path, place: str, names: set[str], live: str) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(home / place) as entries:
        for entry in islice(entries, MAX_LINKS):
            if entry.name not in names and entry.name != "__pycache__":
                (draft / place / entry.name).symlink_to(os.path.join(live, place, entry.name))


def _link(blob: Path, target: Path) -> None:
    try:
        target.hardlink_to(blob)
    except OSError as problem:
        if problem.errno not in (errno.EMLINK, errno.EXDEV, errno.EPERM, errno.ENOTSUP):
            raise
        shutil.copy(blob, target)  # too many links, or a file system without them

"""What macOS and Windows leave beside files on a network drive: sidecars, views of folders, thumbnails, bins.

They write them while a user copies files, and a refusal fails the whole copy, so the data service takes them, and a
dataset loses them when it becomes ready or when they would take its space. A file is litter by its name and its
contents: one of a user's that happens to have such a name stays. Version control (`.git`) is nothing of a desktop's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from kernel import storage
from kernel.messages import Message

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
# of a desktop.ini, in UTF-8 or UTF-16
SECTION = re.compile(rb"(\xff\xfe|\xef\xbb\xbf)?[\s\0]*\[\0?(\.\0?S\0?h\0?e\0?l\0?l|L\0?o\0?c\0?a\0?l|V\0?i\0?e\0?w)")
# Names and the beginnings that files of the kind have; an empty file, which a lock leaves, is one, too.
KINDS = (
    (re.compile(r"\._."), re.compile(rb"\x00\x05\x16\x07")),  # AppleDouble
    (re.compile(r"\.DS_Store$"), re.compile(rb"\x00\x00\x00\x01Bud1")),
    (re.compile(r"(eh)?thumbs\.db$", re.IGNORECASE), re.compile(re.escape(OLE))),
    (re.compile(r"desktop\.ini$", re.IGNORECASE), SECTION),
    (re.compile(r"~\$."), re.compile(rb"[\x01-\x36][^\x00].{160}(...)?\Z", re.DOTALL)),  # of Office: who edits
    (re.compile(r"\.~lock\..*#$"), re.compile(rb"[^\n]*,[^\n]*;\n?\Z")),  # of LibreOffice
)  # fmt: skip
FOLDERS = frozenset({
    ".Spotlight-V100", ".Trashes", ".fseventsd", ".TemporaryItems", "$RECYCLE.BIN", "System Volume Information",
})  # fmt: skip
EMPTIED = "__MACOSX"  # holds sidecars only; the folder goes where nothing else is in it
HEAD = 1024
NAMED = 5  # of the files that are named in the reason


def is_litter(path: str, body: Path) -> bool:
    """Return whether the file with this body, which has or gets this path in its dataset, is left by a desktop."""
    *folders, name = path.split("/")
    if not FOLDERS.isdisjoint(folders):
        return True
    looks = [head for named, head in KINDS if named.match(name)]
    if not looks:
        return False
    with body.open("rb") as file:
        start = file.read(HEAD)
    return not start or any(look.match(start) for look in looks)


def may_be(path: str) -> bool:
    """Return whether a file of that path can be litter."""
    *folders, name = path.split("/")
    return not FOLDERS.isdisjoint(folders) or any(named.match(name) for named, _head in KINDS)


def sizes(root: Path) -> dict[str, int]:
    """Return the bytes of each litter file below a dataset's folder, by its path."""
    return {path: info.st_size for path, info in storage.files(root) if is_litter(path, root / path)}


def remove(root: Path, files: Iterable[str]) -> None:
    """Remove these files, and the folders of desktops that are empty then."""
    files = list(files)
    for path in files:
        (root / path).unlink(missing_ok=True)
    inside = (parent for path in files for parent in Path(path).parents)
    for folder in sorted(set(inside), key=lambda each: -len(each.parts)):
        if {*FOLDERS, EMPTIED} & set(folder.parts) and not any((root / folder).iterdir()):
            (root / folder).rmdir()


def reason(files: Iterable[str]) -> Message:
    """Return what a dataset says of the files that it has lost."""
    names = [path.rpartition("/")[2] for path in files]
    few = sorted(set(names))
    shown = ", ".join(few[:NAMED]) + (", …" if len(few) > NAMED else "")
    return Message(
        "files that macOS or Windows had left were removed (%(count)s): %(names)s",
        count=len(names), names=shown[:300],
    )  # fmt: skip

"""Reading a folder's files into a repository.

A folder is swept twice: before the moment of the database, for most of the work, and again right after it, for what has
changed meanwhile. What the second sweep no longer finds is kept from the first: a row of that moment may refer to it.

A file whose size, times and inode are those of the last backup is not read again. Content is cut at CUT bytes, so of a
log that has grown only its end is stored; small files share an object. Holes of sparse files are not read (sparse.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

from . import sparse
from .repository import Repository
from .sparse import CUT

SMALL = 512 << 10
LEVELS = 100  # of folders: each holds a descriptor; as in kernel.storage
SETTLED_NS = 2 * 10**9  # a file that was changed just before may change again without a later time
TRIES = 3
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Piece = list  # [the object's name or its Future, offset, length]


@dataclass(slots=True)
class TreeEntry:
    """A folder ("d"), file ("f") or symbolic link ("l"); times are in ns, `state` is (ctime, inode) if settled."""

    kind: str
    mode: int
    user: int
    group: int
    changed: int
    size: int = 0
    sha256: str = ""
    pieces: list[Piece] = field(default_factory=list)
    state: tuple[int, int] | None = None
    target: str = ""

    @property
    def stored(self) -> int:
        """Return the bytes of the file that are no hole."""
        return sum(length for name, _, length in self.pieces if name != sparse.HOLE)

    def line(self, path: str) -> bytes:
        """Return the entry as it is stored: the path and the rest, both as JSON, with a tab between."""
        values = {"t": self.kind, "m": self.mode, "u": self.user, "g": self.group, "n": self.changed}
        if self.kind == "f":
            pieces = [[_name(piece[0]), *piece[1:]] for piece in self.pieces]
            values |= {"s": self.size, "h": self.sha256, "k": self.state, "c": pieces}
        elif self.kind == "l":
            values["l"] = self.target
        return f"{json.dumps(path)}\t{json.dumps(values, separators=(',', ':'))}".encode()


def _name(object_: str | Future) -> str:
    return object_ if isinstance(object_, str) else object_.result()


def parse(line: bytes) -> tuple[str, TreeEntry]:
    """Return path and entry of a stored line."""
    path, _, rest = line.partition(b"\t")
    values = json.loads(rest)
    common = values["t"], values["m"], values["u"], values["g"], values["n"]
    if values["t"] != "f":
        return json.loads(path), TreeEntry(*common, target=values.get("l", ""))
    state = tuple(values["k"]) if values["k"] else None
    return json.loads(path), TreeEntry(*common, values["s"], values["h"], values["c"], state)


class Packer:
    """Puts the contents of small files together into objects."""

    def __init__(self, repository: Repository):
        self.repository = repository
        self.waiting: list[Piece] = []
        self.buffer = bytearray()
        self.seen: dict[str, Piece] = {}

    def add(self, data: bytes, sha256: str) -> Piece:
        """Return where the content will be; the same content is stored once."""
        piece = self.seen.get(sha256)
        if piece is None:
            piece = self.seen[sha256] = ["", len(self.buffer), len(data)]
            self.waiting.append(piece)
            self.buffer += data
            if len(self.buffer) >= CUT:
                self.flush()
        return piece

    def flush(self) -> None:
        if self.waiting:
            future = self.repository.put(bytes(self.buffer))
            for piece in self.waiting:
                piece[0] = future
            self.waiting, self.buffer = [], bytearray()


class Tree:
    """The files of a backup.

    `before` are the lines of the last backup, by the JSON of their path. `unreadable` lists what could not be read,
    `gone` counts what vanished between the sweeps.
    """

    def __init__(self, repository: Repository, before: dict[bytes, bytes]):
        self.repository, self.before = repository, before
        self.entries: dict[str, TreeEntry] = {}
        self.unreadable: list[str] = []
        self.packer = Packer(repository)
        self.gone = 0

    def sweep(
        self, top: str | os.PathLike, prefix: str = "", leaves_out: Callable[[str], bool] = lambda path: False
    ) -> None:
        """Read what is new below `top`, except for paths that `leaves_out` says; paths are stored with the prefix."""
        present = set()
        for path, name, here in _walk(top, prefix, leaves_out, self.unreadable):
            present.add(path)
            try:
                entry = self._look(path, name, here)
            except FileNotFoundError:  # removed meanwhile
                continue
            except OSError as problem:
                self.unreadable.append(f"{path}: {problem.strerror}")
                continue
            if entry is not None:
                self.entries[path] = entry
        self.packer.flush()
        self.gone = sum(path.startswith(prefix) and path not in present for path in self.entries)

    def lines(self) -> Iterator[bytes]:
        """Yield the entries as they are stored; those of folders come before what is in them."""
        left_out: set[str] = set()  # what was below a folder that has become a file or a link between the sweeps
        for path in sorted(self.entries):
            above = path.rpartition("/")[0]
            if above in left_out or (above in self.entries and self.entries[above].kind != "d"):
                left_out.add(path)
            else:
                yield self.entries[path].line(path)

    @property
    def size(self) -> int:
        return sum(entry.stored for entry in self.entries.values())

    def _look(self, path: str, name: str, here: int) -> TreeEntry | None:
        info = os.stat(name, dir_fd=here, follow_symlinks=False)
        common = stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid, info.st_mtime_ns
        if stat.S_ISDIR(info.st_mode):
            return TreeEntry("d", *common)
        if stat.S_ISLNK(info.st_mode):
            return TreeEntry("l", *common, target=os.readlink(name, dir_fd=here))
        if not stat.S_ISREG(info.st_mode):
            return None  # a socket or a pipe: there is nothing in it
        old = self._known(path)
        if old is not None and self._is_same(old, info):
            return TreeEntry("f", *common, old.size, old.sha256, old.pieces, old.state)
        return self._read(name, here, common, old)

    def _known(self, path: str) -> TreeEntry | None:
        """Return the entry of the first sweep, else that of the last backup, whose objects must still be there."""
        if path in self.entries:
            return self.entries[path]
        line = self.before.get(json.dumps(path).encode())
        old = parse(line)[1] if line else None
        if old is None or not all(piece[0] == sparse.HOLE or piece[0] in self.repository.known for piece in old.pieces):
            return None
        return old

    @staticmethod
    def _is_same(old: TreeEntry, info: os.stat_result) -> bool:
        now = info.st_size, info.st_mtime_ns, (info.st_ctime_ns, info.st_ino)
        return (old.size, old.changed, old.state) == now

    def _read(self, name: str, here: int, common: tuple[int, int, int, int], old: TreeEntry | None) -> TreeEntry:
        """Read a file; again while it is changed meanwhile, at most TRIES times: what is written all the time, such as
        a log, is taken as far as it was read.
        """
        for attempt in range(1, TRIES + 1):
            with os.fdopen(os.open(name, FILE, dir_fd=here), "rb", buffering=0) as file:
                began = os.fstat(file.fileno())
                if not stat.S_ISREG(began.st_mode):  # exchanged just now
                    raise FileNotFoundError(name)
                size, sha256, pieces = self._store(file, began.st_size, old)
                ended = os.fstat(file.fileno())
            still = (began.st_size, began.st_mtime_ns, began.st_ctime_ns)
            quiet = still == (ended.st_size, ended.st_mtime_ns, ended.st_ctime_ns)
            if quiet or attempt == TRIES or size == began.st_size < ended.st_size:
                break
        latest = max(began.st_mtime_ns, began.st_ctime_ns)
        state = (began.st_ctime_ns, began.st_ino) if quiet and time.time_ns() - latest > SETTLED_NS else None
        return TreeEntry("f", *common[:3], began.st_mtime_ns, size, sha256, pieces, state)

    def _store(self, file, size: int, old: TreeEntry | None) -> tuple[int, str, list[Piece]]:
        """Store the first `size` bytes of a file; return how many there were, their checksum and where they are."""
        if size <= SMALL:
            return self._store_small(_read_full(file, size), old)
        whole, pieces, position = hashlib.sha256(), [], 0
        for begin, end, has_data in sparse.extents(file, size):
            if not has_data:
                whole.update(sparse.mark(end - begin))
                pieces.append([sparse.HOLE, 0, end - begin])
                position = end
                continue
            file.seek(begin)
            for position in _cuts(begin, end):
                data = _read_full(file, position - begin)
                whole.update(data)
                if data and len(data) <= SMALL and (begin, end) != (0, size):  # one of many parts between holes
                    pieces.append(self.packer.add(data, hashlib.sha256(data).hexdigest()))
                elif data:
                    pieces.append([self.repository.put(data), 0, len(data)])
                if len(data) < position - begin:  # the file has become shorter
                    return begin + len(data), whole.hexdigest(), pieces
                begin = position
        return position, whole.hexdigest(), pieces

    def _store_small(self, data: bytes, old: TreeEntry | None) -> tuple[int, str, list[Piece]]:
        sha256 = hashlib.sha256(data).hexdigest()
        if not data or (old is not None and old.sha256 == sha256):
            return len(data), sha256, old.pieces if data else []
        return len(data), sha256, [self.packer.add(data, sha256)]


def _cuts(begin: int, end: int) -> Iterator[int]:
    """Yield where a range is cut: at multiples of CUT, whatever is before it, and at its end."""
    while begin < end:
        begin = min(end, (begin // CUT + 1) * CUT)
        yield begin


def _read_full(file, count: int) -> bytes:
    """Return so many bytes, fewer at the end only."""
    data = file.read(count)
    while 0 < len(data) < count and (more := file.read(count - len(data))):
        data += more
    return data


def _walk(
    top: str | os.PathLike, prefix: str, leaves_out: Callable[[str], bool], unreadable: list[str]
) -> Iterator[tuple[str, str, int]]:
    """Yield (path, name, descriptor of its folder) of everything below `top`. Each folder is opened from the one above,
    so that none can be exchanged for a link meanwhile.
    """

    def note(problem: OSError) -> None:
        if not isinstance(problem, FileNotFoundError):
            unreadable.append(f"{prefix}{os.path.relpath(problem.filename or '.', top)}: {problem.strerror}")

    handle = os.open(top, FOLDER)
    try:
        for folder, folders, names, here in os.fwalk(".", dir_fd=handle, follow_symlinks=False, onerror=note):
            inside = prefix + ("" if folder == "." else folder.removeprefix("./") + "/")
            folders[:] = sorted(name for name in folders if not leaves_out(inside + name))
            for name in sorted((*folders, *names)):
                if not leaves_out(inside + name):
                    yield inside + name, name, here
            if folder.count("/") >= LEVELS and folders:
                unreadable.append(f"{inside}: nested more than {LEVELS} levels deep")
                folders.clear()
    finally:
        os.close(handle)

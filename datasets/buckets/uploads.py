"""Uploads to external datasets: presigned addresses by which a client writes files to the bucket itself.

Nothing is kept of an upload: what is in the bucket says how far it is, and the dataset's next refresh lists it. So the
client also gets the addresses that ask the bucket what it has: of an object, of an unfinished upload in parts, and of
its parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from kernel import names, storage
from kernel.errors import Refused
from kernel.locking import Missing, WrongState

from ..models import Dataset, State
from . import manifests, rows
from .signing import Signer
from .store import SIGNED_FOR
from .writing import MOST_KEY, kind_of, part_bytes

MOST_FILES = 500  # of a call
MOST_NUMBERS = 100  # parts, of a call
MOST_BYTES = 5 << 40  # of an object, as S3 has it
UPLOAD_ID = r"[^\x00-\x1f\x7f]{1,1024}"
EXPIRES_S = int(SIGNED_FOR.total_seconds())


def upload_id(value: str, field: str = "upload") -> str:
    """Return the name that a bucket has given to an upload in parts. Raises Refused."""
    if not re.fullmatch(UPLOAD_ID, value):
        raise Refused("must be the UploadId that the bucket has given", field=field)
    return value


class Wanted(NamedTuple):
    """A file that is to be uploaded: its path in the dataset, and its bytes."""

    path: str
    size: int

    @property
    def part(self) -> int:
        """Return the bytes of a part; 0 where the file is sent whole."""
        most = part_bytes(self.size)
        return most if self.size > most else 0

    @property
    def parts(self) -> int:
        """Return the number of parts; 0 where the file is sent whole."""
        return -(-self.size // self.part) if self.part else 0


class Place:
    """Where the files of a dataset go. Raises Missing, WrongState; Refused where its owner may not write there."""

    def __init__(self, user, name: str):
        row = Dataset.objects.filter(user=user, name=name).select_related("user").first()
        if row is None:
            raise Missing("dataset")
        if not row.external:
            raise WrongState("the files of the dataset %(name)s are not in a bucket", name=name)
        if row.state != State.READY or row.trashed is not None:
            raise WrongState("the dataset %(name)s is not ready", name=name)
        bucket, path = rows.parse(row.src)
        self.signer = Signer(rows.find_writable(row.user, bucket, "name"))
        listed = manifests.of(row, row.version)
        self.top, self.only = listed.top, "" if listed.top == path else path.rpartition("/")[2]
        self.files = {entry.path for entry in listed.entries}
        self.folders = {parent for each in self.files for parent in _parents(each)}

    def key(self, path: str) -> str:
        """Return the path of a file below the folder of the bucket."""
        return f"{self.top}/{path}" if self.top else path

    def take(self, wanted: Wanted) -> None:
        """Count a file as one of the dataset. Raises Refused where it cannot be one."""
        path = names.file_path(wanted.path, "")
        if len(self.signer.key(self.key(path)).encode()) > MOST_KEY:
            raise Refused("its key would have more than %(limit)s bytes", limit=MOST_KEY)
        if path.count("/") >= storage.LEVELS:
            raise Refused("must not nest folders more than %(limit)s deep", limit=storage.LEVELS)
        if not 0 <= wanted.size <= MOST_BYTES:
            raise Refused("a file must have 0 to %(limit)s bytes", limit=MOST_BYTES)
        if self.only and path != self.only:
            raise Refused("the dataset is the one object %(path)s", path=self.only)
        if path in self.folders:
            raise Refused("is a folder of the dataset")
        if above := next((each for each in _parents(path) if each in self.files), None):
            raise Refused("the dataset has a file %(path)s, which cannot be a folder", path=above)
        if path not in self.files and len(self.files) >= manifests.MAX_OBJECTS:
            raise Refused("the dataset can have at most %(limit)s files", limit=manifests.MAX_OBJECTS)
        self.files.add(path)
        self.folders.update(_parents(path))


def _parents(path: str) -> Iterable[str]:
    while path := path.rpartition("/")[0]:
        yield path


def ask(*, user, name: str, files: list[dict]) -> dict:
    """Return the addresses for each file, or the reason why it cannot be uploaded. Raises as Place."""
    place, seen = Place(user, name), set()
    answers = []
    for wanted in (Wanted(**each) for each in files):
        try:
            if wanted.path in seen:
                raise Refused("is named more than once")
            place.take(wanted)
            answers.append(_addresses(place, wanted))
        except Refused as problem:
            answers.append({"path": storage.shown(wanted.path), "size": wanted.size, "reason": problem.problem})
        seen.add(wanted.path)
    return {"expires": EXPIRES_S, "files": answers}


def _addresses(place: Place, wanted: Wanted) -> dict:
    key, address = place.key(wanted.path), place.signer.address
    kind = kind_of(wanted.path)
    typed = {"content_type": kind} if kind else {}
    found = {
        "path": wanted.path, "size": wanted.size, "type": kind, "part": wanted.part, "parts": wanted.parts,
        "key": place.signer.key(key), "head": address("HEAD", key),
    }  # fmt: skip
    if not wanted.part:
        return {**found, "put": address("PUT", key, content_length=str(wanted.size), **typed)}
    unfinished = {"uploads": "", "prefix": place.signer.key(key)}
    return {**found, "create": address("POST", key, {"uploads": ""}, **typed), "find": address("GET", "", unfinished)}


def ask_parts(*, user, name: str, path: str, size: int, upload: str, numbers: list[int]) -> dict:
    """Return the addresses for parts of a file, and for completing it. Raises Refused, and as Place."""
    place, wanted = Place(user, name), Wanted(path, size)
    try:
        place.take(wanted)
    except Refused as problem:
        raise Refused(problem.problem, field="path") from problem
    if not wanted.part:
        raise Refused("a file of at most %(limit)s bytes is sent whole", field="size", limit=part_bytes(size))
    if numbers and max(numbers) > wanted.parts:
        raise Refused("the file has %(parts)s parts", field="numbers", parts=wanted.parts)
    key, address, query = place.key(path), place.signer.address, {"uploadId": upload}
    parts = []
    for number in numbers:
        length = min(wanted.part, size - (number - 1) * wanted.part)
        asked = {**query, "partNumber": str(number)}
        put = address("PUT", key, asked, content_length=str(length))
        parts.append({"number": number, "size": length, "put": put})
    listed = {**query, "part-number-marker": str(min(numbers, default=1) - 1)}
    return {
        "expires": EXPIRES_S, "parts": parts, "list": address("GET", key, listed),
        "complete": address("POST", key, query),
    }  # fmt: skip

"""Which file a `/data/…` address means: the path rules of the data service, pure functions without Django's request.

The raw request target is decoded exactly once, here, part by part, so no encoding trick can add a part, leave a folder
or give one file two names. Used by all of datasets.webdav.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes, urlsplit

from kernel import names
from kernel.errors import Refused
from kernel.messages import Message

from .errors import HttpError

HOME = ".home"
PREFIX = "/data"
DEPTH_LIMIT = 100  # folders in one path
LENGTH_LIMIT = 2000  # bytes of one decoded path, so that it fits into the system's 4096 with the storage root
BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class Target:
    """`/data`, `/data/{user}`, `/data/{user}/{dataset}` or `/data/{user}/{dataset}/{parts}`."""

    user: str = ""
    dataset: str = ""
    parts: tuple[str, ...] = ()
    slash: bool = False  # the address ended with "/", so a folder is meant

    @property
    def is_home(self) -> bool:
        return self.dataset == HOME

    @property
    def path(self) -> str:
        """Return the file's path inside its dataset."""
        return "/".join(self.parts)

    @property
    def steps(self) -> tuple[str, ...]:
        """Return the folders and the file below `{root}/datasets`."""
        return tuple(step for step in (self.user, self.dataset) if step) + self.parts


def parse(raw: str) -> Target:
    """Return what a raw request target (Latin-1 characters, as in WSGI) addresses. Raises HttpError 400, 404."""
    raw = raw.split("?", 1)[0]
    folder, _slash, name = raw.rpartition("/")
    if name and len(folder) > len(PREFIX) and (above := _parsed(folder)).dataset and not above.slash:
        name = _decode(name)
        parts = (*above.parts, name)
        _check([above.user, above.dataset, *parts], name)
        return Target(above.user, above.dataset, parts)
    return _parsed(raw)


@functools.lru_cache(1024)  # one file after another goes to the same folder
def _parsed(raw: str) -> Target:
    """Return what a raw request target without a query addresses."""
    if raw != PREFIX and not raw.startswith(PREFIX + "/"):
        raise HttpError(400, "must begin with /data/", field="path")
    segments = raw[len(PREFIX) + 1 :].split("/")
    slash = segments[-1] == ""
    if slash:
        segments.pop()
    parts = [_decode(segment) for segment in segments]
    if not parts:
        return Target(slash=slash)
    _check(parts, "/".join(parts))
    user, dataset = parts[0], parts[1] if len(parts) > 1 else ""
    _check_names(user, dataset)
    return Target(user, dataset, tuple(parts[2:]), slash)


def _check(parts: list[str], new: str) -> None:
    """Raise HttpError 400 for a path that no file can have; `new` is what of it has not been checked."""
    try:
        names.file_path(new)
    except Refused as refused:
        raise HttpError(400, refused.msg)
    if len(parts) > DEPTH_LIMIT + 2 or len("/".join(parts).encode()) > LENGTH_LIMIT:
        raise HttpError(
            400,
            Message(
                "must have at most %(bytes)s bytes and %(folders)s folders", bytes=LENGTH_LIMIT, folders=DEPTH_LIMIT
            ),
            field="path",
        )


def parse_destination(header: str, host: str) -> Target:
    """Return what a `Destination` header (RFC 4918, 10.3) addresses. Raises HttpError 400, 403, 404."""
    if not header:
        raise HttpError(400, "is required", field="Destination")
    try:
        pieces = urlsplit(header)
    except ValueError:
        raise HttpError(400, "must be a URL", field="Destination")
    if pieces.netloc and pieces.netloc.lower() != host.lower():
        raise HttpError(403, "must be on this server", field="Destination")
    if pieces.query or pieces.fragment:
        raise HttpError(400, "must not have a query or fragment", field="Destination")
    return parse(pieces.path)


def href(*steps: str, folder: bool = False) -> str:
    """Return the percent-encoded address of these steps below `/data`."""
    return "/".join([PREFIX, *(quote(step, safe="") for step in steps)]) + ("/" if folder else "")


def _decode(segment: str) -> str:
    if BROKEN_ESCAPE.search(segment) or "#" in segment:
        raise HttpError(400, "must be percent-encoded", field="path")
    try:
        part = unquote_to_bytes(segment.encode("latin-1")).decode()
    except UnicodeError:  # characters that are no bytes, or bytes that are not UTF-8
        raise HttpError(400, "must be valid UTF-8", field="path")
    if "/" in part:
        raise HttpError(400, "must not contain an encoded '/'", field="path")
    return part


def _check_names(user: str, dataset: str) -> None:
    """Raise HttpError 404 for names that no user or dataset can have, as for missing ones."""
    try:
        names.name(user, "user")
        if dataset and dataset != HOME:
            names.dataset_name(dataset)
    except Refused:
        raise HttpError(404, "no such user or dataset", field="path")

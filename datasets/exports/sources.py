"""What can be sent to a bucket: datasets here, other kinds as the apps above register them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from kernel import names, storage
from kernel.errors import Refused
from kernel.messages import Message

from .. import versions
from ..models import Dataset, State

UNKNOWN = Message("must be datasets/{dataset}[@{version}], jobs/{job}[/{path}] or models/{model}")
GONE = Message("%(src)s was deleted, and is another one now")


class Source(NamedTuple):
    """Files to send: how they are named, with a version where they have one, the object they belong to, their path, and
    whether they may still change by themselves.
    """

    src: str
    object_id: int
    path: Path
    may_change: bool = False


Finder = Callable[[Any, str], Source]
_finders: dict[str, Finder] = {}


def register(kind: str, finder: Finder) -> None:
    """Add what finds the files of a user's source, of which the first part names its kind. It raises Refused."""
    _finders[kind] = finder


def find(user, src: str) -> Source:
    """Return the files that a source names. Raises Refused, which names the field; RunnerError."""
    kind, slash, rest = src.partition("/")
    if kind not in _finders or not slash:
        raise Refused(UNKNOWN, field="src")
    return _finders[kind](user, rest.removesuffix("/"))


def require_same(user, src: str, object_id: int) -> Source:
    """Return the files of a source that was found before. Raises Refused where it is gone, or another one."""
    found = find(user, src)
    if found.object_id != object_id:
        raise Refused(GONE, src=src)
    return found


def dataset(user, rest: str) -> Source:
    """Return the files of a dataset, of its current version where none is named."""
    name, at, wanted = rest.partition("@")
    row = Dataset.kept.filter(user=user, name=name).select_related("user").first() if "\0" not in name else None
    if row is None:
        raise Refused("you have no dataset named %(name)s", field="src", name=storage.shown(name))
    if row.state != State.READY or row.incoming_id is not None:
        raise Refused("the dataset %(name)s is not ready", field="src", name=name)
    if row.external:
        raise Refused("the files of the dataset %(name)s are in a bucket already", field="src", name=name)
    number = row.version if not at else versions.find(row, wanted) if re.fullmatch(names.VERSION, wanted) else None
    if number is None:
        raise Refused("the dataset %(name)s has no such version", field="src", name=name)
    path = storage.root() / "datasets" / Path(*versions.steps_of(row, number))
    return Source(f"datasets/{name}@{number}", row.pk, path)

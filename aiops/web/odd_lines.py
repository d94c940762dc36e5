"""A log line of REST that is not as documented, read so that it is not lost: shippers drop for good what is refused.

Null counts as absent. What is no text becomes JSON; what cannot be stored is replaced (accept.line), what is too long
cut there; a time that cannot be read stays among the attributes. The answer says so for each line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from aiops.intake import accept
from kernel import sanitize
from kernel.errors import Refused
from kernel.lenient import text_of
from kernel.messages import Message, joined, under

from .logs_serializers import ALSO, TEXTS, time_of

LOG = ("log", *ALSO["log"])
TIME = ("time", *ALSO["time"])
NAMES = tuple(name for name in TEXTS if name not in LOG)
IS_TEXT = Message("is stored as text")


def read(data: object) -> tuple[dict, Message | None]:
    """Return the fields of a line, and what was odd in it. Raises Refused for one without any content."""
    if not isinstance(data, dict):
        raise Refused("must be a JSON object", field="body")
    known = {*LOG, *TIME, *NAMES, "attributes"}
    left = {name: value for name, value in data.items() if value is not None or name not in known}
    row: dict = {}
    odd: list[Message] = []
    _take_time(left, row, odd)
    for name in NAMES:
        value = left.pop(name, "")
        if value != "":
            row[name] = _text(name, value, odd)
    if "_id" in row:
        row["_id"] = _short(row["_id"])
    attributes = left.pop("attributes", {})
    if not isinstance(attributes, dict):
        odd.append(under("attributes", IS_TEXT))
        attributes = {"attributes": attributes}
    name = next((name for name in LOG if left.get(name, "") != ""), None)
    text = None if name is None else left.pop(name)
    attributes |= {key: value for key, value in left.items() if key not in LOG or value != ""}
    if name is None:
        row["log"] = _without_text(attributes, left, odd)
    else:
        row["log"] = _text("log", text, odd)
        row["attributes"] = attributes
        _check_attributes(attributes, odd)
    return row, joined(odd) if odd else None


def _take_time(left: dict, row: dict, odd: list[Message]) -> None:
    """Move the first time that can be read to the row; those that cannot stay where they are."""
    given = [name for name in TIME if left.get(name, "") != ""]
    for name in given:
        at = time_of(left[name])
        if at is not None:
            row["time"] = at
            del left[name]
            return
    if given:
        odd.append(under(given[0], Message("cannot be read; the line has the time of its arrival")))


def _text(name: str, value: object, odd: list[Message]) -> str:
    text = text_of(value)
    if not isinstance(value, str):
        odd.append(under(name, IS_TEXT))
    if len(text) > TEXTS[name] and name != "_id":
        odd.append(under(name, Message("is cut to %(limit)s characters", limit=TEXTS[name])))
    _check_characters(name, (text,), odd)
    return text


def _check_characters(name: str, texts: Iterable[object], odd: list[Message]) -> None:
    if any(isinstance(text, str) and sanitize.UNSTORABLE.search(text) for text in texts):
        odd.append(under(name, Message("has characters that cannot be stored; they are replaced")))


def _check_attributes(attributes: dict, odd: list[Message]) -> None:
    if len(attributes) > accept.MAX_ATTRIBUTES:
        odd.append(under("attributes", Message("only the first %(limit)s are stored", limit=accept.MAX_ATTRIBUTES)))
    _check_characters("attributes", (*attributes, *attributes.values()), odd)


def _without_text(attributes: dict, left: dict, odd: list[Message]) -> str:
    """Return the text of a line that has none: its other fields. Raises Refused where there are none."""
    if not any(value is not None for value in attributes.values()):
        if any(name in left for name in LOG):
            raise Refused("is empty", field="log")
        raise Refused("is required", field="log")
    odd.append(under("log", Message("is missing; the line is the text of its other fields")))
    return text_of(attributes)


def _short(id: str) -> str:
    """Return an id that is too long with a digest in place of its end, the same when it is sent again."""
    if len(id) <= accept.MAX_ID:
        return id
    digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[: accept.HASHED]
    return f"{id[: accept.MAX_ID - accept.HASHED - 1]}-{digest}"

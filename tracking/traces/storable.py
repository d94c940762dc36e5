"""Attributes made storable: bounded in size, number and depth, without what PostgreSQL refuses in JSON.

What is cut is marked by the ending `…` of a text, or by the attribute `mlp.dropped`, the number of attributes that were
left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice

from kernel import sanitize
from kernel.lenient import text_of

MAX_TEXT = 256 << 10  # characters of one text
MAX_SPAN = 1 << 20  # characters of all values of one span's attributes, and of its events
MAX_RESOURCE = 8 << 10  # characters of a resource, which each of its spans has
MAX_ATTRIBUTES, MAX_EVENTS = 1000, 1000  # of one span
MAX_KEY = 250
MAX_DEPTH = 20
DROPPED = "mlp.dropped"


def attributes(given: Mapping[str, object], room: int = MAX_SPAN) -> dict[str, object]:
    """Return attributes that can be stored. Small ones come first, so that a large one costs only itself."""
    made: dict[str, object] = {}
    sized = {name: _value(value, MAX_DEPTH) for name, value in list(given.items())[:MAX_ATTRIBUTES]}
    sizes = {name: len(text_of(value)) for name, value in sized.items()}
    for name in sorted(sized, key=lambda each: sizes[each]):
        size = sizes[name] + len(name)
        if size > room:
            value = sized[name]
            if not isinstance(value, str) or room < 1000:
                continue
            sized[name], size = f"{value[: room - len(name) - 1]}…", room
        room -= size
        made[name] = sized[name]
    ordered = {sanitize.text(name)[:MAX_KEY]: made[name] for name in sized if name in made}
    if left := len(given) - len(made):
        ordered[DROPPED] = left
    return ordered


def events(given: Iterable[Mapping]) -> list[dict]:
    """Return the events of a span that can be stored: the first ones."""
    made, room = [], MAX_SPAN
    for event in islice(given, MAX_EVENTS):
        values = attributes(event["attributes"], room)
        made.append({"name": sanitize.text(event["name"])[:500], "at_ns": event["at_ns"], "attributes": values})
        room -= len(text_of(values)) + 50
        if room <= 0:
            break
    return made


def _value(value: object, depth: int) -> object:
    """Return the value without what JSON in PostgreSQL cannot have: NUL, halves of surrogate pairs, NaN, infinities."""
    if isinstance(value, str):
        text = sanitize.text(value)
        return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict | list) and not depth:
        return sanitize.text(text_of(value))[:MAX_TEXT]
    if isinstance(value, dict):
        return {sanitize.text(text_of(name))[:MAX_KEY]: _value(inner, depth - 1) for name, inner in value.items()}
    if isinstance(value, list):
        return [_value(inner, depth - 1) for inner in value]
    return value if value is None or isinstance(value, bool | int | float) else sanitize.text(text_of(value))

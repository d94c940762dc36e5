"""Trying an application from its page: an example input for its model, and one request with it. Used by pages.

The request goes to the application itself, as the application gateway would send it, with nothing of the visitor's.
"""

from __future__ import annotations

import http.client
import json
import math
import time
from dataclasses import dataclass

from django.core.cache import cache

from kernel import outbound, sanitize
from kernel.errors import Refused
from kernel.messages import word

from .models import Application, State

LIMIT_S = 20
MOST_SENT = 1 << 20
MOST_SHOWN = 256 << 10
MOST_NUMBERS = 4096  # in an example that is written out
MOST_SCORES = 20
LARGEST_SCORE = 1e300  # so that sums of them are numbers, too
UNKNOWN = [{"name": "input", "datatype": "FP32", "shape": [-1]}]  # as the serving process takes it


@dataclass(frozen=True)
class Answer:
    """What came back: HTTP's status (0: nothing came), after how long, and the text, readable where it is JSON.

    `scores`: where the first output is one short row of numbers, each with its place and its share of the way from the
    least (0) to the largest (100).
    """

    status: int
    ms: float
    text: str
    cut: bool = False
    scores: tuple[tuple[int, float, int], ...] = ()

    @property
    def good(self) -> bool:
        return self.status == 200


@dataclass(frozen=True)
class Example:
    """An input of the right form: as JSON ("" when it would be too long), and as an expression of Python."""

    json: str
    python: str


def inputs_of(signature) -> list[dict]:
    """The inputs that the check has found, made sure of: a model's own words may be anything."""
    told = signature.get("inputs") if isinstance(signature, dict) else None
    listed = told if isinstance(told, list) else []
    found = [one for one in listed if isinstance(one, dict) and isinstance(one.get("name"), str)]
    return found or UNKNOWN


def example_of(signature) -> Example:
    """Made of the inputs' names, types and shapes; a side that may have any length gets 1."""
    inputs = inputs_of(signature)
    values = {one["name"]: (_sides(one), _value(one)) for one in inputs}
    count = sum(math.prod(sides) for sides, _value in values.values())
    whole = {name: _nested(sides, value) for name, (sides, value) in values.items()} if count <= MOST_NUMBERS else None
    pairs = (f"{name!r}: {_expression(sides, value)}" for name, (sides, value) in values.items())
    return Example(json.dumps(whole) if whole is not None else "", "{" + ", ".join(pairs) + "}")


def _sides(one: dict) -> list[int]:
    shape = one.get("shape")
    sides = [side if type(side) is int and side > 0 else 1 for side in shape] if isinstance(shape, list) else [1]
    return sides if math.prod(sides) <= 1 << 24 and len(sides) <= 8 else [1]


def _value(one: dict):
    kind = str(one.get("datatype", ""))
    if kind == "BYTES":
        return "text"
    if kind == "BOOL":
        return True
    return 0.5 if kind.startswith(("FP", "BF")) else 1


def _nested(sides: list[int], value):
    return [_nested(sides[1:], value) for _ in range(sides[0])] if sides else value


def _expression(sides: list[int], value) -> str:
    words = repr(value)
    for side in reversed(sides):
        words = f"[{words}]" if side == 1 else f"[{words}] * {side}"
    return words


def ask(app: Application, text: str, user_pk: int) -> Answer:
    """One POST to the application's /predict. One at a time for each user, since somebody waits for it.

    Raises Refused: what was typed is no JSON or too long, the application is not up, the last one is not answered yet.
    """
    body = text.encode()
    if len(body) > MOST_SENT:
        raise Refused("must have at most 1 MiB; send larger ones through the application gateway", field="input")
    try:
        json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise Refused("must be JSON (%(problem)s)", field="input", problem=str(problem)[:200])
    if app.state != State.READY or not app.address:
        raise Refused("the application is %(state)s; it answers once it is ready", state=word(app.state))
    mark = f"apps.try.{user_pk}"
    if not cache.add(mark, 1, LIMIT_S + 10):
        raise Refused("the previous request is still running")
    try:
        return _post(app.address, body)
    finally:
        cache.delete(mark)


def _post(address: str, body: bytes) -> Answer:
    host, _colon, port = address.rpartition(":")
    began = time.monotonic()
    try:
        where = (host.strip("[]"), int(port))
        status, data = outbound.exchange(
            where, "POST", "/predict", body, {"Content-Type": "application/json"}, limit_s=LIMIT_S, most=MOST_SHOWN + 1
        )
    except (OSError, http.client.HTTPException) as problem:
        return Answer(0, 1000 * (time.monotonic() - began), str(problem) or type(problem).__name__)
    took = 1000 * (time.monotonic() - began)
    text, scores = _readable(data[:MOST_SHOWN])
    return Answer(status, took, text, len(data) > MOST_SHOWN, scores)


def _readable(data: bytes) -> tuple[str, tuple]:
    """An output a line; what went wrong in its own lines; anything else as it came."""
    text = data.decode(errors="replace")
    try:
        told = sanitize.read_json(text)
        if isinstance(told, dict) and isinstance(told.get("error"), str) and len(told) == 1:
            return sanitize.text(told["error"]), ()
        if isinstance(told, dict):
            lines = (f"  {_compact(name)}: {_compact(value)}" for name, value in told.items())
            text = sanitize.text("{\n" + ",\n".join(lines) + "\n}")
            return text, _scores(next(iter(told.values()), None))
    except (ValueError, RecursionError):
        pass
    return sanitize.text(text), ()


def _compact(value) -> str:
    return json.dumps(value, ensure_ascii=False)


def _scores(value) -> tuple[tuple[int, float, int], ...]:
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    plain = isinstance(value, list) and 2 <= len(value) <= MOST_SCORES
    if not plain or not all(type(one) in (int, float) and abs(one) <= LARGEST_SCORE for one in value):
        return ()
    least, span = min(value), (max(value) - min(value)) or 1
    return tuple((at, one, round(100 * (one - least) / span)) for at, one in enumerate(value))

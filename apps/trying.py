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

from mlp.kernel.errors import Refused

from .models import Application, State

LIMIT_S = 20
MOST_SENT = 1 << 20
MOST_SHOWN = 256 << 10
MOST_NUMBERS = 4096  # in an example that is written out
SHORT = 40  # what is longer is `[0.5] * 64` in Python
UNKNOWN = [{"name": "input", "datatype": "FP32", "shape": [-1]}]  # as the serving process takes it


@dataclass(frozen=True)
class Answer:
    """What came back: HTTP's status (0: nothing came), after how long, and the text, indented where it is JSON."""

    status: int
    ms: float
    text: str
    cut: bool = False

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
        raise Refused("input: too long, at most 1 MiB; larger ones go through the application gateway")
    try:
        json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise Refused(f"input: must be JSON ({str(problem)[:200]})")
    if app.state != State.READY or not app.address:
        raise Refused(f"the application is {app.state}, it answers when it is ready")
    mark = f"apps.try.{user_pk}"
    if not cache.add(mark, 1, LIMIT_S + 10):
        raise Refused("the last one is not answered yet")
    try:
        return _post(app.address, body)
    finally:
        cache.delete(mark)


def _post(address: str, body: bytes) -> Answer:
    host, _colon, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=LIMIT_S)
    began = time.monotonic()
    try:
        connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        data = response.read(MOST_SHOWN + 1)
    except (OSError, http.client.HTTPException) as problem:
        return Answer(0, 1000 * (time.monotonic() - began), str(problem) or type(problem).__name__)
    finally:
        connection.close()
    took = 1000 * (time.monotonic() - began)
    cut = len(data) > MOST_SHOWN
    return Answer(response.status, took, _readable(data[:MOST_SHOWN]), cut)


def _readable(data: bytes) -> str:
    text = data.decode(errors="replace")
    try:
        return json.dumps(json.loads(text), indent=1, ensure_ascii=False) if len(text) < 4000 else text
    except (ValueError, RecursionError):
        return text

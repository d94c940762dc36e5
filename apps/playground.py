"""The playground of an application's page: an example input for its model, and one request with it; for a language
model a message. Used by pages.

The request goes to the application itself, as the application gateway would send it, without the visitor's headers.
"""

from __future__ import annotations

import http.client
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from django.core.cache import cache

from kernel import after_commit, outbound, sanitize, sockets
from kernel.errors import Refused
from kernel.messages import word

from . import demand, proof
from .models import Application, State

LIMIT_S = 20
MAX_SENT = 1 << 20
MAX_SHOWN = 256 << 10
MAX_NUMBERS = 4096  # in an example that is shown in full
MAX_SCORES = 20
LARGEST_SCORE = 1e300  # so that their sums are finite
Reading = Callable[[bytes], tuple[str, tuple]]  # the shown text of an answer, and its scores
UNKNOWN = [{"name": "input", "datatype": "FP32", "shape": [-1]}]  # what the serving process accepts then


@dataclass(frozen=True)
class PredictResponse:
    """The response of an application: HTTP status (0: no response), duration in ms, and the text, formatted if JSON.

    `scores`: if the first output is one short row of numbers, each with its index and its position between the smallest
    (0) and the largest (100).
    """

    status: int
    ms: float
    text: str
    cut: bool = False
    scores: tuple[tuple[int, float, int], ...] = ()

    @property
    def good(self) -> bool:
        """Return whether the application answered with 200."""
        return self.status == 200


@dataclass(frozen=True)
class Example:
    """An example input: as JSON (empty when it would be too long), and as a Python expression."""

    json: str
    python: str


def inputs_of(signature) -> list[dict]:
    """Return the inputs of a stored signature, validated: it comes from the model's own code."""
    listed = signature.get("inputs") if isinstance(signature, dict) else None
    entries = listed if isinstance(listed, list) else []
    inputs = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("name"), str)]
    return inputs or UNKNOWN


def example_of(signature) -> Example:
    """Return an example made from the inputs' names, types and shapes; a variable dimension becomes 1."""
    inputs = inputs_of(signature)
    values = {spec["name"]: (_sides(spec), _value(spec)) for spec in inputs}
    count = sum(math.prod(sides) for sides, _value in values.values())
    whole = {name: _nested(sides, value) for name, (sides, value) in values.items()} if count <= MAX_NUMBERS else None
    pairs = (f"{name!r}: {_expression(sides, value)}" for name, (sides, value) in values.items())
    return Example(json.dumps(whole) if whole is not None else "", "{" + ", ".join(pairs) + "}")


def _sides(spec: dict) -> list[int]:
    shape = spec.get("shape")
    sides = [side if type(side) is int and side > 0 else 1 for side in shape] if isinstance(shape, list) else [1]
    return sides if math.prod(sides) <= 1 << 24 and len(sides) <= 8 else [1]


def _value(spec: dict):
    kind = str(spec.get("datatype", ""))
    if kind == "BYTES":
        return "text"
    if kind == "BOOL":
        return True
    return 0.5 if kind.startswith(("FP", "BF")) else 1


def _nested(sides: list[int], value):
    return [_nested(sides[1:], value) for _ in range(sides[0])] if sides else value


def _expression(sides: list[int], value) -> str:
    expression = repr(value)
    for side in reversed(sides):
        expression = f"[{expression}]" if side == 1 else f"[{expression}] * {side}"
    return expression


def predict(app: Application, text: str, user_pk: int) -> PredictResponse:
    """Send the text to the application's /predict, one request at a time for each user.

    Raises Refused: the text is not JSON or too long, the application is not up, the previous request is still running.
    """
    body = text.encode()
    _require_short(body)
    try:
        json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise Refused("must be JSON (%(problem)s)", field="input", problem=str(problem)[:200])
    return _alone(app, "/predict", body, user_pk, _readable)


def takes_messages(app: Application) -> bool:
    """Return whether a language model has a template for messages; else it continues a text."""
    return inputs_of(app.model.signature)[0]["name"] == "messages"


def makes_embeddings(app: Application) -> bool:
    """Return whether a language model makes vectors of texts, and no texts."""
    outputs = app.model.signature.get("outputs") if isinstance(app.model.signature, dict) else None
    first = outputs[0] if isinstance(outputs, list) and outputs and isinstance(outputs[0], dict) else {}
    return app.model.is_language_model and first.get("name") == "embedding"


def chat(app: Application, fields: Mapping[str, str], user_pk: int) -> PredictResponse:
    """Send a message to a language model, one request at a time for each user, and return its answer.

    `fields`: `input` is the message, or the text to continue, the optional others are `system`, `temperature`,
    `max_tokens` and `stop`. Raises Refused as `predict`.
    """
    return _alone(app, *chat_request(app, fields), user_pk, said)


def chat_request(app: Application, fields: Mapping[str, str], **more) -> tuple[str, bytes]:
    """Return the path and the body of a request to a language model; `more` are further fields of it. Raises Refused
    as `chat`.
    """
    text = fields.get("input", "")
    if not text:
        raise Refused("must not be empty", field="input")
    request = {"model": app.served_name, **_chosen(fields), **more}
    if makes_embeddings(app):
        request = {"model": app.served_name, "input": text}
    elif takes_messages(app):
        system = [{"role": "system", "content": fields["system"]}] if fields.get("system") else []
        request["messages"] = [*system, {"role": "user", "content": text}]
    else:
        request["prompt"] = text
    body = json.dumps(request).encode()
    _require_short(body)
    if makes_embeddings(app):
        return "/v1/embeddings", body
    return "/v1/chat/completions" if takes_messages(app) else "/v1/completions", body


def _chosen(fields: Mapping[str, str]) -> dict:
    """Return the options of a request to a language model that were filled in. Raises Refused."""
    chosen = {"stop": fields["stop"]} if fields.get("stop") else {}
    try:
        for name, kind in (("temperature", float), ("max_tokens", int)):
            if fields.get(name):
                chosen[name] = kind(fields[name])
                json.dumps(chosen[name], allow_nan=False)
    except ValueError:
        raise Refused("must be a number", field=name) from None
    return chosen


def _require_short(body: bytes) -> None:
    if len(body) > MAX_SENT:
        raise Refused("must have at most 1 MiB; send larger ones through the application gateway", field="input")


def _alone(app: Application, path: str, body: bytes, user_pk: int, read: Reading) -> PredictResponse:
    """Send a request unless another one of the user is running. Raises Refused."""
    mark = take_turn(app, user_pk, LIMIT_S)
    try:
        return _post(app, path, body, read)
    finally:
        cache.delete(mark)


def take_turn(app: Application, user_pk: int, limit_s: float) -> str:
    """Return the key in the cache that marks the one request of a user, to be deleted at its end; it is gone soon after
    `limit_s` at the latest. Raises Refused where the application is not up, or another request of the user is running.
    """
    if app.state == State.READY and app.replicas_min == 0:
        demand.note_request(app.pk)  # so that it does not sleep meanwhile
    if app.state == State.READY and app.asleep:
        after_commit.enqueue("apps.wake", app.pk)
        raise Refused("The application is asleep and is being started; try again in a few seconds.")
    if app.state != State.READY or not app.address:
        raise Refused("the application is %(state)s; it answers once it is ready", state=word(app.state))
    mark = f"apps.try.{user_pk}"
    if not cache.add(mark, 1, limit_s + 10):
        raise Refused("the previous request is still running")
    return mark


def _post(app: Application, path: str, body: bytes, read: Reading) -> PredictResponse:
    began = time.monotonic()
    try:
        status, data = outbound.exchange(
            sockets.parse(app.address),
            "POST",
            path,
            body,
            {"Content-Type": "application/json", **proof.headers(app.run_name)},
            limit_s=LIMIT_S,
            most=MAX_SHOWN + 1,
        )
    except (OSError, http.client.HTTPException) as problem:
        return PredictResponse(0, 1000 * (time.monotonic() - began), str(problem) or type(problem).__name__)
    took = 1000 * (time.monotonic() - began)
    text, scores = read(data[:MAX_SHOWN])
    return PredictResponse(status, took, text, len(data) > MAX_SHOWN, scores)


def said(data: bytes) -> tuple[str, tuple]:
    """Return a language model's text or vector, or the message of its error; anything else unchanged."""
    text = data.decode(errors="replace")
    try:
        reply = sanitize.read_json(text)
        if "error" in reply:
            said = reply["error"]["message"]
        elif "data" in reply:
            said = json.dumps(reply["data"][0]["embedding"])
        else:
            choice = reply["choices"][0]
            said = choice["message"]["content"] if "message" in choice else choice["text"]
        return sanitize.text(said if isinstance(said, str) else text), ()
    except (ValueError, RecursionError, LookupError, TypeError):
        return sanitize.text(text), ()


def _readable(data: bytes) -> tuple[str, tuple]:
    """Return the text and scores: one output a line; an error with its line breaks; anything else unchanged."""
    text = data.decode(errors="replace")
    try:
        reply = sanitize.read_json(text)
        if isinstance(reply, dict) and isinstance(reply.get("error"), str) and len(reply) == 1:
            return sanitize.text(reply["error"]), ()
        if isinstance(reply, dict):
            lines = (f"  {_compact(name)}: {_compact(value)}" for name, value in reply.items())
            text = sanitize.text("{\n" + ",\n".join(lines) + "\n}")
            return text, _scores(next(iter(reply.values()), None))
    except (ValueError, RecursionError):
        pass
    return sanitize.text(text), ()


def _compact(value) -> str:
    return json.dumps(value, ensure_ascii=False)


def _scores(value) -> tuple[tuple[int, float, int], ...]:
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    plain = isinstance(value, list) and 2 <= len(value) <= MAX_SCORES
    if not plain or not all(type(score) in (int, float) and abs(score) <= LARGEST_SCORE for score in value):
        return ()
    least, span = min(value), (max(value) - min(value)) or 1
    return tuple((at, score, round(100 * (score - least) / span)) for at, score in enumerate(value))

"""Requests of OpenAI's API for embeddings: what is taken and refused, and the answers. `null` is an absent field."""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np
import orjson
from chat_fields import ApiError, read_object, read_text, read_whole

KNOWN = {"input", "model", "encoding_format", "dimensions", "user"}
BODY_BYTES = 8 << 20
MOST_TEXTS = 2048
MOST_TOKENS = 1 << 20  # of all texts of a request
MOST_NUMBERS = 1 << 22  # of all vectors of an answer
FORMATS = ("float", "base64")
MOST_DIMENSIONS = 1 << 31
LONGEST_TOKEN = 256  # characters on average: a text of more could not have as few tokens as the model takes


@dataclass(frozen=True)
class Request:
    """A request: each of `texts` is a text or a list of tokens."""

    model: str | None
    texts: list[str] | list[list[int]]
    packed: bool  # as base64
    dimensions: int | None


def read(body: bytes) -> Request:
    """Return a request. Raises ApiError, which names the field."""
    given = read_object(body)
    if other := set(given) - KNOWN:
        name = min(other)[:60]
        raise ApiError(f"{name}: is no field that this server knows", name, "unknown_parameter")
    kind = given.get("encoding_format", "float")
    if kind not in FORMATS:
        raise ApiError(f"encoding_format: must be one of {', '.join(FORMATS)}", "encoding_format")
    dimensions = read_whole(given, "dimensions", 1, MOST_DIMENSIONS)
    return Request(read_text(given, "model"), _texts(given.get("input")), kind == "base64", dimensions)


def _texts(given) -> list[str] | list[list[int]]:
    if isinstance(given, str) or _is_tokens(given):
        given = [given]
    if not isinstance(given, list) or not (all(isinstance(one, str) for one in given) or all(map(_is_tokens, given))):
        raise ApiError("input: must be a text, a list of texts, a list of token ids, or a list of such lists", "input")
    if not 0 < len(given) <= MOST_TEXTS:
        raise ApiError(f"input: must have at least one text and at most {MOST_TEXTS}", "input")
    if not all(given):
        raise ApiError("input: a text must not be empty", "input")
    return given


def _is_tokens(given) -> bool:
    return isinstance(given, list) and bool(given) and all(type(token) is int for token in given)


def shortened(vectors: np.ndarray, dimensions: int) -> np.ndarray:
    """Return the first numbers of each vector, at length 1."""
    vectors = np.ascontiguousarray(vectors[:, :dimensions])
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)


def answer(request: Request, model: str, vectors: np.ndarray, tokens: int) -> bytes:
    """Return the body of an answer; `vectors` is an array of 32-bit floats with a row for each text. Raises ApiError
    where the model has computed what is no number: JSON has none, and clients would take it for one.
    """
    if not np.isfinite(vectors).all():
        raise ApiError("the model failed: a vector has NaN or infinite numbers", status=500)
    rows = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors] if request.packed else vectors
    content = {
        "object": "list",
        "data": [{"object": "embedding", "index": at, "embedding": row} for at, row in enumerate(rows)],
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)

"""Whether two answers to one request are the same: their statuses, and their bodies as JSON, text or bytes.

Numbers are equal within a tolerance, a share of the larger one. What names an answer, and not what it says, is left
out: the id and the time of an answer in the form of OpenAI's API, and the fields that the owner names. Reasons of
refusals are not compared, only their statuses.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass

EQUAL, DIFFERENT, STATUS, FAILED, UNKNOWN = "equal", "different", "status", "failed", "unknown"
NAMES_IT = frozenset(("id", "created", "system_fingerprint", "service_tier"))  # of an answer in OpenAI's form
OPENAI = ("choices", "data")
MAX_DEPTH = 200
MAX_WHERE = 200  # characters


@dataclass(frozen=True)
class Answer:
    """What a run has answered; `whole`: `data` is all of it. `ms`: how long that took in its process."""

    status: int
    ms: float
    type: str
    whole: bool
    data: bytes


@dataclass(frozen=True)
class Rule:
    """What counts as equal."""

    tolerance: float = 1e-6
    ignore: frozenset[str] = frozenset()


def compare(base: Answer, shadow: Answer | None, rule: Rule) -> tuple[str, str]:
    """Return EQUAL, DIFFERENT, STATUS, FAILED or UNKNOWN, and where the first difference is; None: no answer came."""
    if shadow is None:
        return FAILED, ""
    if shadow.status != base.status:
        return STATUS, ""
    if base.status >= 400:
        return EQUAL, ""
    if not (base.whole and shadow.whole):
        return UNKNOWN, ""
    if base.data == shadow.data:
        return EQUAL, ""
    values = _json(base), _json(shadow)
    if values[0] is None or values[1] is None:
        return DIFFERENT, ""
    ignore = rule.ignore | (NAMES_IT if _is_openai(values[0][0]) else frozenset())
    where = next(_differences(values[0][0], values[1][0], Rule(rule.tolerance, ignore), "$", 0), None)
    return (EQUAL, "") if where is None else (DIFFERENT, where[:MAX_WHERE])


def _json(answer: Answer) -> tuple[object] | None:
    """Return the value of a body in a tuple, as it may be null; None for what is no JSON."""
    try:
        return (json.loads(answer.data),)
    except (ValueError, RecursionError):
        return None


def _is_openai(value) -> bool:
    return isinstance(value, dict) and "object" in value and any(name in value for name in OPENAI)


def _differences(one, other, rule: Rule, where: str, depth: int) -> Iterator[str]:
    """Yield the paths at which two values of JSON differ."""
    if depth > MAX_DEPTH:
        if one != other:
            yield where
    elif _is_number(one) and _is_number(other):
        if not _is_close(one, other, rule.tolerance):
            yield where
    elif type(one) is not type(other):
        yield where
    elif isinstance(one, dict):
        for name in dict.fromkeys((*one, *other)):
            if name in rule.ignore:
                continue
            if name in one and name in other:
                yield from _differences(one[name], other[name], rule, f"{where}.{name}", depth + 1)
            else:
                yield f"{where}.{name}"
    elif isinstance(one, list):
        if len(one) != len(other):
            yield where
            return
        for at, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _differences(left, right, rule, f"{where}[{at}]", depth + 1)
    elif one != other:
        yield where


def _is_number(value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_close(one: float, other: float, tolerance: float) -> bool:
    if one == other or (one != one and other != other):  # NaN is what both have answered
        return True
    try:
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
    except OverflowError:  # of an integer beyond what a float can be
        return False

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

from ..serving import masking

Steps = tuple[str | int, ...]  # names and indices, from the outermost
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


def compare(base: Answer, shadow: Answer | None, rule: Rule) -> tuple[str, Steps | None]:
    """Return EQUAL, DIFFERENT, STATUS, FAILED or UNKNOWN, and where in two answers of JSON the first difference is;
    `shadow` is None where no answer came.
    """
    if shadow is None:
        return FAILED, None
    if shadow.status != base.status:
        return STATUS, None
    if base.status >= 400:
        return EQUAL, None
    if not (base.whole and shadow.whole):
        return UNKNOWN, None
    if base.data == shadow.data:
        return EQUAL, None
    values = _json(base), _json(shadow)
    if values[0] is None or values[1] is None:
        return DIFFERENT, None
    ignore = rule.ignore | (NAMES_IT if _is_openai(values[0][0]) else frozenset())
    where = next(_differences(values[0][0], values[1][0], Rule(rule.tolerance, ignore), ()), None)
    return (EQUAL if where is None else DIFFERENT), where


def written(steps: Steps | None) -> str:
    """Return a place in an answer as users read it, `$.scores[2]`; empty for none."""
    if steps is None:
        return ""
    names = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return "".join(["$", *names])[:MAX_WHERE]


def uncovered(steps: Steps | None, *texts: str) -> Steps | None:
    """Return a place as far as these masked answers show it: names below a value that is masked are masked, too."""
    if steps is None:
        return None
    for text in texts:
        value = json.loads(text) if text else masking.MASKED
        for at, step in enumerate(steps):
            if value == masking.MASKED:
                steps = steps[:at]
                break
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):  # only the other answer has it
                steps = steps[: at + 1]
                break
    return steps


def _json(answer: Answer) -> tuple[object] | None:
    """Return the value of a body in a tuple, as it may be null; None for what is no JSON."""
    try:
        return (json.loads(answer.data),)
    except (ValueError, RecursionError):
        return None


def _is_openai(value) -> bool:
    return isinstance(value, dict) and "object" in value and any(name in value for name in OPENAI)


def _differences(one, other, rule: Rule, where: Steps) -> Iterator[Steps]:
    """Yield the paths at which two values of JSON differ."""
    if len(where) > MAX_DEPTH:
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
                yield from _differences(one[name], other[name], rule, (*where, name))
            else:
                yield (*where, name)
    elif isinstance(one, list):
        if len(one) != len(other):
            yield where
            return
        for at, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _differences(left, right, rule, (*where, at))
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

"""The search space of a sweep: its parameters, each with a type, a range, and the condition under which it exists.

{"lr": {"type": "float", "low": 1e-5, "high": 0.1, "log": true},
 "optimizer": {"type": "categorical", "choices": ["sgd", "adam"]},
 "momentum": {"type": "float", "low": 0, "high": 0.99, "when": {"optimizer": "sgd"}}}

A parameter without a type is one of `choices`, or a fixed `value`. Order matters only for conditions, which are sorted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter

from kernel.errors import Refused
from kernel.messages import Message
from kernel.sanitize import UNSTORABLE

MAX_PARAMETERS = 100
MAX_CHOICES = 1000
MAX_TEXT = 1000
MAX_GRID = 100_000
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-/]{0,99}")
KEYS = {
    "float": {"type", "low", "high", "log", "step", "when"},
    "int": {"type", "low", "high", "log", "step", "when"},
    "categorical": {"type", "choices", "when"},
}
BIG = 2**53

Scalar = str | int | float | bool


def checked(space: object) -> dict:
    """Return the space with all defaults, parameters after those that their conditions name. Raises Refused."""
    if not isinstance(space, dict) or not 1 <= len(space) <= MAX_PARAMETERS:
        raise Refused("must be an object of 1 to %(most)s parameters", field="space", most=MAX_PARAMETERS)
    read = {name: _parameter(name, given) for name, given in space.items()}
    for name, parameter in read.items():
        _check_condition(name, parameter.get("when", {}), read)
    try:
        order = list(TopologicalSorter({name: each.get("when", {}) for name, each in read.items()}).static_order())
    except CycleError as problem:
        way = " > ".join(problem.args[1])
        raise Refused("the conditions are a circle: %(way)s", field="space", way=way)
    places = {name: number for number, name in enumerate(read)}
    return {name: read[name] for name in sorted(order, key=lambda name: (_depth(name, read), places[name]))}


def _depth(name: str, space: dict) -> int:
    return 1 + max((_depth(other, space) for other in space[name].get("when", {})), default=0)


def _parameter(name: str, given: object) -> dict:
    field = f"space.{name}"
    if not NAME.fullmatch(name):
        raise Refused("a parameter's name must match %(pattern)s", field=f"space.{name[:100]}", pattern=NAME.pattern)
    if not isinstance(given, dict):
        raise Refused("must be an object", field=field)
    if "value" in given and not set(given) - {"value", "when"}:
        given = {"choices": [given["value"]], **{key: each for key, each in given.items() if key == "when"}}
    kind = given.get("type", "categorical" if "choices" in given else None)
    if kind not in KEYS:
        raise Refused("must be one of %(choices)s", field=f"{field}.type", choices=", ".join(KEYS))
    for key in given:
        if key not in KEYS[kind]:
            raise Refused("unknown field", field=f"{field}.{str(key)[:100]}")
    parameter = _choices(field, given) if kind == "categorical" else _range(field, kind, given)
    if given.get("when"):
        parameter["when"] = given["when"]
    return {"type": kind, **parameter}


def _choices(field: str, given: dict) -> dict:
    choices = given.get("choices")
    if not isinstance(choices, list) or not 1 <= len(choices) <= MAX_CHOICES:
        raise Refused("must be a list of 1 to %(most)s values", field=f"{field}.choices", most=MAX_CHOICES)
    for value in choices:
        _need_scalar(f"{field}.choices", value)
    seen = [text_of(value) for value in choices]
    if doubled := next((text for text in seen if seen.count(text) > 1), None):
        raise Refused("%(value)s is there twice", field=f"{field}.choices", value=doubled)
    return {"choices": choices}


def _need_scalar(field: str, value: object) -> None:
    if isinstance(value, str):
        if len(value) > MAX_TEXT or UNSTORABLE.search(value):
            raise Refused("must be valid text of at most %(most)s characters", field=field, most=MAX_TEXT)
    elif not isinstance(value, bool | int | float) or not abs(value) <= 1e300:  # NaN is not, either
        raise Refused("must be texts, numbers, true or false", field=field)


def _range(field: str, kind: str, given: dict) -> dict:
    low, high = (_number(f"{field}.{end}", kind, given.get(end)) for end in ("low", "high"))
    if low > high:
        raise Refused("low is %(low)s, which is above high, %(high)s", field=field, low=low, high=high)
    log = given.get("log", False)
    if not isinstance(log, bool):
        raise Refused("must be true or false", field=f"{field}.log")
    if log and low < (1 if kind == "int" else math.ulp(0.0)):
        smallest = Message("at least 1") if kind == "int" else Message("above 0")
        raise Refused("must be %(smallest)s, since the range is logarithmic", field=f"{field}.low", smallest=smallest)
    parameter = {"low": low, "high": high, "log": log}
    step = given.get("step")
    if step is not None:
        step = _number(f"{field}.step", kind, step)
        if step <= 0:
            raise Refused("must be above 0", field=f"{field}.step")
        if log:
            raise Refused("a logarithmic range has no step", field=f"{field}.step")
        if step > high - low and high > low:
            raise Refused("is larger than the range", field=f"{field}.step")
        parameter["step"] = step
    elif kind == "int":
        parameter["step"] = 1
    return parameter


def _number(field: str, kind: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused("must be a number", field=field)
    if not abs(value) <= (BIG if kind == "int" else 1e300):
        raise Refused("is out of bounds", field=field)
    if kind == "int" and value != int(value):
        raise Refused("must be a whole number", field=field)
    return int(value) if kind == "int" else float(value)


def _check_condition(name: str, when: object, space: dict) -> None:
    field = f"space.{name}.when"
    if not isinstance(when, dict) or len(when) > MAX_PARAMETERS:
        raise Refused("must be an object of parameters and their values", field=field)
    for other, wanted in when.items():
        if other not in space or other == name:
            raise Refused("there is no other parameter %(name)s", field=field, name=str(other)[:100])
        for value in wanted if isinstance(wanted, list) else [wanted]:
            if not fits(space[other], value):
                raise Refused("%(name)s is never %(value)s", field=field, name=other, value=str(value)[:100])


# --- values -----------------------------------------------------------------------------------------------------------
def fits(parameter: dict, value: object) -> bool:
    """Return whether the value is one that the parameter may have."""
    if parameter["type"] == "categorical":
        return any(type(choice) is type(value) and choice == value for choice in parameter["choices"])
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if not parameter["low"] <= value <= parameter["high"]:
        return False
    if parameter["type"] == "int" and value != int(value):
        return False
    step = parameter.get("step")
    return not step or math.isclose((value - parameter["low"]) / step, round((value - parameter["low"]) / step))


def exists(space: dict, name: str, values: Mapping[str, Scalar]) -> bool:
    """Return whether the parameter exists beside these values of the parameters before it."""
    for other, wanted in space[name].get("when", {}).items():
        if other not in values:
            return False
        choices = wanted if isinstance(wanted, list) else [wanted]
        if not any(_is_same(space[other], values[other], each) for each in choices):
            return False
    return True


def _is_same(parameter: dict, one: Scalar, other: Scalar) -> bool:
    """Return whether both are the same value: among choices 1, 1.0 and true are three."""
    return one == other and (parameter["type"] != "categorical" or type(one) is type(other))


def place_of(parameter: dict, value: Scalar) -> int:
    """Return the index of one of the choices. Raises ValueError."""
    for place, choice in enumerate(parameter["choices"]):
        if _is_same(parameter, choice, value):
            return place
    return parameter["choices"].index(value)  # JSON has one kind of number: 1e16 may have come back as a whole one


def on_step(parameter: dict, value: float) -> float:
    """Return the value of a float parameter within its range, and where it has a step, as the steps from `low` make it
    in decimal digits: three steps of 0.1 are 0.3, not 0.30000000000000004.
    """
    if parameter.get("step"):
        low, step = (Decimal(repr(parameter[end])) for end in ("low", "step"))
        value = float(low + round((value - parameter["low"]) / parameter["step"]) * step)
    return min(max(value, parameter["low"]), parameter["high"])


def need_values(space: dict, values: object) -> dict:
    """Return values that a user gives for a trial, with those that their conditions imply; parameters may be missing.

    Raises Refused.
    """
    if not isinstance(values, dict):
        raise Refused("must be an object of parameters and their values", field="params")
    for name, value in values.items():
        if name not in space:
            raise Refused("there is no parameter %(name)s", field="params", name=str(name)[:100])
        if not fits(space[name], value):
            raise Refused("is not in the search space", field=f"params.{name}")
    implied = dict(values)
    for name in reversed(space):  # a condition names earlier parameters only
        if name in implied:
            for other, wanted in space[name].get("when", {}).items():
                implied.setdefault(other, wanted[0] if isinstance(wanted, list) else wanted)
    for name in values:
        if not exists(space, name, implied):
            raise Refused("does not exist beside the other values", field=f"params.{name}")
    complete = {name: implied[name] for name in space if name in implied}
    return {name: plain(space[name], value) for name, value in complete.items()}


def plain(parameter: dict, value: Scalar) -> Scalar:
    """Return a value of the parameter as it is stored and given to scripts."""
    if parameter["type"] == "categorical":
        return value
    return int(value) if parameter["type"] == "int" else on_step(parameter, float(value))


def text_of(value: Scalar) -> str:
    """Return a value as a script gets it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


# --- grids ------------------------------------------------------------------------------------------------------------
def grid_of(space: dict) -> dict[str, list]:
    """Return all values of each parameter. Raises Refused where they are not finite, or too many together."""
    grid, size = {}, 1
    for name, parameter in space.items():
        field = f"space.{name}"
        if parameter.get("when"):
            raise Refused("the sampler grid does not allow conditions", field=f"{field}.when")
        if parameter["type"] != "categorical" and not parameter.get("step") and parameter["low"] != parameter["high"]:
            raise Refused("the sampler grid requires a step or choices", field=field)
        if parameter["type"] != "categorical" and parameter["log"] and parameter["low"] != parameter["high"]:
            raise Refused("the sampler grid requires choices instead of a logarithmic range", field=field)
        grid[name] = _all_of(parameter, field)
        size *= len(grid[name])
        if size > MAX_GRID:
            raise Refused("the grid has more than %(most)s points", field="space", most=MAX_GRID)
    return grid


def _all_of(parameter: dict, field: str) -> list:
    if parameter["type"] == "categorical":
        return parameter["choices"]
    low, high, step = (Decimal(repr(parameter[key] or 0)) for key in ("low", "high", "step"))
    count = 1 if low == high else int((high - low) / step) + 1
    if count > MAX_GRID:
        raise Refused("the grid has more than %(most)s points", field=field, most=MAX_GRID)
    number = int if parameter["type"] == "int" else float
    return [number(low + place * step) for place in range(count)]


def grid_size(space: dict) -> int:
    """Return the number of points of a checked grid."""
    return math.prod(len(values) for values in grid_of(space).values())

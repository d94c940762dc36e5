"""The samplers and pruners that a sweep may have, with their options: a name, or {"type": name, option: …}."""

from __future__ import annotations

import math
from typing import NamedTuple

from kernel.errors import Refused


class Option(NamedTuple):
    """An option: its default, and its bounds. A default of None means that the engine decides."""

    default: bool | int | float | None
    low: float = 0
    high: float = 1_000_000
    whole: bool = True


SEED = Option(None, 0, 2**31 - 1)
STARTUP = Option(10, 1, 10_000)
SAMPLERS = {
    "tpe": {"seed": SEED, "startup_trials": STARTUP, "multivariate": Option(False)},
    "random": {"seed": SEED},
    "grid": {"seed": SEED},
    "cmaes": {"seed": SEED, "startup_trials": Option(1, 1, 10_000)},
    "gp": {"seed": SEED, "startup_trials": STARTUP},
    "qmc": {"seed": SEED},
    "nsga2": {"seed": SEED, "population": Option(50, 2, 10_000)},
}
MIN_TRIALS = Option(5, 1, 10_000)
PRUNERS = {
    "none": {},
    "median": {"startup_trials": MIN_TRIALS, "warmup_steps": Option(0), "interval_steps": Option(1, 1)},
    "percentile": {
        "percentile": Option(25.0, 0, 100, whole=False), "startup_trials": MIN_TRIALS, "warmup_steps": Option(0),
        "interval_steps": Option(1, 1),
    },
    "asha": {"min_steps": Option(1, 1), "reduction_factor": Option(4, 2, 100), "grace_rungs": Option(0, 0, 100)},
    "hyperband": {"min_steps": Option(1, 1), "max_steps": Option(None, 1), "reduction_factor": Option(3, 2, 100)},
    "patience": {"patience": Option(10, 0), "min_delta": Option(0.0, 0, 1e300, whole=False)},
    "threshold": {"lower": Option(None, -1e300, 1e300, whole=False), "upper": Option(None, -1e300, 1e300, whole=False)},
}  # fmt: skip
SINGLE_ONLY = {"cmaes"}  # samplers for one objective


def checked(field: str, given: object, known: dict[str, dict[str, Option]], default: str) -> dict:
    """Return {"type": name, option: value}, complete. Raises Refused with the place of what is wrong."""
    if given is None:
        given = default
    if isinstance(given, str):
        given = {"type": given}
    if not isinstance(given, dict):
        raise Refused("must be a name or an object", field=field)
    kind = given.get("type", default)
    if kind not in known:
        raise Refused("must be one of %(choices)s", field=f"{field}.type", choices=", ".join(known))
    options = known[kind]
    for name in given:
        if name != "type" and name not in options:
            raise Refused("unknown field", field=f"{field}.{str(name)[:100]}")
    values = {name: _value(f"{field}.{name}", option, given.get(name)) for name, option in options.items()}
    if kind == "threshold" and values["lower"] is None and values["upper"] is None:
        raise Refused("a threshold requires lower, upper or both", field=field)
    return {"type": kind, **values}


def _value(field: str, option: Option, value: object):
    if value is None:
        return option.default
    if isinstance(option.default, bool):
        if not isinstance(value, bool):
            raise Refused("must be true or false", field=field)
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Refused("must be a number", field=field)
    if option.whole and not isinstance(value, int):
        raise Refused("must be a whole number", field=field)
    if not option.low <= value <= option.high:
        raise Refused("must be %(low)s to %(high)s", field=field, low=option.low, high=option.high)
    return value

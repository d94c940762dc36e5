"""ModelStatus, the value of `modelTrainingStatus`: read strictly, written as protobuf's JSON. Used by the gateway.

Opni's gateway refuses a value with an extra field, so ours are kept elsewhere (see kv.detail).
"""

from __future__ import annotations

import math

INTEGERS = ("timeElapsed", "percentageCompleted", "remainingTime", "currentEpoch")
ACCURACY, STAGE = "modelAccuracy", "stage"
FIELDS = ("timeElapsed", "percentageCompleted", "remainingTime", "currentEpoch", ACCURACY, STAGE)
INT64 = 2**63


def read(data) -> dict:
    """Return {"status": str, "statistics": dict or None} from received JSON. Raises ValueError naming the field.

    Whole numbers may be JSON numbers or strings of digits, as protobuf's JSON allows; null is the default.
    """
    if not isinstance(data, dict):
        raise ValueError("body: must be an object")
    for name in data:
        if name not in {"status", "statistics"}:
            raise ValueError(f"{name}: unknown field")
    status = data.get("status") or ""
    if not isinstance(status, str):
        raise ValueError("status: must be a string")
    statistics = data.get("statistics")
    return {"status": status, "statistics": None if statistics is None else read_statistics(statistics)}


def read_statistics(data) -> dict:
    """Return the six fields with defaults. Raises ValueError naming the field."""
    if not isinstance(data, dict):
        raise ValueError("statistics: must be an object")
    for name in data:
        if name not in FIELDS:
            raise ValueError(f"{name}: unknown field")
    statistics: dict = {name: _whole(name, data.get(name)) for name in INTEGERS}
    statistics[ACCURACY] = _number(data.get(ACCURACY))
    statistics[STAGE] = data.get(STAGE) or ""
    if not isinstance(statistics[STAGE], str):
        raise ValueError(f"{STAGE}: must be a string")
    return statistics


def make(status: str, **statistics) -> dict:
    """Return a status of our own; `statistics` by name, None for none."""
    return {"status": status, "statistics": read_statistics(statistics) if statistics else None}


def stored(value: dict) -> dict:
    """Return the value of the key as protobuf's JSON: whole numbers are strings, zero values are left out."""
    kept = {"status": value["status"]} if value["status"] else {}
    if value["statistics"] is not None:
        kept["statistics"] = {
            name: str(given) if name in INTEGERS else given for name, given in value["statistics"].items() if given
        }
    return kept


def answered(value: dict | None) -> dict:
    """Return the value for the REST interface: with defaults, unset statistics null."""
    value = value or {"status": "", "statistics": None}
    statistics = value["statistics"]
    if statistics is not None:
        statistics = {name: str(given) if name in INTEGERS else given for name, given in statistics.items()}
    return {"status": value["status"], "statistics": statistics}


def _whole(name: str, value) -> int:
    if value is None:
        return 0
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and value.isascii() and len(value) < 21:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -INT64 <= value < INT64:
        raise ValueError(f"{name}: must be a whole number")
    return value


def _number(value) -> float:
    if value is None:
        return 0
    try:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{ACCURACY}: must be a finite number")
    except OverflowError:
        raise ValueError(f"{ACCURACY}: must be a finite number")
    return value

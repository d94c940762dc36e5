"""The fields of a request as protocol buffers' JSON has them: a 64-bit number may be a text, NaN is one, and a field
that is null or left out has its default.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from kernel.sanitize import UNSTORABLE

INT64 = 2**63
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
MAX_MS = 253_402_300_799_999  # the last millisecond of the year 9999, which is the last one that can be stored
MAX_SHOWN = 100  # characters of a value in a refusal
_WHOLE = re.compile(r"[+-]?\d{1,19}", re.ASCII)


class WrongField(Exception):
    """What is wrong with a field."""


class Fields:
    """The fields of a message by name."""

    def __init__(self, given: dict[str, Any], within: str = "", size: int = 0):
        self.given, self.within, self.size = given, within, size

    def __contains__(self, name: str) -> bool:
        return self.given.get(name) is not None

    def text(self, name: str, default: str | None = "", *, most: int | None = None, required: bool = False) -> str:
        """Return a text; `default` where there is none."""
        value = self.given.get(name)
        if value is None or (required and value == ""):
            return self._absent(name, default, required)
        if not isinstance(value, str):
            raise self._wrong(name, "must be a string")
        if UNSTORABLE.search(value):
            raise self._wrong(name, "has characters that cannot be stored")
        if most is not None and len(value) > most:
            raise self._wrong(name, f"has {len(value)} characters; the limit is {most}")
        return value

    def whole(self, name: str, default: int | None = None, *, low: int = -INT64, high: int = INT64 - 1,
              required: bool = False) -> int:  # fmt: skip
        """Return a whole number."""
        value = self.given.get(name)
        if value is None:
            return self._absent(name, default, required)
        number = whole_of(value)
        if number is None:
            raise self._wrong(name, "must be a whole number")
        if not low <= number <= high:
            raise self._wrong(name, f"must be from {low} to {high}")
        return number

    def time(self, name: str, required: bool = False) -> int | None:
        """Return milliseconds since 1970; None where there are none."""
        return self.whole(name, low=0, high=MAX_MS, required=required)

    def number(self, name: str, required: bool = True) -> float:
        """Return a number, which may be NaN or infinite."""
        value = self.given.get(name)
        if value is None:
            return self._absent(name, None, required)
        number = number_of(value)
        if number is None:
            raise self._wrong(name, "must be a number")
        return number

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.given.get(name)
        if isinstance(value, str):
            value = {"true": True, "false": False}.get(value.lower(), value)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(name, "must be true or false")
        return value

    def texts(self, name: str) -> list[str]:
        """Return a list of texts; a single one, as queries have it, is a list."""
        values = self._list(name, single=True)
        return [Fields({name: value}, self.within).text(name) for value in values]

    def messages(self, name: str, most: int | None = None) -> list[Fields]:
        """Return a list of messages."""
        values = self._list(name)
        if most is not None and len(values) > most:
            raise self._wrong(name, f"has {len(values)} entries; the limit is {most}")
        messages_read = []
        for place, value in enumerate(values):
            if not isinstance(value, dict):
                raise self._wrong(name, f"entry {place} must be an object")
            messages_read.append(Fields(value, f"{self.within}{name}[{place}]."))
        return messages_read

    def nested(self, name: str) -> Fields:
        """Return a message; an empty one where there is none."""
        value = self.given.get(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self._wrong(name, "must be an object")
        return Fields(value, f"{self.within}{name}.")

    def pairs(self, name: str, most: int | None = None) -> list[tuple[str, str]]:
        """Return a list of {key, value} in their order."""
        return [(message.text("key", required=True), message.text("value")) for message in self.messages(name, most)]

    def _list(self, name: str, single: bool = False) -> list:
        value = self.given.get(name)
        if value is None:
            return []
        if isinstance(value, list):
            return value
        if single and not isinstance(value, dict):
            return [value]
        raise self._wrong(name, "must be a list")

    def _absent(self, name: str, default, required: bool):
        if required:
            raise WrongField(f"Missing value for required parameter '{self.within}{name}'.")
        return default

    def _wrong(self, name: str, what: str) -> WrongField:
        return wrong(f"{self.within}{name}", self.given.get(name), what)


def wrong(name: str, value: Any, what: str) -> WrongField:
    """Return the refusal of a field's value, in MLflow's words."""
    shown = json.dumps(value, ensure_ascii=False)
    shown = shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}…"
    return WrongField(f"Invalid value {shown} for parameter '{name}' supplied: {what}")


def whole_of(value: Any) -> int | None:
    """Return the whole number that a value is; None for any other value."""
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is str and _WHOLE.fullmatch(value):
        return int(value)
    return None


def number_of(value: Any) -> float | None:
    """Return the number that a value is, as a number or as a text; None for any other value."""
    if type(value) is float:
        return value
    try:
        if type(value) is int:
            return float(value)
        if type(value) is str:
            return NOT_FINITE[value] if value in NOT_FINITE else float(value)
    except (ValueError, OverflowError):
        pass
    return None


def number_out(value: float) -> float | str:
    """Return a number as JSON can say it: one that is not finite by its name."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"

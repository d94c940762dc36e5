"""The values of a filter: numbers, durations such as 90s or 1h30m, moments such as 2026-11-22 or -7d."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from kernel.messages import Message

from .grammar import FilterError, Literal

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
MAX_SECONDS = 100 * 366 * 86400
MAX_STARS = 10  # % in a pattern: each multiplies the work

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_ODD = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def number(value: Literal) -> float:
    """Return a number; NaN and infinity are numbers, too."""
    if not _NUMBER.fullmatch(value.text) and not _ODD.fullmatch(value.text):
        raise FilterError(value.column, Message("%(value)s is not a number", value=value.text[:50]))
    return float(value.text)


def whole(value: Literal) -> int | float:
    """Parse a number that can be compared with a column of integers."""
    given = number(value)
    if not abs(given) < 2**53:
        raise FilterError(value.column, Message("%(value)s is out of range", value=value.text[:50]))
    return int(given) if given == int(given) else given


def duration(value: Literal) -> timedelta:
    """Parse a duration: seconds, or numbers with the units s, m, h, d or w, such as 1h30m. Return seconds."""
    text = value.text.strip().lower()
    if _NUMBER.fullmatch(text):
        seconds = float(text)
    elif text and not _DURATION.sub("", text):
        seconds = sum(float(amount) * UNITS[unit] for amount, unit in _DURATION.findall(text))
    else:
        raise FilterError(
            value.column, Message("%(value)s is not a duration such as 90, 30m or 1h30m", value=value.text[:50])
        )
    if not 0 <= seconds <= MAX_SECONDS:
        raise FilterError(value.column, Message("%(value)s is out of range", value=value.text[:50]))
    return timedelta(seconds=seconds)


def moments(value: Literal, now: datetime) -> tuple[datetime, datetime]:
    """Return the first and the last moment that the value covers: a day, or twice the same time.

    `-7d` is seven days ago; without a zone a time is in UTC.
    """
    text = value.text.strip()
    if text.startswith("-"):
        at = now - duration(Literal(text[1:], value.quoted, value.column))
        return at, at
    try:
        at = datetime.fromisoformat(text)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return at, at + timedelta(days=1) if len(text) <= len("2026-11-22") else at
    except (ValueError, OverflowError):
        raise FilterError(
            value.column,
            Message("%(value)s is not a time such as 2026-11-22, 2026-11-22T10:30 or -7d", value=value.text[:50]),
        ) from None


def flag(value: Literal) -> bool:
    if value.text.lower() not in _FLAGS:
        raise FilterError(value.column, Message("%(value)s is neither true nor false", value=value.text[:50]))
    return _FLAGS[value.text.lower()]


def text(value: Literal) -> str:
    return value.text


def pattern(value: Literal) -> str:
    """Return the pattern of a `like`: % is any text, _ any character."""
    if value.text.count("%") > MAX_STARS or len(value.text) > 500:
        raise FilterError(value.column, Message("a pattern has at most %(limit)s percent signs", limit=MAX_STARS))
    return text(value)

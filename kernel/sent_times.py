"""Times as senders of log lines write them, as milliseconds since 1970. Used by AIOps."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

MAX_CHARACTERS = 100
MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}
NUMBER = re.compile(r"\d{1,25}(?:\.\d{0,25})?(?:[eE]\+?\d{1,2})?", re.ASCII)
# The unit of a number is recognized by its size: seconds, ms, µs, ns.
UNITS = ((10**11, 1000, 1), (10**14, 1, 1), (10**17, 1, 1000), (10**20, 1, 1_000_000))
CLOCK = r"(\d{1,2}:\d{2}(?::\d{2})?)(?:[.,](\d+))?"
# Other names of zones have several meanings. Go repeats an offset's zone by name, and adds a monotonic clock.
ZONE = r"\s*(?:(Z|z|UTC|GMT|[+-]\d{2}:?(?:\d{2})?)(?:\s+[A-Z]{2,5})?(?:\s+m=[+-][\d.]+)?)?"
ISO = re.compile(rf"(\d{{4}})[-/.](\d{{1,2}})[-/.](\d{{1,2}})(?:[Tt_\s:]\s*{CLOCK}{ZONE})?", re.ASCII)
APACHE = re.compile(rf"\[?(\d{{1,2}})[/ -]([A-Za-z]{{3}})[a-z]*[/ -](\d{{4}})[: ]{CLOCK}{ZONE}\]?", re.ASCII)
SYSLOG = re.compile(rf"(?:[A-Za-z]{{3}},? )?([A-Za-z]{{3}})\s+(\d{{1,2}}) {CLOCK}{ZONE}(?: (\d{{4}}))?", re.ASCII)
HAN = str.maketrans({"年": "-", "月": "-", "日": " ", "时": ":", "分": ":", "秒": ""})


def milliseconds(value: object) -> int | None:
    """Return ms since 1970 for a number, a date in a usual form, or a text with either; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return _of_number(value)
    if not isinstance(value, str) or len(value) > MAX_CHARACTERS:
        return None
    text = value.strip()
    if NUMBER.fullmatch(text):
        return _of_number(int(text) if text.isdigit() else float(text))
    try:
        at = _read(text)
        return None if at is None else int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def nanoseconds(value: object) -> int | None:
    """Return ns since 1970 for a number of ns or its text; for any other time what `milliseconds` makes of it."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and UNITS[2][0] <= value < UNITS[3][0]:
        return value
    at = milliseconds(value)
    return None if at is None else at * 1_000_000


def _of_number(number: float) -> int | None:
    for limit, times, parts in UNITS:
        if 0 <= number < limit:
            return int(number * times) // parts
    return None


def _read(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    if match := ISO.fullmatch(text.translate(HAN).strip()):
        year, month, day, *rest = match.groups()
        return _made(int(year), int(month), int(day), *rest)
    if match := APACHE.fullmatch(text):
        day, month, year, *rest = match.groups()
        return _made(int(year), MONTHS[month.lower()], int(day), *rest) if month.lower() in MONTHS else None
    if match := SYSLOG.fullmatch(text):
        month, day, *rest, year = match.groups()
        if month.lower() in MONTHS:
            return _of_year(int(year) if year else None, MONTHS[month.lower()], int(day), *rest)
    return parsedate_to_datetime(text)


def _of_year(year: int | None, month: int, day: int, *rest: str | None) -> datetime:
    """Return the time in that year; without one in the last year in which it is not in the future."""
    if year is not None:
        return _made(year, month, day, *rest)
    now = datetime.now(UTC)
    for year in range(now.year + 1, now.year - 8, -1):  # 29 February is not in every year
        try:
            at = _made(year, month, day, *rest)
        except ValueError:
            continue
        if at <= now + timedelta(days=1):
            return at
    raise ValueError("no such day")


def _made(year: int, month: int, day: int, clock: str | None, fraction: str | None, zone: str | None) -> datetime:
    hours, minutes, seconds = (*map(int, (clock or "0:0").split(":")), 0)[:3]
    at = datetime(year, month, day, hours, minutes, min(seconds, 59), int((fraction or "0").ljust(6, "0")[:6]), UTC)
    if zone and zone[0] in "+-":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        shift = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        at += -shift if zone[0] == "+" else shift
    return at

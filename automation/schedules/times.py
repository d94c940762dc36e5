"""Times of cron expressions, in a time zone: where the clock changes they follow cron's own rules.

A job at a fixed hour runs once a day: at a time that is skipped in spring it runs right after the change, and at one
that comes twice in autumn the first time only. One that runs every so many minutes follows the real time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from kernel.errors import Refused
from kernel.messages import Message

NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS = (  # their names and bounds
    (Message("minute"), 0, 59),
    (Message("hour"), 0, 23),
    (Message("day of the month"), 1, 31),
    (Message("month"), 1, 12),
    (Message("weekday"), 0, 7),
)


def zone_of(name: str) -> ZoneInfo:
    """Return the time zone of an IANA name. Raises Refused."""
    if name not in _zone_names():
        raise Refused("%(name)s is not a time zone such as Europe/Berlin", field="time_zone", name=name[:64])
    return ZoneInfo(name)


@cache
def _zone_names() -> set[str]:
    return available_timezones()  # looks into each file of the system's folder


def need_cron(expression: str, zone: str) -> str:
    """Return the expression with single blanks, a name such as @daily in lower case.

    Raises Refused where it is not valid or never matches a date.
    """
    fields = expression.split()
    if expression.strip().startswith("@"):
        text = " ".join(fields).lower()
        if text not in NAMED:
            given, names = expression.strip()[:50], ", ".join(NAMED)
            raise Refused("there is no %(name)s: write five fields, or one of %(names)s", field="cron",
                          name=given, names=names)  # fmt: skip
    elif len(fields) != len(FIELDS):
        raise Refused("must be five fields: minute, hour, day, month, weekday; or @daily", field="cron")
    else:
        for number in range(len(FIELDS)):
            _need_field(fields, number)
        text = " ".join(fields)
    try:
        first = next(after(text, zone, datetime.now(UTC)), None)
    except CronSimError:  # each field is valid: the 31st of a month that has no such day
        first = None
    if first is None:
        raise Refused("never matches a date", field="cron")
    return text


def _need_field(fields: list[str], number: int) -> None:
    """Raise Refused for a field that is not valid. Its step must be one that the field has: `*/90` of the minutes would
    be once an hour.
    """
    text, (name, low, high) = fields[number], FIELDS[number]
    steps = [part.partition("/")[2] for part in text.split(",") if "/" in part]
    if any(step.isdecimal() and int(step) > high for step in steps):
        raise Refused("the step of the %(name)s must be 1 to %(high)s", field="cron", name=name, high=high)
    alone = ["*"] * len(FIELDS)
    alone[number] = text
    try:
        CronSim(" ".join(alone), datetime.now(UTC))
    except (CronSimError, AssertionError, ValueError):
        raise Refused(
            "%(text)s is not valid for the %(name)s: write *, a number from %(low)s to %(high)s, "
            "a range 2-4, a step */2 or a list 2,4",
            field="cron", text=text[:50], name=name, low=low, high=high,
        )  # fmt: skip


def after(expression: str, zone: str, moment: datetime) -> Iterator[datetime]:
    """Yield the times after that moment, in UTC."""
    ticks = CronSim(NAMED.get(expression, expression), moment.astimezone(zone_of(zone)))
    for tick in ticks:
        yield tick.astimezone(UTC)


def next_times(expression: str, zone: str, moment: datetime, count: int) -> list[datetime]:
    """Return the next times after that moment, in UTC."""
    return list(islice(after(expression, zone, moment), count))

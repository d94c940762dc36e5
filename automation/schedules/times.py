"""Times of cron expressions, in a time zone: where the clock changes they follow cron's own rules.

A job at a fixed hour runs once a day: at a time that is skipped in spring it runs right after the change, and at one
that comes twice in autumn the first time only. One that runs every so many minutes follows the real time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from kernel.errors import Refused

NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS = 5


def zone_of(name: str) -> ZoneInfo:
    """Return the time zone of an IANA name. Raises Refused."""
    if name not in available_timezones():
        raise Refused("%(name)s is not a time zone such as Europe/Berlin", field="time_zone", name=name[:64])
    return ZoneInfo(name)


def need_cron(expression: str, zone: str) -> str:
    """Return the expression with single blanks. Raises Refused where it is not valid or never comes."""
    fields = expression.split()
    if " ".join(fields) not in NAMED and len(fields) != FIELDS:
        raise Refused("must be five fields: minute, hour, day, month, weekday; or @daily", field="cron")
    made = " ".join(fields)
    try:
        first = next(after(made, zone, datetime.now(UTC)), None)
    except CronSimError as problem:
        raise Refused("is not valid: %(problem)s", field="cron", problem=str(problem))
    if first is None:
        raise Refused("never comes", field="cron")
    return made


def after(expression: str, zone: str, moment: datetime) -> Iterator[datetime]:
    """Yield the times after that moment, in UTC."""
    ticks = CronSim(NAMED.get(expression, expression), moment.astimezone(zone_of(zone)))
    for tick in ticks:
        yield tick.astimezone(UTC)


def next_times(expression: str, zone: str, moment: datetime, count: int) -> list[datetime]:
    """Return the next times after that moment, in UTC."""
    return list(islice(after(expression, zone, moment), count))

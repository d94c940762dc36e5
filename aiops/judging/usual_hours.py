"""Hours in which a template is usually loud: each night, on working days, once a week.

Kept are the hours of the last four weeks in which more lines came than what is usual without regard to the time, each
with the most lines in a window. An hour is usually loud if the same hour of the day was so, or the one before or after
it, on enough of the last seven days, or the same hour of the week in enough of the last four weeks. How many lines are
usual then is the second highest of these numbers, so that a single incident does not count. Hours are those of UTC; the
neighbouring ones allow for jobs that take their time, and for daylight saving.
"""

from __future__ import annotations

from collections.abc import Iterable

HOURS_A_DAY, HOURS_A_WEEK = 24, 168
DAYS, LEAST_DAYS = 7, 3  # looked at; loud ones among them
WEEKS, LEAST_WEEKS = 4, 2
KEPT = WEEKS * HOURS_A_WEEK + 1
MAX_LOUD = 400  # hours of a template

Loud = list[list[int]]  # [hour since 1970, most lines in a window], the oldest first


def add(loud: Loud, hour: int, lines: int) -> Loud:
    """Return the loud hours with this one, without those that are too old."""
    before = [entry for entry in loud if hour - KEPT <= entry[0] < hour]
    most = max((entry[1] for entry in loud if entry[0] == hour), default=0)
    return [*before, [hour, max(most, lines)]][-MAX_LOUD:]


def high(loud: Loud, hour: int) -> int:
    """Return the most lines in a window that are usual in an hour that is usually loud; 0 for any other."""
    by_hour = dict(map(tuple, loud))
    daily = _second(by_hour, (hour - HOURS_A_DAY * day for day in range(1, DAYS + 1)), LEAST_DAYS)
    weekly = _second(by_hour, (hour - HOURS_A_WEEK * week for week in range(1, WEEKS + 1)), LEAST_WEEKS)
    return max(daily, weekly)


def _second(by_hour: dict[int, int], hours: Iterable[int], least: int) -> int:
    """Return the second highest number of these hours, each with its neighbours; 0 if fewer than `least` are loud."""
    peaks = sorted(max(by_hour.get(hour + near, 0) for near in (-1, 0, 1)) for hour in hours)
    return peaks[-2] if sum(peak > 0 for peak in peaks) >= least else 0

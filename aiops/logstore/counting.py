"""Numbers of lines without counting each: by minute where the query asks for names, verdict and time only; else of what
is found quickly; else estimated from samples.
"""

from __future__ import annotations

from django.db.models import BooleanField, Case, Count, F, Q, Sum, Value, When

from aiops.models import LogLine, LogMinute

from .conditions import LAST, Known

MINUTE_MS = 60_000
EXACT = 200_000  # lines that are counted one by one where the minutes do not fit the question
SAMPLED = 300  # lines of each bar
COLUMN = {"": "unjudged", "Normal": "normal", "Anomaly": "anomalies"}
VERDICTS = {column: level for level, column in COLUMN.items()}


class Bars(list):
    """The counts of a histogram. `estimated`: from a sample of the lines of each interval."""

    estimated = False


def of_minutes(asked: Known) -> int:
    """Return the number of lines with these names and verdict in all minutes that the time touches."""
    columns = [COLUMN[asked.level]] if asked.level in COLUMN else list(VERDICTS)
    sums = _minutes(asked).aggregate(**{name: Sum(name, default=0) for name in columns})
    return sum(sums.values())


def _minutes(asked: Known):
    rows = LogMinute.objects.filter(minute__gte=asked.since // MINUTE_MS, **asked.names)
    return rows if asked.until >= LAST else rows.filter(minute__lt=-(-asked.until // MINUTE_MS))


def total(asked: Known) -> int:
    """Return the number of lines of a query that asks for nothing else; minutes at both ends are counted by line."""
    parts = 0
    since, until = -(-asked.since // MINUTE_MS) * MINUTE_MS, asked.until // MINUTE_MS * MINUTE_MS
    if asked.until >= LAST:
        until = asked.until
    if since >= until:
        return _lines(asked, asked.since, asked.until)
    if asked.since < since:
        parts += _lines(asked, asked.since, since)
    if until < asked.until:
        parts += _lines(asked, until, asked.until)
    return parts + of_minutes(Known(asked.names, asked.level, since, until))


def _lines(asked: Known, since: int, until: int) -> int:
    level = {} if asked.level is None else {"level": asked.level}
    return LogLine.objects.filter(time__gte=since, time__lt=until, **asked.names, **level).count()


def bars_of_minutes(asked: Known, begin: int, width: int, count: int) -> Bars | None:
    """Return the bars by the counts of minutes; None where lines should be counted, since they are few enough.

    A minute that lies in two bars is counted in the one that it begins in.
    """
    end = begin + width * count
    asked = Known(asked.names, asked.level, max(asked.since, begin), min(asked.until, end))
    fits = all(at % MINUTE_MS == 0 for at in (begin, width, asked.since, asked.until))
    if not fits and of_minutes(asked) <= EXACT:
        return None
    bars = Bars({} for _ in range(count))
    columns = [COLUMN[asked.level]] if asked.level in COLUMN else list(VERDICTS)
    rows = _minutes(asked).values("minute").annotate(**{f"n_{name}": Sum(name) for name in columns})
    for row in rows:
        bar = bars[min(max(0, (row["minute"] * MINUTE_MS - begin) // width), count - 1)]
        for name in columns:
            if row[f"n_{name}"]:
                bar[VERDICTS[name]] = bar.get(VERDICTS[name], 0) + row[f"n_{name}"]
    return bars


def bars_of_lines(rows, begin: int, width: int, count: int) -> Bars:
    """Return the bars of a query's lines, each of which is counted."""
    bars = Bars({} for _ in range(count))
    within = rows.filter(time__gte=begin, time__lt=begin + width * count).order_by()
    spans = within.annotate(span=(F("time") - begin) / width)  # of integers: PostgreSQL rounds down
    for span, level, lines in spans.values_list("span", "level").annotate(n=Count("pk")):
        bars[span][level] = lines
    return bars


def bars_of_matches(lines: list[tuple[int, str]], begin: int, width: int, count: int) -> Bars:
    """Return the bars of lines whose time and verdict are known."""
    bars = Bars({} for _ in range(count))
    for at, level in lines:
        bar = bars[(at - begin) // width]
        bar[level] = bar.get(level, 0) + 1
    return bars


def bars_of_samples(condition: Q, asked: Known, begin: int, width: int, count: int) -> Bars:
    """Return the bars by the share of matching lines among the first of each bar that have the same names."""
    bars = bars_of_minutes(Known(asked.names, None, asked.since, asked.until), begin, width, count)
    if bars is None:
        return bars_of_lines(LogLine.objects.filter(condition), begin, width, count)
    hit = Case(When(condition, then=Value(True)), default=Value(False), output_field=BooleanField())
    for place, bar in enumerate(bars):
        lines = sum(bar.values())
        bar.clear()
        if not lines:
            continue
        since = begin + place * width
        rows = LogLine.objects.filter(time__gte=since, time__lt=since + width, **asked.names).order_by("time", "pk")
        seen = list(rows.annotate(hit=hit).values_list("level", "hit")[:SAMPLED])
        for level in {level for level, matched in seen if matched}:
            share = sum(matched and level == its for its, matched in seen) / len(seen)
            bar[level] = round(share * lines)
    bars.estimated = True
    return bars

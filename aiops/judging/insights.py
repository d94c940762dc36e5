"""Charts of many lines: bars over time, and the workloads with the most anomalies. Used by the pages."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from aiops import logstore
from kernel.errors import Refused

from . import log_search

BARS = 60
STEP, BAR = 10, 8  # of the chart, whose height is HEIGHT
HEIGHT = 100
LEAST = 3  # one anomaly among thousands of lines remains visible
WORKLOADS_SHOWN = 8
HOUR_MS = 3_600_000
OTHERS = ("level", "since", "until")


def span(given: dict, hours: str) -> tuple[int, int]:
    """Return (start, width of a bar) in ms: from `since` to `until` where the address names them,
    else the last hours.
    """
    now = int(time.time() * 1000)
    until = int(given["until"]) if "until" in given else now
    if "since" in given:
        begin = int(given["since"])
        if begin >= until:
            raise Refused("must be before until", field="since")
        return begin, -(-(until - begin) // BARS)
    width = int(hours) * HOUR_MS // BARS
    end = until if "until" in given else (now // width + 1) * width  # bars that do not shift with each request
    return max(0, end - BARS * width), width


def chart(user, given: dict, hours: str) -> dict:
    """Return the lines that match the filters, of any verdict, as bars of normal, unjudged and anomalous lines.

    Raises Refused naming a wrong filter, Fault while the store is unavailable.
    """
    body = log_search.body(user, **{name: value for name, value in given.items() if name != "level"})
    begin, width = span(given, hours)
    counts = logstore.get().histogram(body, begin, width, BARS)
    top = max(sum(count.values()) for count in counts)
    bars = [_bar(count, place, top, begin, width) for place, count in enumerate(counts)]
    sums = {name: sum(bar[name] for bar in bars) for name in ("normal", "unjudged", "anomalies")}
    ends = {"begin": _at(begin), "end": _at(begin + width * BARS), "wider": wider(begin, width)}
    ends["estimated"] = getattr(counts, "estimated", False)
    return {"bars": bars, "top": top, **sums, **ends, "width": STEP * BARS, "height": HEIGHT}


def wider(begin: int, width: int) -> dict[str, int]:
    """Return `since` and `until` of a span twice as long around that of the chart, in ms."""
    half = width * BARS // 2
    return {"since": max(0, begin - half), "until": begin + width * BARS + half}


def _bar(counts: dict[str, int], place: int, top: int, begin: int, width: int) -> dict:
    anomalies, normal = counts.get("Anomaly", 0), counts.get("Normal", 0)
    unjudged = sum(counts.values()) - anomalies - normal
    high = max(LEAST, HEIGHT * anomalies / top) if anomalies else 0.0
    others = HEIGHT * (normal + unjudged) / (top or 1)
    scale = min(1.0, (HEIGHT - high) / others) if others else 1.0  # they shrink for an anomaly that is drawn larger
    parts, floor = [], float(HEIGHT)
    for kind, lines in (("normal", normal), ("unjudged", unjudged)):
        tall = HEIGHT * lines / (top or 1) * scale
        floor -= tall
        parts.append({"kind": kind, "y": f"{floor:.2f}", "height": f"{tall:.2f}"})
    parts.append({"kind": "anomalies", "y": f"{floor - high:.2f}", "height": f"{high:.2f}"})
    since = begin + place * width
    return {
        "x": place * STEP,
        "normal": normal,
        "unjudged": unjudged,
        "anomalies": anomalies,
        "parts": [part for part in parts if float(part["height"])],
        "since": since,
        "until": since + width,
        "at": _at(since),
    }


def workloads(user, given: dict, hours: str) -> list[dict]:
    """Return the workloads with the most anomalies in the same span. Raises as `chart` does."""
    begin, width = span(given, hours)
    names = {name: value for name, value in given.items() if name not in OTHERS}
    bounds = {"since": str(begin), "until": str(begin + width * BARS)}
    rows = logstore.get().by_workload(log_search.body(user, level="Anomaly", **bounds, **names), WORKLOADS_SHOWN)
    return [dict(zip(("cluster", "namespace", "deployment", "anomalies"), row, strict=True)) for row in rows]


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)

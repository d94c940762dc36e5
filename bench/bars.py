"""What a benchmark has measured, with the bar where there is one; run.py makes a table of all of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path


def note(what: str, value: float, unit: str = "", *, least: float | None = None, most: float | None = None) -> bool:
    """Record a figure; return whether it reaches its bar, which is the `least` or the `most` that it may be."""
    good = (least is None or value >= least) and (most is None or value <= most)
    if place := os.environ.get("BENCH_RESULTS"):
        row = {"what": what, "value": value, "unit": unit, "least": least, "most": most, "good": good}
        with Path(place).open("a") as file:
            file.write(json.dumps(row) + "\n")
    return good


def read(place: Path) -> list[dict]:
    """Return what a benchmark has recorded."""
    return [json.loads(line) for line in place.read_text().splitlines()] if place.is_file() else []


def table(rows: Iterable[dict]) -> str:
    """Return the rows, each with the key `bench`, as a table."""
    lines = [f"{'benchmark':<15} {'figure':<52} {'measured':>14}   bar"]
    for row in rows:
        bar, value = "", row.get("value")
        if row.get("least") is not None:
            bar = f"at least {row['least']:g}"
        elif row.get("most") is not None:
            bar = f"at most {row['most']:g}"
        shown = "" if value is None else f"{value:,.2f} {row['unit']}".strip()
        lines.append(f"{row['bench']:<15} {row['what']:<52} {shown:>14}   {bar}{'' if row['good'] else '   MISSED'}")
    return "\n".join(line.rstrip() for line in lines)

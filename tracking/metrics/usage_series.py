"""A job's resource usage over time, as its runner recorded it (runners.RunSpec.usage); read by api and pages."""

from __future__ import annotations

from collections import defaultdict

from jobs import environment
from jobs.models import Job
from kernel import sanitize, storage

from .series import Series

KINDS = ("cpu", "ram", "gpu", "gpu_ram", "disk")
READ_LIMIT = 8 << 20  # bytes; a run of a month writes less than one mebibyte


def of_job(job: Job, points: int = 0, skip: int = 0) -> list[Series]:
    """Return a series for each kind of usage, its steps in seconds since the attempt began.

    Each is thinned out to about `points` points: the highest of adjacent values is kept, so that peaks remain visible.
    Points of the first `skip` samples are left out.
    """
    seen: dict[str, list[list[float]]] = defaultdict(list)
    attempt, before = 1, 0.0
    for row in _rows(job):
        if row["after"] < before:
            attempt += 1
        before = row["after"]
        for kind in KINDS:
            if isinstance(row.get(kind), int | float):
                seen[kind].append([row["after"], row[kind], attempt])
    return [_series(kind, seen[kind], points, skip) for kind in KINDS if kind in seen]


def _rows(job: Job) -> list[dict]:
    path = environment.usage_path(job)
    file = storage.open_file(path.parent.parent, f"{path.parent.name}/{path.name}")
    if file is None:
        return []
    with file:
        lines = file.read(READ_LIMIT).splitlines()
    rows = []
    for line in lines:
        try:
            row = sanitize.read_strict(line)
        except ValueError:  # the disk was full, or the line is being written now
            continue
        if isinstance(row, dict) and isinstance(row.get("after"), int | float):
            rows.append(row)
    return rows


def _series(kind: str, rows: list[list[float]], points: int, skip: int) -> Series:
    values, new = [row[1] for row in rows], rows[skip:]
    drawn = []
    if points and new:
        stride = -(-len(new) // points)
        drawn = [max(new[at : at + stride], key=lambda row: row[1]) for at in range(0, len(new), stride)]
    return Series(kind, len(rows), values[-1], min(values), max(values), drawn)

"""The progress of a script that reports none, read from the last progress bar of tqdm in its log.

reconcile reads the last few kilobytes of each running job's log. The outermost bar counts: the one that has been
running the longest. A bar that starts again (one for each epoch) does not show the progress of the whole script;
neither do bars of a download or an evaluation, nor one that is full, since what follows is unknown.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from django.utils import timezone

from kernel import storage

from . import environment, lifecycle
from .models import Job, ProgressSource

TAIL = 16 << 10  # bytes
MAX = 99  # a bar that is full is not the end of the run
SLACK = 0.1  # a remaining time that differs by less is not news
LEAST_SLACK_S = 3
# ` Training:  37%|███▋      | 37/100 [00:03<00:06, 10.1it/s]`, as tqdm draws it
BAR = re.compile(
    r"(?P<title>[^\r\n|%]{0,100}?)(?P<percent>\d{1,3})%\|[^|\r\n]{0,500}\| *(?P<done>[\d.]+)[a-zA-Z]{0,3}/"
    r"(?P<total>[\d.]+)[a-zA-Z]{0,3} \[(?P<spent>[\d:]+)<(?P<left>[\d:]+|\?)"
)
ROUND = re.compile(r"(\d+) ?/ ?(\d+)")  # `Epoch 2/10` in a title
LEAST_SPENT_S = 3  # a bar that has just begun tells little
# Titles of bars of a part of the script: one of its epochs, or what comes before and between them.
PART = re.compile(r"epoch|fold|load|fetch|\bmap|filter|tokeni|sanity|valid|eval|\btest|predict|generat", re.IGNORECASE)
COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Bar(NamedTuple):
    """One state of a progress bar. Times are in seconds; `left` is None if tqdm does not know it."""

    title: str
    percent: float
    total: str
    spent: int
    left: int | None


def record(job: Job) -> None:
    """Record the progress in the log of a running job, if the script reports none itself."""
    if job.progress_source not in ("", ProgressSource.LOG):
        return
    progress = progress_of(_tail(job))
    if progress is None:
        return
    percent, left = progress
    known = (job.expected_end - timezone.now()).total_seconds() if job.expected_end else None
    if percent > job.progress or _is_news(known, left):
        lifecycle.note_bar(job.pk, job.run_name, percent, left)


def _is_news(known: float | None, left: float | None) -> bool:
    if known is None or left is None:
        return known is not left
    return abs(known - left) > max(LEAST_SLACK_S, SLACK * left)


def progress_of(text: str) -> tuple[int, float | None] | None:
    """Return the percent and the remaining seconds of the outermost bar; None if no bar shows them."""
    if "%|" not in text:
        return None
    drawn = [_read(match) for match in BAR.finditer(COLOUR.sub("", text))]
    newest: dict[tuple[str, str], Bar] = {}
    again = set()  # bars that started again
    for bar in drawn:
        key = re.sub(r"\d+", "#", bar.title), bar.total
        if key in newest and bar.percent < newest[key].percent:
            again.add(key)
        newest[key] = bar
    whole = [bar for key, bar in newest.items() if _is_whole(bar, key in again)]
    if not whole:
        return None
    bar = max(whole, key=lambda bar: bar.spent)
    percent, left = bar.percent, bar.left
    if rounds := _rounds(bar):
        now, all_rounds = rounds
        percent = (100 * (now - 1) + percent) / all_rounds
        left = None if left is None else left + (bar.spent + left) * (all_rounds - now)
    return min(MAX, int(percent)), left


def _is_whole(bar: Bar, again: bool) -> bool:
    """Return whether the bar shows the progress of the whole script."""
    if _rounds(bar):
        return True
    return bar.percent < 100 and bar.spent >= LEAST_SPENT_S and not (again or PART.search(bar.title))


def _rounds(bar: Bar) -> tuple[int, int] | None:
    """Return (current round, number of rounds) of a bar whose title has them."""
    match = ROUND.search(bar.title)
    now, rounds = (int(part[:9]) for part in match.groups()) if match else (0, 0)
    return (now, rounds) if 1 <= now <= rounds else None


def _read(match: re.Match) -> Bar:
    left = None if match["left"] == "?" else _seconds(match["left"])
    percent = min(100, int(match["percent"]))
    return Bar(match["title"].strip(" :\t"), percent, match["total"], _seconds(match["spent"]), left)


def _seconds(text: str) -> int:
    """Return the seconds of `1:02:03` or `02:03`."""
    seconds = 0
    for part in text.split(":")[-3:]:
        seconds = seconds * 60 + int(part[-6:] or 0)
    return seconds


def _tail(job: Job) -> str:
    path = environment.log_path(job)
    file = storage.open_file(path.parent.parent, f"{path.parent.name}/{path.name}")
    if file is None:
        return ""
    with file:
        size = os.fstat(file.fileno()).st_size
        return os.pread(file.fileno(), TAIL, max(0, size - TAIL)).decode(errors="replace")

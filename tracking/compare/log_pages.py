"""The diff of two runs' logs."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from django.http import Http404
from django.shortcuts import render
from django.views.decorators.http import require_GET

from accounts.sharing.access import shareable
from jobs import logs
from jobs.models import Job
from kernel import ansi

from .pages import selected

MAX_BYTES = 512 << 10  # of each log, from its beginning: a program's first lines tell most about how it was set up
MAX_LINES = 4000
MAX_COLUMNS = 1000
SHOWN = 2000  # lines of the difference
CONTEXT = 3
# What differs in any two runs of the same program: times, durations, addresses, process ids.
NUMBER = re.compile(r"0x[0-9a-fA-F]+|(?:(?<=[\s=:(\[,])-)?\d+(?:[.:,]\d+)*(?:[eE][+-]?\d+)?")


@dataclass(frozen=True)
class Line:
    """A line of the difference: `kind` is same, left, right or gap; the numbers are those of the lines in the logs."""

    kind: str
    left: int | None
    right: int | None
    text: str


@shareable
@require_GET
def compare_logs(request):
    """Show the diff of the logs of `?job=a&job=b`. Numbers are ignored unless `?numbers=1` is given."""
    jobs = selected(request)
    if len(jobs) != 2:
        raise Http404
    with_numbers = request.GET.get("numbers") == "1"
    left, right = [_lines(job) for job in jobs]
    lines = difference(left, right, with_numbers)
    context = {
        "left": jobs[0],
        "right": jobs[1],
        "lines": lines[:SHOWN],
        "more": len(lines) > SHOWN,
        "cut": any(
            logs.size(job) > MAX_BYTES or len(text) == MAX_LINES for job, text in zip(jobs, (left, right), strict=True)
        ),
        "most": MAX_LINES,
        "with_numbers": with_numbers,
        "same": not lines,
        "empty": not left and not right,
    }
    return render(request, "tracking/compare_logs.html", context)


def _lines(job: Job) -> list[str]:
    text = ansi.plain(logs.read(job, 0, MAX_BYTES)).decode(errors="replace")
    return [line[:MAX_COLUMNS] for line in text.splitlines()[:MAX_LINES]]


def difference(left: list[str], right: list[str], with_numbers: bool) -> list[Line]:
    """Return the lines that differ with CONTEXT lines around them; none where the logs are the same."""
    seen = [[line if with_numbers else NUMBER.sub("#", line) for line in side] for side in (left, right)]
    rows: list[Line] = []
    for group in difflib.SequenceMatcher(None, *seen).get_grouped_opcodes(CONTEXT):
        if rows or group[0][1] or group[0][3]:
            rows.append(Line("gap", None, None, ""))
        for kind, left_from, left_to, right_from, right_to in group:
            if kind == "equal":
                pairs = zip(range(left_from, left_to), range(right_from, right_to), strict=True)
                rows += [Line("same", at + 1, other + 1, right[other]) for at, other in pairs]
                continue
            rows += [Line("left", at + 1, None, left[at]) for at in range(left_from, left_to)]
            rows += [Line("right", None, at + 1, right[at]) for at in range(right_from, right_to)]
    return rows

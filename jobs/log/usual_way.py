"""Where a job's run left the way that earlier finished runs of the same script went (opnilog.usual_way).

Computed when somebody asks, from the same lines of the same runs as `differences`, and kept in the cache: the logs of
jobs that have ended stay as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from django.core.cache import cache

from jobs.models import ENDED, Job
from kernel.messages import Message
from opnilog.usual_way import LEAST_RUNS, MAX_LINES, TooVaried, Way

from .differences import MAX_RUNS, Line, Text, earlier_runs, read

log = logging.getLogger(__name__)

KEPT_S = 24 * 3600
SHOWN = 300  # characters of a line in the message


class Verdict(StrEnum):
    USUAL = "usual"  # the run went its usual way
    DEPARTED = "departed"
    UNKNOWN = "unknown"  # too few earlier runs, or runs that have too little in common


@dataclass(frozen=True)
class UsualWay:
    """`runs`: the earlier runs that it was compared with. `last`: the last line of the usual way, None where the first
    line is unusual. `then`: what followed, None at the log's end. `usual`: what usually follows, in an earlier run;
    None where that is not the same each time.
    """

    verdict: Verdict
    runs: list[str]
    msg: str
    last: Line | None = None
    then: Line | None = None
    usual: Line | None = None


def usual_way(job: Job, may_read: Callable[[Iterable[Job]], list[Job]] = list) -> UsualWay:
    """Compare the job's log with those of the latest of its earlier runs that `may_read` returns and that have one."""
    runs = may_read(earlier_runs(job)[: 2 * MAX_RUNS])
    if not runs:
        return UsualWay(
            Verdict.UNKNOWN, [], Message("no earlier run of %(entry)s has finished", entry=job.entry or job.name)
        )
    if len(runs) < LEAST_RUNS:
        return _too_few([run.name for run in runs])
    key = "-".join(
        map(str, ["usual-way", job.pk, job.ended.timestamp() if job.ended else 0, *(run.pk for run in runs)])
    )
    if job.state not in ENDED:
        return _compute(job, runs)
    found = _cached(key)
    if found is None:
        found = _compute(job, runs)
        try:
            cache.set(key, found, KEPT_S)
        except Exception as problem:  # only a cache
            log.warning("the usual way of a job could not be cached: %s", problem)
    return found


def _cached(key: str) -> UsualWay | None:
    try:
        return cache.get(key)
    except Exception as problem:  # only a cache
        log.warning("the cache does not respond; comparing the logs: %s", problem)
        return None


def _too_few(names: list[str]) -> UsualWay:
    count = len(names)
    words = Message(
        "at least %(least)s finished runs with a log are needed to say what is usual, %(count)s so far",
        count=count, least=LEAST_RUNS,
    )  # fmt: skip
    return UsualWay(Verdict.UNKNOWN, names, words)


def _compute(job: Job, runs: list[Job]) -> UsualWay:
    names = [run.name for run in [job, *runs]]
    others = [text for run in runs if (text := read(run, names)).lines][:MAX_RUNS]
    compared = [text.job.name for text in others]
    if len(others) < LEAST_RUNS:
        return _too_few(compared)
    own = read(job, names)
    if not own.lines:
        return UsualWay(Verdict.UNKNOWN, compared, Message("the log is empty"))
    try:
        way = Way([_forms(text) for text in others])
        found = way.departure(_forms(own), ended=job.state in ENDED)
    except TooVaried:
        return UsualWay(Verdict.UNKNOWN, compared, Message("the logs have too many different lines to be compared"))
    if way.knows_nothing:
        words = Message("the earlier runs differ too much from each other to say what is usual")
        return UsualWay(Verdict.UNKNOWN, compared, words)
    compared = [compared[number] for number in way.used]
    if found is None:
        return UsualWay(Verdict.USUAL, compared, Message("the run went its usual way"))
    last = _line(own, found.before) if found.before >= 0 else None
    then = _line(own, found.at)
    usual = _line(others[found.usual[0]], found.usual[1]) if found.usual else None
    return UsualWay(Verdict.DEPARTED, compared, _say(last, then, usual), last, then, usual)


def _places(text: Text) -> list[int | None]:
    """Return the places of the lines that are compared: the first and the last ones of a log with many; None stands for
    those between them.
    """
    count, half = len(text.lines), MAX_LINES // 2
    if not text.cut and count <= MAX_LINES:
        return list(range(count))
    head, tail = (text.seam, text.seam) if text.cut else (count, 0)
    return [*range(min(head, half)), None, *range(max(tail, count - half), count)]


def _forms(text: Text) -> list[str | None]:
    return [None if place is None else text.lines[place][2] for place in _places(text)]


def _line(text: Text, at: int) -> Line | None:
    """Return the line at that place of `_forms`; None behind the last one."""
    places = _places(text)
    return text.show(places[at]) if at < len(places) else None


def _say(last: Line | None, then: Line | None, usual: Line | None) -> Message:
    if last is None:
        return Message("the run was unusual from its first line on: “%(here)s”", here=then.text[:SHOWN])
    said = {"line": last.line, "last": last.text[:SHOWN]}
    if then is None and usual is None:
        return Message("the run went its usual way until line %(line)s (“%(last)s”), where the log ends early", **said)
    if then is None:
        return Message(
            "the run went its usual way until line %(line)s (“%(last)s”); usually “%(usual)s” follows, "
            "here the log ends",
            **said, usual=usual.text[:SHOWN],
        )  # fmt: skip
    said |= {"here": then.text[:SHOWN]}
    if usual is None:
        return Message("the run went its usual way until line %(line)s (“%(last)s”); here came “%(here)s”", **said)
    return Message(
        "the run went its usual way until line %(line)s (“%(last)s”); usually “%(usual)s” follows, "
        "here came “%(here)s”",
        **said, usual=usual.text[:SHOWN],
    )  # fmt: skip

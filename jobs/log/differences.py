"""What the log of a job has that those of earlier finished runs of the same script do not have, and the other way
round. Lines are compared by their shape (`shapes`), so that numbers and times do not matter.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from django.db.models import QuerySet

from jobs.environment import log_file
from jobs.models import ENDED, Job, State
from kernel import ansi
from kernel.textlog import reading
from kernel.textlog.times import Times

from .shapes import shapes

MAX_RUNS = 5
HALF = 512 << 10  # bytes of a run that are compared, from its beginning and from its end
MAX_COLUMNS = 500
SHOWN = 100  # lines of each kind


@dataclass(frozen=True)
class Line:
    """A line of a run: its number in the job's log, its text, how many lines of the run have its shape."""

    job: str
    line: int
    text: str
    count: int


@dataclass
class Text:
    """What is compared of a job's last run: its lines with their numbers and shapes, without blank ones. Of a long log
    (`cut`), the lines from `seam` on are those of its end.
    """

    job: Job
    lines: list[tuple[int, str, str]] = field(default_factory=list)
    cut: bool = False
    seam: int = 0

    def __post_init__(self):
        self.counts = Counter(form for _line, _text, form in self.lines)

    def show(self, place: int) -> Line:
        line, text, form = self.lines[place]
        return Line(self.job.name, line, text, self.counts[form])


@dataclass(frozen=True)
class Differences:
    """The result: with which jobs the log was compared; the last usual line, the line that followed it (None at the
    log's end) and the one that usually follows (all None where the run went as usual); lines of shapes that none of
    these jobs has, and those that all of them have and this one lacks; how many of both there are.
    """

    compared: list[str]
    last: Line | None = None
    then: Line | None = None
    usual: Line | None = None
    new: Sequence[Line] = ()
    missing: Sequence[Line] = ()
    new_total: int = 0
    missing_total: int = 0
    cut: bool = False


def earlier_runs(job: Job) -> QuerySet[Job]:
    """Return the finished jobs of the same user and script that were created before this one, the latest first."""
    if not job.entry or job.is_client:  # the platform has no log of a client's run
        return Job.objects.none()
    same_script = {"user": job.user_id, "origin": job.origin, "entry": job.entry}
    same = Job.kept.filter(**same_script, state=State.FINISHED, created__lt=job.created)
    return same.select_related("user").order_by("-created", "-pk")


def differences(job: Job, may_read: Callable[[Iterable[Job]], list[Job]] = list) -> Differences:
    """Compare the job's log with those of the latest of its earlier runs that `may_read` returns and that have one."""
    runs = may_read(earlier_runs(job)[: 2 * MAX_RUNS])
    names = [run.name for run in [job, *runs]]
    others = [text for run in runs if (text := read(run, names)).lines][:MAX_RUNS]
    own = read(job, names)
    if not others or not own.lines:
        return Differences([text.job.name for text in others])
    known = set().union(*(text.counts for text in others))
    new = _first_of_each(own, own.counts.keys() - known)
    common = set(others[0].counts).intersection(*(text.counts for text in others[1:]))
    # Of a run that goes on, and of one whose middle is not read, it is not known what is missing.
    missing = [] if own.cut or job.state not in ENDED else _first_of_each(others[0], common - own.counts.keys())
    return Differences(
        [text.job.name for text in others],
        *_departure(own, others, known, ended=job.state in ENDED),
        new=[own.show(place) for place in new[:SHOWN]],
        missing=[others[0].show(place) for place in missing[:SHOWN]],
        new_total=len(new),
        missing_total=len(missing),
        cut=own.cut or any(text.cut for text in others),
    )


def _first_of_each(text: Text, shapes: set[str]) -> list[int]:
    """Return the places of the first line of each of these shapes, in the order of the log."""
    left, firsts = set(shapes), []
    for place, (_line, _text, form) in enumerate(text.lines):
        if form in left:
            left.discard(form)
            firsts.append(place)
    return firsts


def _departure(own: Text, others: list[Text], known: set[str], ended: bool) -> tuple:
    """Return the last line that an earlier run has, too, what followed it here, and what follows it in the latest of
    the earlier runs that has it; three times None where this run ended as that one did.
    """
    last = next((place for place in range(len(own.lines) - 1, -1, -1) if own.lines[place][2] in known), None)
    if last is None:
        return None, own.show(0), others[0].show(0)
    then = own.show(last + 1) if last + 1 < len(own.lines) else None
    usual = _follower(own.lines[last][2], others)
    if then is None and (usual is None or not ended):
        return None, None, None
    return own.show(last), then, usual


def _follower(form: str, others: list[Text]) -> Line | None:
    """Return what follows the last line of this shape, in the latest run that has it."""
    text = next(text for text in others if form in text.counts)
    place = max(place for place, line in enumerate(text.lines) if line[2] == form)
    return text.show(place + 1) if place + 1 < len(text.lines) else None


def read(job: Job, names: list[str]) -> Text:
    """Return the text of the job's last run. The names of the compared jobs are no differences."""
    log = log_file(job)
    with Times(log.open_times()) as times:
        begins = times.begins()
    file = log.open()
    if file is None:
        return Text(job)
    with file:
        size = os.fstat(file.fileno()).st_size
        begin = max((offset for offset, _at in begins if offset <= size), default=0)
        parts = [(begin, min(begin + HALF, size))]
        cut = size - begin > 2 * HALF
        if size > begin + HALF:
            parts.append((size - HALF if cut else begin + HALF, size))
        pieces = [os.pread(file.fileno(), end - start, start) for start, end in parts]
    if len(pieces) == 2 and not cut:
        pieces, parts = [b"".join(pieces)], parts[:1]
    numbers = reading.line_numbers(log, [start for start, _end in parts])
    lines: list[tuple[int, str, str]] = []
    seam = 0
    for place, (number, piece) in enumerate(zip(numbers, pieces, strict=True)):
        rows = ansi.plain(piece).decode(errors="replace").split("\n")
        if cut:  # the last line of the first part and the first line of the second one are not whole
            rows, number = (rows[:-1], number) if place == 0 else (rows[1:], number + 1)
        rows = [row[:MAX_COLUMNS] for row in rows]
        seam = len(lines)
        forms = shapes(_without(names, rows))
        numbered = zip(range(number, number + len(rows)), rows, forms, strict=True)
        lines += [(at, row, form) for at, row, form in numbered if form]
    return Text(job, lines, cut, seam if cut else 0)


def _without(names: list[str], rows: list[str]) -> list[str]:
    """Return the rows with a sign in place of each of the names."""
    text = "\n".join(rows)
    for name in names:
        if name in text:
            text = re.sub(rf"(?<![a-z]){name}(?![a-z])", "#", text)
    return text.split("\n")

"""The results of an evaluation: what each scorer says of each row, its mean, and how another evaluation differs.

A row is a trace of the run; feedback that names another run as its source is that run's. Rows of two evaluations are
the same if they have the same request, the first with the first where several have it. A higher number is better, true
and "yes" are better than false and "no"; other texts are equal or differ.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from django.db.models import QuerySet, TextField, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce, Left, NullIf

from jobs.models import Assessment, Job, Trace
from tracking.runs.filters.attributes import tag_value
from tracking.traces import assessments
from tracking.traces.rows import of_run

SOURCE_RUN = "mlflow.assessment.sourceRunId"  # in the metadata of an assessment
BY_SCORER = "mlflow.trace.sourceScorer"  # a tag of a trace of a scorer itself, which is no row
RUN_TYPE, EVALUATION = "mlflow.runType", "genai_evaluate"  # a tag of a run
MAX_ROWS = 2000  # of an evaluation that are read
MAX_SAID = 50_000  # assessments of an evaluation that are read
SCORERS = 50  # of a table
ERROR = 300  # characters
WORDS = {
    "yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0, "pass": 1.0, "fail": 0.0, "passed": 1.0, "failed": 0.0,
    "correct": 1.0, "incorrect": 0.0,
}  # fmt: skip


class Verdict(StrEnum):
    """How a value differs from that of the evaluation compared with."""

    SAME = "same"
    IMPROVED = "improved"
    REGRESSED = "regressed"
    CHANGED = "changed"
    ONLY = "only"  # one of the two has none


@dataclass
class Cell:
    """What a scorer says of a row. `number` is None for a text that is no grade, and for an error."""

    shown: str
    number: float | None
    rationale: str = ""
    error: str = ""
    before: Cell | None = None
    verdict: Verdict | None = None


@dataclass
class Row:
    """One row of an evaluation, with its cells by scorer."""

    trace: Trace
    cells: dict[str, Cell] = field(default_factory=dict)
    expected: list[tuple[str, str]] = field(default_factory=list)
    before: Row | None = None

    @property
    def verdicts(self) -> set[Verdict | None]:
        return {cell.verdict for cell in self.cells.values()}

    @property
    def has_error(self) -> bool:
        return self.trace.status == Trace.Status.ERROR or any(cell.error for cell in self.cells.values())

    def columns(self, names: list[str]) -> list[Cell | None]:
        """Return the cells in the order of these scorers."""
        return [self.cells.get(name) for name in names]


@dataclass
class Summary:
    """What a scorer says of all rows: the mean of what are numbers, else how often each text is there."""

    name: str
    count: int = 0
    mean: float | None = None
    texts: list[tuple[str, int]] = field(default_factory=list)
    errors: int = 0
    compared: int = 0  # rows in which both evaluations have a number; the three below are of these only
    before: float | None = None  # their mean in the evaluation compared with
    difference: float | None = None  # how much higher it is here
    improved: int = 0
    regressed: int = 0


@dataclass
class Evaluation:
    """The rows of an evaluation, as many as MAX_ROWS, and the names of its scorers."""

    rows: list[Row]
    scorers: list[str]
    total: int


def evaluations(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """Return those of the runs that are evaluations, the newest first."""
    return jobs.filter(system_tags__contains={RUN_TYPE: EVALUATION}, trashed=None).order_by("-pk")


def read(job: Job) -> Evaluation:
    """Return the evaluation of a run."""
    run = job.run_id.hex
    found = Trace.objects.filter(of_run(run), user=job.user_id, project=job.project_id)
    found = found.exclude(tags__has_key=BY_SCORER)
    keys = list(found.order_by("started_ns", "pk").values_list("pk", flat=True)[: MAX_ROWS + 1])
    traces = Trace.objects.filter(pk__in=keys[:MAX_ROWS]).defer("tags", "metadata").order_by("started_ns", "pk")
    rows = {trace.pk: Row(trace) for trace in traces}
    names: dict[str, None] = {}
    for one in _said(list(rows), run):
        row = rows[one.trace_id]
        if one.kind == Assessment.Kind.EXPECTATION:
            row.expected.append((one.name, one.shown))
        elif one.name in names or len(names) < SCORERS:
            names.setdefault(one.name)
            row.cells[one.name] = _cell(one)
    total = len(keys) if len(keys) <= MAX_ROWS else found.count()
    return Evaluation(list(rows.values()), sorted(names), total)


def _said(keys: list[int], run: str) -> Iterable[Assessment]:
    """Return the assessments of traces by this run, by nobody's run, and by people, oldest first."""
    rows = Assessment.objects.filter(trace__in=keys, valid=True)
    rows = rows.annotate(by_run=tag_value(SOURCE_RUN, "metadata"), failed=Left(_why(), ERROR + 1)).order_by("pk")
    shown = assessments.shown(rows)
    return (one for one in shown[:MAX_SAID].iterator(2000) if one.by_run in (None, run))


def _cell(one: Assessment) -> Cell:
    if one.failed and one.failed != "null":
        return Cell("", None, one.said, one.failed)
    return Cell(one.shown, number_of(one.shown), one.said)


def _why() -> Coalesce:
    """Return why a scorer has failed, as the database finds it: clients send a stack trace beside the message, that may
    be so long that what is read of the whole is no JSON.
    """
    said = (NullIf(KeyTextTransform(name, "error"), Value("")) for name in ("error_message", "error_code"))
    return Coalesce(*said, Cast("error", TextField()))


def number_of(text: str) -> float | None:
    """Return the grade that a value is; None for another text."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number - number == 0 else None


def compare(new: Evaluation, old: Evaluation) -> None:
    """Set of the rows and cells of an evaluation how they differ from those of another."""
    waiting: dict[str, list[Row]] = defaultdict(list)
    for row in reversed(old.rows):
        waiting[row.trace.request].append(row)
    for row in new.rows:
        if not waiting[row.trace.request]:
            continue
        row.before = waiting[row.trace.request].pop()
        for name, cell in row.cells.items():
            cell.before = row.before.cells.get(name)
            cell.verdict = verdict(cell, cell.before)


def verdict(new: Cell, old: Cell | None) -> Verdict:
    """Return how a value differs from an older one."""
    if old is None or bool(new.error) != bool(old.error):
        return Verdict.ONLY
    if new.number is not None and old.number is not None:
        if new.number == old.number:
            return Verdict.SAME
        return Verdict.IMPROVED if new.number > old.number else Verdict.REGRESSED
    return Verdict.SAME if (new.shown, new.error) == (old.shown, old.error) else Verdict.CHANGED


def summaries(new: Evaluation) -> list[Summary]:
    """Return what each scorer says of all rows, and how the rows that are compared differ."""
    made = []
    for name in new.scorers:
        cells = [row.cells[name] for row in new.rows if name in row.cells]
        one = Summary(name, len(cells), errors=sum(bool(cell.error) for cell in cells))
        one.improved = sum(cell.verdict == Verdict.IMPROVED for cell in cells)
        one.regressed = sum(cell.verdict == Verdict.REGRESSED for cell in cells)
        values = [cell for cell in cells if not cell.error]
        numbers = [cell.number for cell in values if cell.number is not None]
        if values and len(numbers) == len(values):
            one.mean = _mean(numbers)
        else:
            one.texts = Counter(cell.shown for cell in values).most_common(5)
        _compare_means(one, cells)
        made.append(one)
    return made


def _compare_means(one: Summary, cells: list[Cell]) -> None:
    """Set how the means differ over the rows that both evaluations have: those of other rows would mislead."""
    pairs = [
        (cell.number, cell.before.number)
        for cell in cells
        if cell.before is not None and cell.number is not None and cell.before.number is not None
    ]
    one.compared = len(pairs)
    if pairs:
        one.before = _mean([before for _, before in pairs])
        one.difference = _mean([number for number, _ in pairs]) - one.before


def _mean(numbers: list[float]) -> float:
    """Return the mean, also of numbers whose sum no float can be."""
    total = sum(numbers)
    return total / len(numbers) if math.isfinite(total) else sum(number / len(numbers) for number in numbers)

"""What an import or export has done: counts by kind, and each thing that could not be taken with the reason."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

NEW, CHANGED, SAME, LEFT = "new", "changed", "unchanged", "left out"
KINDS = {  # in the order of the table
    "experiment": "experiments",
    "run": "runs",
    "point": "metric points",
    "param": "parameters",
    "input": "datasets of runs",
    "file": "artifacts",
    "byte": "bytes of artifacts",
    "logged": "logged models",
    "registered": "registered models",
    "version": "model versions",
    "alias": "aliases",
    "evaluation": "evaluation datasets",
    "record": "records of evaluation datasets",
    "scorer": "versions of scorers",
}
MAX_LINE = 500


class Problem(NamedTuple):
    """What could not be taken, of which object, and why."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"[:MAX_LINE]


class Report:
    """Counts and problems of one call. `say` prints a line of progress."""

    def __init__(self, say: Callable[[str], None] = lambda line: None):
        self.say = say
        self.found: Counter[str] = Counter()  # at the source
        self.done: Counter[tuple[str, str]] = Counter()  # by kind and by what was done
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.verified: list[tuple[str, int, int]] = []  # kind, at the source, here
        self.guard = threading.Lock()

    def count(self, kind: str, what: str, number: int = 1) -> None:
        """Count objects of a kind: NEW, CHANGED, SAME or LEFT."""
        with self.guard:
            self.done[kind, what] += number

    def problem(self, what: str, why: object) -> None:
        """Record what could not be taken."""
        with self.guard:
            self.problems.append(Problem(what, " ".join(str(why).split())))

    def note(self, line: str) -> None:
        """Record what is worth knowing, and no loss."""
        with self.guard:
            if line not in self.notes:
                self.notes.append(line)

    @property
    def complete(self) -> bool:
        """Return whether all was taken, and is there."""
        return not self.problems and all(there <= here for _kind, there, here in self.verified)

    def table(self) -> list[str]:
        """Return the counts as lines of a table."""
        columns = (NEW, CHANGED, SAME, LEFT)
        rows = [("", *columns)]
        for kind, word in KINDS.items():
            numbers = [self.done[kind, column] for column in columns]
            if any(numbers):
                rows.append((word, *(str(number) if number else "-" for number in numbers)))
        return _aligned(rows) if len(rows) > 1 else ["nothing"]

    def checked(self) -> list[str]:
        """Return the comparison of the counts as lines of a table."""
        rows = [("", "there", "here", "")]
        for kind, there, here in self.verified:
            word = "complete" if there <= here else f"{there - here} missing"
            rows.append((KINDS[kind], str(there), str(here), word))
        return _aligned(rows) if len(rows) > 1 else []

    def as_json(self) -> dict:
        """Return the report as an object."""
        counts: dict[str, dict[str, int]] = {}
        for (kind, what), number in self.done.items():
            counts.setdefault(KINDS[kind], {})[what] = number
        return {
            "complete": self.complete,
            "counts": counts,
            "verified": [{"what": KINDS[kind], "there": there, "here": here} for kind, there, here in self.verified],
            "not_copied": [problem._asdict() for problem in self.problems],
            "notes": self.notes,
        }


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for first, *others in rows:
        cells = [text.rjust(width) for text, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return lines

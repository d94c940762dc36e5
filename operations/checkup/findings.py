"""What a check finds, and how the checks are run: each by itself, so that one that fails hides no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass

LEVELS = ("ok", "note", "warning", "problem")  # from harmless to harmful
EXIT = {"ok": 0, "note": 0, "warning": 1, "problem": 2}


@dataclass(frozen=True)
class Finding:
    """One line of the report: what was looked at, one of LEVELS, what was found, and the remedy where there is one."""

    about: str
    level: str
    what: str
    remedy: str = ""

    def as_data(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True)
class Check:
    """A question, and the function that answers it. One that `needs` servers is asked only while they answer."""

    about: str
    ask: Callable[[], Iterable[Finding]]
    needs: frozenset[str] = frozenset()


def run(checks: Iterable[Check], missing: Iterable[str]) -> Iterator[Finding]:
    """Yield the findings of all checks; those that need a missing server are left out."""
    missing = frozenset(missing)
    for check in checks:
        if check.needs & missing:
            continue
        try:
            yield from check.ask()
        except Exception as problem:  # whatever it is, the others are asked
            words = str(problem).strip().partition("\n")[0] or type(problem).__name__
            yield Finding(check.about, "warning", f"could not be checked: {words}", "see the logs in {root}/log")


def worst(findings: Iterable[Finding]) -> str:
    """Return the highest level among the findings."""
    return max((finding.level for finding in findings), key=LEVELS.index, default="ok")

"""Where a run left the way that earlier runs of the same program went: the first line that is unlike what usually
follows there. Depends on neither Django nor torch.

A run is a sequence of texts whose numbers are masked. Their templates are learned from the earlier runs, and which
template follows which. How much of that is a rule of the program is tried on the earlier runs themselves, each against
the others: where one of them would have left its way by a step from one known line to another, only new lines and early
ends count; where one has new lines, too, only early ends do.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from .learned_sessions import MAX_TEMPLATES, Templates
from .template_learning import learn_groups, template_of

LEAST_RUNS = 3
MAX_LINES = 20_000  # of a run, that callers give at most
MAX_TEXTS = 5000  # distinct ones of all runs
MAX_SECONDS = 5.0
STEADY = 3  # a line has at most so many different followers, if a step after it can be unusual
NOTHING = 3  # the highest level: no rule at all
START, END, GAP = -1, -2, -3  # before the first line, after the last one, lines that are not known

Run = Sequence[str | None]  # None: some lines that are not known
Events = list[int | str]


class TooVaried(Exception):
    """The runs have too many different lines to have a usual way."""


@dataclass(frozen=True)
class Departure:
    """The place of the first unusual line, its number of lines where the run ended early; the place before it, -1 for
    none; and what usually follows that, as (number of the earlier run, place in it), if that is steady.
    """

    at: int
    before: int
    usual: tuple[int, int] | None


class Way:
    """What earlier runs, the latest first, have in common. `used`: the numbers of those that have it.

    Raises TooVaried; ValueError for fewer than LEAST_RUNS.
    """

    def __init__(self, runs: Sequence[Run]):
        if len(runs) < LEAST_RUNS:
            raise ValueError("too few runs")
        self.deadline = time.monotonic() + MAX_SECONDS
        counts = Counter(text for run in runs for text in run if text is not None)
        if len(counts) > MAX_TEXTS:
            raise TooVaried
        groups = learn_groups(counts)
        if len(groups) > MAX_TEMPLATES:
            raise TooVaried
        self.templates = Templates(map(template_of, groups), similar=1.0)
        self.numbers: dict[str, int | str] = {text: number for number, group in enumerate(groups) for text in group}
        self.runs = [self._events(run) for run in runs]
        self.used, self.level = self._choose()
        self.steps = _Steps([self.runs[number] for number in self.used])

    @property
    def knows_nothing(self) -> bool:
        """Whether the earlier runs differ so much that no run can leave their way."""
        return self.level == NOTHING

    def departure(self, run: Run, *, ended: bool) -> Departure | None:
        """Return where a run leaves the way, if it does; `ended`: no more lines come. Raises TooVaried."""
        events = self._events(run)
        place = self.steps.departure(events, self.level, ended=ended)
        if place is None:
            return None
        known = [at for at in range(place) if events[at] != GAP]
        before = known[-1] if known else -1
        return Departure(place, before, self._usual(events[before] if known else START))

    def _events(self, run: Run) -> Events:
        """Return the run's events: the number of each text's template, or the text. Raises TooVaried."""
        events: Events = []
        for text in run:
            if text is None:
                events.append(GAP)
                continue
            if text not in self.numbers:
                if time.monotonic() > self.deadline:
                    raise TooVaried
                self.numbers[text] = self.templates.event(text)
            events.append(self.numbers[text])
        return events

    def _choose(self) -> tuple[list[int], int]:
        """Return the numbers of the runs that have something in common, and their level. One run may be unlike all
        others: that of another version of the program. Of several such, the last one is left out.
        """
        every = list(range(len(self.runs)))
        chosen, level = every, self._level(every)
        for odd in reversed(every) if level == NOTHING and len(every) > LEAST_RUNS else ():
            others = [number for number in every if number != odd]
            if (its := self._level(others)) < level:
                chosen, level = others, its
        return chosen, level

    def _level(self, numbers: Sequence[int]) -> int:
        """Return how much is a rule in these runs: 0 steps between known lines, too, 1 new lines and early ends, 2
        early ends, 3 nothing.
        """
        for level in range(NOTHING):
            for number in numbers:
                others = _Steps([self.runs[other] for other in numbers if other != number])
                if others.departure(self.runs[number], level, ended=True) is not None:
                    break
            else:
                return level
        return NOTHING

    def _usual(self, event: int | str) -> tuple[int, int] | None:
        followers = self.steps.after.get(event)
        if not followers:
            return None
        usual, times = followers.most_common(1)[0]
        if usual == END or 2 * times <= sum(followers.values()):
            return None
        for number in self.used:
            run = self.runs[number]
            for place, here in enumerate(run):
                if here == usual and (run[place - 1] if place else START) == event:
                    return number, place
        return None


class _Steps:
    """Which event follows which in some runs."""

    def __init__(self, runs: Sequence[Events]):
        self.known = {event for run in runs for event in run} - {GAP}
        self.after: dict[int | str, Counter] = defaultdict(Counter)
        for run in runs:
            for first, second in zip([START, *run], [*run, END], strict=True):
                if GAP not in (first, second):
                    self.after[first][second] += 1
        self.least = len(runs)

    def departure(self, events: Events, level: int, *, ended: bool) -> int | None:
        """Return the place of the first event that is unusual at that level; one behind the last for an early end."""
        if level == NOTHING:
            return None
        before: int | str = START
        for place, event in enumerate(events):
            if level < 2 and event != GAP and event not in self.known:
                return place
            if level < 1 and GAP not in (before, event) and self._is_new_step(before, event):
                return place
            before = event
        early = ended and before != GAP and not self.after.get(before, Counter())[END]
        return len(events) if early else None

    def _is_new_step(self, first: int | str, second: int | str) -> bool:
        followers = self.after.get(first)
        if not followers or second in followers:
            return False
        return len(followers) <= STEADY and sum(followers.values()) >= self.least

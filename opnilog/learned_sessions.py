"""The sessions of each workload: learned by the trainer without labels, and asked by the service that judges sessions.

The lines of a workload are tied together by its key (session_keys); a session has ended when no line of its value came
for `quiet` milliseconds, or with an event that always ended one. What is learned of the ended ones is in sessions. A
line's event is its template, which is learned here, so that events have the same numbers as long as the model serves.
Depends on neither Django nor torch.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from .masking import mask
from .session_keys import Key, find
from .sessions import Sessions
from .template_learning import WILD, learn_groups, template_of, text_of, words_of

FILE, FORMAT = "sessions.json", 1
SAMPLE = 20_000  # lines in which the key is looked for
MAX_LINES = 200_000  # of a workload
MAX_TEXTS = 100_000
MAX_TEMPLATES = 2000  # a log with more of them is not masked well: nothing is learned
MAX_EVENTS = 2000  # of a session; what comes then is not counted
MAX_NEW, NEW = 5, "…"  # events of a session that are kept by their text; what stands for others
MAX_CACHED, LONGEST_CACHED = 20_000, 1024  # texts, characters
SHOWN = 200  # characters of a new text
MOST_KNOWN = 5000  # distinct counts of a workload
LEAST_SESSIONS = 50
MAX_ODD = 0.02  # share of the sessions held out; of more nothing is learned: they have no usual form
PROBLEMS_SHARE = 0.05  # of the sessions with an event that names a problem, from which on it is part of their life
ENDS_SHARE = 0.5  # of the sessions, that an event ends
ALWAYS = 0.995  # of the sessions with that event, in which it is the last
SIMILAR = 0.7  # least share of equal words for a new text to be of a template


@dataclass(slots=True)
class Session:
    """The events of one value; times in ms."""

    value: str
    first: int
    last: int
    events: list = field(default_factory=list)
    names_problem: bool = False

    def add(self, time: int, event) -> None:
        self.last = max(self.last, time)
        if isinstance(event, str) and sum(isinstance(known, str) for known in self.events) >= MAX_NEW:
            event = NEW
        if len(self.events) < MAX_EVENTS:
            self.events.append(event)


# --- learning ------------------------------------------------------------------------------------------------------
def learn(rows: Iterable[dict], quiet_ms: int) -> dict:
    """Return what was learned, as JSON. rows: those of a workload one after the other, each with `workload`, `time`
    (ms), `log`, and `masked_log`, `attributes`, `problem` and `label` if there are.
    """
    learned = {}
    for workload, lines in groupby(rows, key=lambda row: str(row["workload"])):
        kept = [row for row, _ in zip(lines, range(MAX_LINES), strict=False)]
        if (known := _learn(kept, quiet_ms)) is not None:
            learned[workload] = known
    return {"format": FORMAT, "workloads": learned}


def _learn(rows: list[dict], quiet_ms: int) -> dict | None:
    """Return the sessions of one workload; None if its lines have no key, or too few or no usual sessions."""
    rows.sort(key=lambda row: row["time"])
    masked = [row.get("masked_log") or mask(row["log"]) for row in rows]
    counts = Counter(masked)
    groups = learn_groups(dict(counts.most_common(MAX_TEXTS)))
    if len(groups) > MAX_TEMPLATES:
        return None
    numbers = {text: number for number, group in enumerate(groups) for text in group}
    events = [numbers.get(text, text) for text in masked]
    key = find([(row["log"], row.get("attributes")) for row in rows[:SAMPLE]], events[:SAMPLE])
    if key is None:
        return None
    ended = _ended(rows, events, key, quiet_ms)
    normal = [session.events for session in ended if not session.names_problem]
    if len(normal) < LEAST_SESSIONS:
        return None
    sessions = Sessions(most=MOST_KNOWN).fit(normal)
    if sessions.odd_share > MAX_ODD:
        return None
    return {
        "key": [key.where, key.pattern],
        "quiet": quiet_ms,
        "learned": len(normal),
        "ends": _ends(normal),
        "templates": [list(template_of(group)) for group in groups],
        "sessions": sessions.dump(),
    }


def _ended(rows: Sequence[dict], events: Sequence, key: Key, quiet_ms: int) -> list[Session]:
    """Return the sessions that have ended in the sample, and whether each has a line that names a problem."""
    there: dict[str, Session] = {}
    ended: list[Session] = []
    problems: dict[int, set] = defaultdict(set)
    for row, event in zip(rows, events, strict=True):
        for value in key.values(row["log"], row.get("attributes")):
            session = there.get(value)
            if session is not None and row["time"] - session.last > quiet_ms:
                ended.append(session)
                session = None
            if session is None:
                session = there[value] = Session(value, row["time"], row["time"])
            session.add(row["time"], event)
            if row.get("label") == "anomaly":
                session.names_problem = True
            elif row.get("problem") and row.get("label") != "normal":
                problems[id(session)].add(event)
    last = rows[-1]["time"] if rows else 0
    every = [*ended, *there.values()]
    often = Counter(event for session in every for event in problems.get(id(session), ()))
    for session in every:
        rare = (often[event] < PROBLEMS_SHARE * len(every) for event in problems.get(id(session), ()))
        session.names_problem = session.names_problem or any(rare)
    begun = rows[0]["time"] if rows else 0
    whole = [session for session in every if session.first - begun > quiet_ms and last - session.last > quiet_ms]
    # In a sample that is shorter than that, those whose values are neither at its beginning nor at its end.
    return whole if len(whole) >= LEAST_SESSIONS else _inner(every, begun, last)


def _inner(sessions: Sequence[Session], begun: int, last: int) -> list[Session]:
    edge = (last - begun) // 10
    return [session for session in sessions if session.first - begun > edge and last - session.last > edge]


def _ends(sessions: Sequence[Sequence]) -> list:
    """Return the events that always end a session."""
    having, ending = Counter(), Counter()
    for events in sessions:
        having.update(set(events))
        ending[events[-1]] += events.index(events[-1]) == len(events) - 1
    return sorted(
        (
            event
            for event, times in ending.items()
            if times >= ALWAYS * having[event] and having[event] >= ENDS_SHARE * len(sessions)
        ),
        key=str,
    )


# --- judging -------------------------------------------------------------------------------------------------------
class Templates:
    """The templates of a log, asked for each line. `similar`: the least share of equal words by which a text is of a
    template that does not match it; of 1.0 it must match. Not thread-safe.
    """

    def __init__(self, templates: Iterable[Sequence[str]], similar: float = SIMILAR):
        self.templates = [tuple(words) for words in templates]
        self.similar = similar
        self.by_length: dict[int, list[int]] = defaultdict(list)
        for number, words in enumerate(self.templates):
            self.by_length[len(words)].append(number)
        self.texts: OrderedDict[str, int | str] = OrderedDict()

    def event(self, masked: str) -> int | str:
        """Return the number of the text's template; the beginning of the text where it is of none."""
        if masked in self.texts:
            return self.texts[masked]
        found = self._find(masked)
        if len(masked) <= LONGEST_CACHED:
            self.texts[masked] = found
            if len(self.texts) > MAX_CACHED:
                self.texts.popitem(last=False)
        return found

    def template(self, event: int | str) -> str:
        """Return the text of an event's template."""
        known = isinstance(event, int) and 0 <= event < len(self.templates)
        return text_of(self.templates[event]) if known else str(event)

    def _find(self, masked: str) -> int | str:
        words = words_of(masked)
        best, most = masked[:SHOWN], self.similar
        for number in self.by_length.get(len(words), ()):
            same = wild = 0
            for mine, other in zip(self.templates[number], words, strict=True):
                same += mine == other
                wild += mine == WILD and other != WILD
            fits = same + wild == len(words)
            likeness = 1 + same / len(words) if fits and words else same / max(1, len(words))
            if likeness > most:
                best, most = number, likeness
        return best


class Learned(Templates):
    """What a model version has learned of one workload. Not thread-safe."""

    def __init__(self, state: Mapping):
        """Take what `learn` returned of the workload. Raises ValueError for anything else."""
        try:
            self.key = Key(*state["key"])
            self.quiet_ms = int(state["quiet"])
            self.ends = set(state["ends"])
            super().__init__(state["templates"])
            self.sessions = Sessions.load(state["sessions"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not learned sessions: {error!r}")


def load(folder: Path) -> dict[str, Learned]:
    """Return what a model's folder has of each workload; nothing where it has no such file. Raises ValueError for a
    damaged one.
    """
    try:
        data = (folder / FILE).read_bytes()
    except FileNotFoundError:
        return {}
    state = json.loads(data)
    if not isinstance(state, dict) or state.get("format") != FORMAT or not isinstance(state.get("workloads"), dict):
        raise ValueError(f"{FILE}: not learned sessions")
    return {name: Learned(known) for name, known in state["workloads"].items()}

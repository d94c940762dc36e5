"""Finds what ties the lines of a log together: the id of a request, a block, an instance, a trace, a job's run.

A candidate is an attribute, an id by its form (`blk_-?\\d+`, a UUID, a hexadecimal number), or an id by the word before
it (`session=4711`). It is a key if its values are many, each in a few lines that are near to each other and of several
templates, and if values have the same templates as others. Of several keys it is the one that ties the most lines, of
those that tie about as many the one with the most values. Depends on neither Django nor torch.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

LEAST_VALUES = 20
LEAST_SHARE = 0.1  # of the lines that have a value
LEAST_TIED = 0.7  # of the lines with a value, in which it ties lines of several templates
LEAST_ALIKE = 0.5  # of the values, whose templates are those of another value
MOST_OF_ONE = 0.1  # of the lines with a value, that have the same
MOST_SPAN = 0.25  # of the log, from a value's first line to its last; the median
ABOUT = 0.95  # of the most tied lines: about as many
MAX_KINDS = 50  # candidates that are looked at: the most frequent
MAX_COUNTED = 100_000  # candidates that are counted; beyond these, those that came once are dropped
MAX_TEXT = 8192  # characters of a line
MAX_VALUES = 20  # of a line
MAX_VALUE, MAX_NAME = 128, 40  # characters

_TOKEN = re.compile(r"[^\s,;=()\[\]{}<>\"'`|:/]+")
_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_WITH_UUID = re.compile(rf"([A-Za-z][A-Za-z_.#-]*)?{_UUID}")
_HEX = re.compile(r"([A-Za-z]+[_-])?((?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{8,64})")
_NUMBERED = re.compile(r"[A-Za-z][A-Za-z_.#-]*-?\d+(?:[A-Za-z_.#-]+\d+)*")
_WORD = re.compile(r"[A-Za-z][A-Za-z_.-]*")
_NO_ID = re.compile(r"[\d.]*\.[\d.]*|\d{1,4}-\d\d-\d\d.*|\d+(?:\.\d+)?[A-Za-z%]{1,3}")  # addresses, dates, amounts
_DIGITS = re.compile(r"-?\d+")
ATTRIBUTE, TEXT = "attribute", "text"


@dataclass(frozen=True)
class Key:
    """Where the values are: the attribute `pattern`, or in the text the group of a regular expression."""

    where: str
    pattern: str

    @cached_property
    def _expression(self) -> re.Pattern:
        return re.compile(self.pattern)

    def values(self, text: str, attributes: Mapping | None = None) -> list[str]:
        """Return the values of a line, each once."""
        if self.where == ATTRIBUTE:
            value = str((attributes or {}).get(self.pattern) or "")
            return [value] if value and len(value) <= MAX_VALUE else []
        found = dict.fromkeys(self._expression.findall(text[:MAX_TEXT]))
        return [value for value in found if len(value) <= MAX_VALUE][:MAX_VALUES]


def find(lines: Sequence[tuple[str, Mapping | None]], templates: Sequence[Hashable]) -> Key | None:
    """Return the key of a log; None if nothing ties its lines together.

    lines: (text, attributes), in order and without gaps. templates: of each line.
    """
    frequent: Counter = Counter()
    for text, attributes in lines:
        frequent.update(dict.fromkeys(_candidates(text, attributes), 1))
        if len(frequent) > MAX_COUNTED:
            frequent = Counter({candidate: count for candidate, count in frequent.items() if count > 1})
    enough = [(-count, candidate) for candidate, count in frequent.items() if count >= LEAST_SHARE * len(lines)]
    found = []
    for _, candidate in sorted(enough)[:MAX_KINDS]:
        key = Key(*candidate)
        tied, values = _tied(key, lines, templates)
        if tied:
            found.append((tied, values, key))
    most = max((tied for tied, _, _ in found), default=0)
    best = [(values, key) for tied, values, key in found if tied >= ABOUT * most]
    return min(best, key=lambda choice: (-choice[0], choice[1].where, choice[1].pattern))[1] if best else None


def _candidates(text: str, attributes: Mapping | None) -> Iterator[tuple[str, str]]:
    for name, value in (attributes or {}).items():
        if value and len(str(value)) <= MAX_VALUE and len(str(name)) <= MAX_VALUE:
            yield ATTRIBUTE, str(name)
    tokens = [token.rstrip(".!?") for token in _TOKEN.findall(text[:MAX_TEXT])]
    for before, token in pairwise(["", *tokens]):
        if len(token) > MAX_VALUE or not any(map(str.isdigit, token)) or _NO_ID.fullmatch(token):
            continue
        if (form := _form(token)) is not None:
            yield TEXT, rf"(?<![\w.-])({form})(?![\w-])"
        if _WORD.fullmatch(before) and len(before) <= MAX_NAME:
            yield TEXT, rf"(?<![\w.-]){re.escape(before)}[\s=:#\[(\"']{{1,4}}(?=[\w-]*\d)([\w-]++)(?!\.[\w-])"


def _form(token: str) -> str | None:
    """Return the regular expression of ids like this one; None for a bare number, which may be anything."""
    if match := _WITH_UUID.fullmatch(token):
        return re.escape(match[1] or "") + _UUID
    if match := _HEX.fullmatch(token):
        return rf"{re.escape(match[1] or '')}[0-9a-f]{{{len(match[2])}}}"
    if not _NUMBERED.fullmatch(token):
        return None
    parts = _DIGITS.split(token)
    return r"-?\d++".join(map(re.escape, parts)) if sum(map(len, parts)) <= MAX_NAME else None


def _tied(key: Key, lines: Sequence[tuple[str, Mapping | None]], templates: Sequence[Hashable]) -> tuple[int, int]:
    """Return how many lines the key ties together and how many values it has; no lines if it is no key."""
    groups: dict[str, list[int]] = defaultdict(list)
    having = 0
    for place, (text, attributes) in enumerate(lines):
        values = key.values(text, attributes)
        having += bool(values)
        for value in values:
            groups[value].append(place)
    if len(groups) < LEAST_VALUES or max(map(len, groups.values())) > MOST_OF_ONE * having:
        return 0, len(groups)
    kinds = {value: frozenset(templates[place] for place in places) for value, places in groups.items()}
    several = {value: kind for value, kind in kinds.items() if len(kind) > 1}
    tied = len({place for value in several for place in groups[value]})
    if len(several) < LEAST_VALUES or tied < LEAST_TIED * having:
        return 0, len(groups)
    alike = Counter(several.values())
    span = statistics.median(groups[value][-1] - groups[value][0] for value in several)
    if sum(count for count in alike.values() if count > 1) < LEAST_ALIKE * len(several):
        return 0, len(groups)
    return (tied if span <= MOST_SPAN * len(lines) else 0), len(groups)

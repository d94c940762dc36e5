"""Templates from a whole sample of masked texts, by the frequency of words at their positions. No training, no labels.

Texts with the same number of words are compared. The words of a text that are equally frequent most probably belong
together, so the largest such set is the core of its template, as in Brain (Yu et al. 2023). Texts with the same core
are divided further at each position with few different words; a position with many is a variable.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from opnilog import scripts

WILD = "<*>"
MASK = re.compile(r"<[a-z_]+>")
VALUE = re.compile(r"[<\d]")
INSIDE = re.compile(r"\w[\\@]\w")  # paths of Windows, name@host
NO_NAME = re.compile(r"[\W_]*")
# Different words at a position that make it a variable:
MANY = 8
MANY_VALUES = 4  # after `=`, `user`, …: two may be true and false
MANY_FIRST = 30  # at the start of a message, which seldom begins with a value
BEFORE_VALUES = frozenset(("=", "user", "username", "account", "login", "host", "hostname", "for", "by", "from"))
DAYS = "monday tuesday wednesday thursday friday saturday sunday"
MONTHS = "january february march april may june july august september october november december"
DATES = frozenset(part for name in f"{DAYS} {MONTHS}".split() for part in (name, name[:3]))
BESIDE_DATES = frozenset(("<num>", "<custom_date>", "<utc_date>"))
# Limits of the work for one template, far above what logs of programs need.
MAX_DIVISIONS = 16
MAX_POSITIONS = 128

Row = tuple[str, tuple[str, ...], int]  # masked text, its words, number of lines


def words_of(masked: str) -> tuple[str, ...]:
    """Return the words of a masked text; `_` separates words, but not inside a mask. A sentence of a script without
    spaces is divided into its characters.
    """
    if "_" in masked:
        kept = MASK.sub(lambda match: match[0].replace("_", "\0"), masked).replace("_", " ")
        masked = kept.replace("\0", "_")
    if masked.isascii():
        return tuple(masked.split())
    return tuple(piece for word in masked.split() for piece in scripts.pieces(word))


def text_of(words: Iterable[str]) -> str:
    """Return a template's text: with spaces, but not beside characters of a script without spaces."""
    text, last = "", ""
    for word in words:
        beside = word and last and not scripts.is_unspaced(last[-1]) and not scripts.is_unspaced(word[0])
        text += f" {word}" if beside else word
        last = word
    return text


def is_variable(word: str) -> bool:
    """Tell whether the word is a value by its form: a mask, with a digit, or a dotted name."""
    if VALUE.search(word) or INSIDE.search(word):
        return True
    return word.count(".") >= 2 and word.strip(".").count(".") >= 2


def is_value(words: Sequence[str], at: int) -> bool:
    """Tell whether the word at the position is a value by its form, or a day or a month of a date."""
    if is_variable(words[at]):
        return at > 0 or VALUE.search(words[at]) is not None  # a message may begin with the name of a class
    return _is_date(words, at)


def _is_date(words: Sequence[str], at: int) -> bool:
    """Tell whether the word is the name of a day or a month beside a number or another one: `may` is also a verb."""
    if words[at].rstrip(",.") not in DATES:
        return False
    beside = (*words[max(0, at - 1) : at], *words[at + 1 : at + 2])
    return any(word in BESIDE_DATES or word.rstrip(",.") in DATES for word in beside)


def learn_groups(texts: Mapping[str, int]) -> list[list[str]]:
    """Return masked texts, given with their numbers of lines, as one list for each template."""
    by_length: dict[int, list[Row]] = defaultdict(list)
    for masked, count in texts.items():
        words = words_of(masked)
        by_length[len(words)].append((masked, words, count))
    groups: list[list[str]] = []
    for rows in by_length.values():
        for core, members in _cores(rows).items():
            _divide(members, {position for position, _ in core}, groups)
    return groups


def _cores(rows: Sequence[Row]) -> dict[tuple, list[Row]]:
    """Return the rows by their largest set of equally frequent (position, word); of two, the more frequent counts."""
    frequency: Counter = Counter()
    constant_words = [_constants(words) for _, words, _ in rows]
    for constants, (_, _, count) in zip(constant_words, rows, strict=True):
        for at in constants:
            frequency[at] += count
    cores: dict[tuple, list[Row]] = defaultdict(list)
    for constants, row in zip(constant_words, rows, strict=True):
        named = [at for at in constants if not NO_NAME.fullmatch(at[1])] or constants
        sizes = Counter(frequency[at] for at in named)
        best = max(sizes, key=lambda value: (sizes[value], value), default=0)
        cores[tuple(at for at in constants if frequency[at] == best)].append(row)
    return cores


def _constants(words: Sequence[str]) -> list[tuple[int, str]]:
    return [(position, word) for position, word in enumerate(words) if not is_value(words, position)]


def _divide(rows: list[Row], fixed: set[int], groups: list[list[str]]) -> None:
    """Add the groups of the rows, divided at positions with few words until each other position is a variable."""
    waiting = [(rows, fixed, MAX_DIVISIONS)]
    while waiting:
        rows, fixed, left = waiting.pop()
        where = _position(rows, fixed) if left and len(rows) > 1 else None
        if where is None:
            groups.append([masked for masked, _, _ in rows])
            continue
        parts: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            parts[row[1][where]].append(row)
        waiting += [(part, {*fixed, where}, left - 1) for part in parts.values()]


def _position(rows: Sequence[Row], fixed: set[int]) -> int | None:
    """Return the position with the fewest different words that is no variable, None if there is none.

    Positions where all rows have the same word are added to `fixed`.
    """
    least, where = MANY_FIRST, None
    for position in range(min(len(rows[0][1]), MAX_POSITIONS)):
        if position in fixed:
            continue
        different = {words[position] for _, words, _ in rows}
        if len(different) == 1:
            fixed.add(position)  # constant in every part of these rows, too
        elif len(different) < min(least, _limit(rows, position)) and not _has_values(rows, position):
            least, where = len(different), position
    return where


def _limit(rows: Sequence[Row], position: int) -> int:
    """Return how many different words at the position make it a variable."""
    if position == 0:
        return MANY_FIRST
    return MANY_VALUES if all(words[position - 1] in BEFORE_VALUES for _, words, _ in rows) else MANY


def _has_values(rows: Sequence[Row], position: int) -> bool:
    return any(is_value(words, position) for _, words, _ in rows)


def join_groups(groups: Iterable[list[str]]) -> list[list[list[str]]]:
    """Return the groups of `learn_groups`, those together that are one template with more or fewer values in a row: a
    list, or a value that may be missing. Of each length there is one, the one with the most texts.
    """
    joined: dict[tuple[str, ...], dict[int, list[str]]] = defaultdict(dict)
    alone = []
    for group in sorted(groups, key=len, reverse=True):
        words = template_of(group)
        outline = tuple(_outline(words))
        if len(words) in joined[outline] or all(map(NO_NAME.fullmatch, outline)):
            alone.append([group])
        else:
            joined[outline][len(words)] = group
    return [*(list(same.values()) for same in joined.values() if same), *alone]


def _outline(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of a template, and one WILD for all values that follow each other."""
    was_value = False
    for at in range(len(words)):
        is_one = is_value(words, at)
        if not is_one or not was_value:
            yield WILD if is_one else words[at]
        was_value = is_one


def template_of(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the words that all the texts have at the same positions, and wildcards for the others and for dates."""
    rows = [words_of(masked) for masked in texts]
    columns = zip(*rows, strict=True)
    return tuple(
        column[0] if len(set(column)) == 1 and not _is_date(rows[0], at) else WILD for at, column in enumerate(columns)
    )

"""Masks a log line: what varies from line to line becomes a word like `<num>`. Called by preprocessing and by training.

The result equals that of Opni's masker, byte for byte (the templates, the vocabulary and the wire depend on it), quirks
included. Two things differ inside. The rules that could take quadratic time or worse for a long word are written so
that they cannot, and `mask_many` applies the rules once for each shape of a line (its digits folded) instead of once
for each line.

Why the fold is exact: every character class of every rule contains all ten ASCII digits or none, so the rules cannot
distinguish digits; only the ranges inside dates can (there is no month 13). All digits are folded to 1, which is valid
everywhere in a date, and a line whose shape contains a date is checked for a valid one at the same place. A shape whose
masked text still contains a digit is never cached. A native one-pass masker would replace `mask_plain` only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

MAX_CHARACTERS = 8192  # of each line that are masked; the model reads 64 words
SHAPES = 32_768  # at most; the oldest half is dropped first
LONGEST_SHAPE = 1024  # characters; longer lines seldom share a shape

_ANSI = re.compile(r"(?:\x9B|\x1B\[)[0-?]*[ -/]*[@-~]")
_URL = re.compile(r"(?:https?|ftp)://[\w-][\w.-]*[\w-](?:[\w.,@?^=%&:/~+#-]*[\w@?^=%&/~+#-])?")
# The last class is meant as a time zone: it matches exactly one character.
_UTC = re.compile(
    r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])[T|\s](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?[(?:Z|+\-)\d{}]"
)
_KLOG = re.compile(r"[IWEF]\d{4}\s\d{2}:\d{2}:\d{2}[.\d+]*")
_CUSTOM = re.compile(
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|Jun(?:e)?|Jul(?:y)?|Aug(?:ust)?|Sep(?:tember)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\s+\d{1,2} (?:2[0-3]|[01]?[0-9]):[0-5]?[0-9]:[0-5]?[0-9]"
)
_SPACED = str.maketrans({"=": " = ", "|": " | ", ":": " : ", "\n": " ", "\r": " ", "\t": " "})
_GO_END = re.compile(r"go : [0-9]+")
_EMAIL_END = re.compile(r"@\w+\.\w{2,3}")
_NET = re.compile(r"(?<![A-Za-z0-9])\d{1,3}(?:\.\d{1,3}){3}/\d{1,3}(?![A-Za-z0-9])")
_IP = re.compile(r"(?<![A-Za-z0-9])\d{1,3}(?:\.\d{1,3}){3}(?![A-Za-z0-9])")
_DURATION = re.compile(r"(?<![A-Za-z0-9])\d+\.\d+\s*(?:s|ds|cs|ms|µs|ns|ps|fs|as|zs|ys)(?![A-Za-z0-9])")
_PATH = re.compile(r"/[a-zA-Z_\-./(?:\[0-9]+[a-zA-Z0-9]")
_PATH_OR_CALL = re.compile(r"/[a-zA-Z_\-./(?:\[0-9]+[a-zA-Z0-9]|[a-zA-Z]++[0-9]\)\]*\s?")
# The same, linear also for thousands of slashes: a run of these characters without a path has none later on.
_MANY_PATHS = re.compile(_PATH_OR_CALL.pattern.replace("|", "|(/[a-zA-Z_\\-./(?:\\[0-9]*+)|", 1))
_CALL = re.compile(r"[a-zA-Z][0-9]\)")
_MARKS = r"a-zA-Z!()\-.?\[\]_`~;:@#$%^&+=*"
# A run of these characters is masked as a whole when it holds a digit and something else, so only its start is tried.
_TOKEN = re.compile(rf"(?<![{_MARKS}0-9])(?:[0-9]++[{_MARKS}]|[{_MARKS}]++[0-9])[{_MARKS}0-9]*+")
_NUM = re.compile(r"(?<![A-Za-z0-9])[-+]?(?:\d*\.)?\d+(?![A-Za-z0-9])")
_EMPTY_SET, _EMPTY_LIST = re.compile(r"\{\s*\}"), re.compile(r"\[\s*\]")
_CUTS = str.maketrans({**dict.fromkeys("| ()[]'{}\",", " "), ":": " : ", "=": " = "})
VALUES = re.compile("<num>|<duration>|<token_with_digit>")  # in a masked text, where a value may have been
_LOWER_ALNUM = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_DIGITS = frozenset("0123456789")  # others, as ٣, are digits for the rules, but not for the fold
_ONES = str.maketrans("023456789", "1" * 9)


def _go_files(text: str) -> str:
    """Mask `word.go : 123`, matched from its end: searching for any word first takes quadratic time
    in the word's length.
    """
    parts, done = [], 0
    for end in _GO_END.finditer(text):
        start = end.start() - 1  # one character before `go`, and a word before that
        low = start
        while low > done and not text[low - 1].isspace():
            low -= 1
        if start > low >= done:
            parts += [text[done:low], "<GO_FILE_PATH>"]
            done = end.end()
    return "".join([*parts, text[done:]])


def _emails(text: str) -> str:
    """Mask `name@host.tld`, matched backwards from the @ for the same reason."""
    parts, done, seek = [], 0, 0
    while end := _EMAIL_END.search(text, seek):
        at = end.start()
        low = at
        while low > done and text[low - 1] in _LOWER_ALNUM:
            low -= 1
        start = low
        if low < at and low - 1 > done and text[low - 1] in "._" and text[low - 2] in _LOWER_ALNUM:
            start = low - 1
            while start > done and text[start - 1] in _LOWER_ALNUM:
                start -= 1
        if at - start >= 2:
            parts += [text[done:start], "<EMAIL_ADDRESS>"]
            done = seek = end.end()
        else:
            seek = at + 1
    return "".join([*parts, text[done:]])


def _raw_stage(text: str) -> str:
    if "://" in text:
        text = _URL.sub("<URL>", text)
    if ":" in text:
        text = _UTC.sub("<UTC_DATE>", text)
        text = _KLOG.sub("<KLOG_DATE>", text)
        text = _CUSTOM.sub("<CUSTOM_DATE>", text)
    return text


def mask_plain(line: str) -> str:
    """Return the masked line by the rules only, without the cache. `mask` gives the same, faster."""
    return _masked(_cut(line))


def _cut(line: str) -> str:
    line = line[:MAX_CHARACTERS]
    return _ANSI.sub("", line) if "\x1b" in line or "\x9b" in line else line


def _masked(text: str, values: dict[str, list[str]] | None = None) -> str:
    """Return the masked text. `found` gets what became each of VALUES, in order."""

    def replace(rule: re.Pattern, mask: str, text: str) -> str:
        if values is not None:
            values[mask.lower()] = rule.findall(text)
        return rule.sub(mask, text)

    text = _raw_stage(text).translate(_SPACED)
    if "go : " in text:
        text = _go_files(text)
    if "@" in text:
        text = _emails(text)
    if "." in text:
        text = _NET.sub("<IP>", text)
        text = _IP.sub("<IP>", text)
        text = replace(_DURATION, "<DURATION>", text)
    if text.count("/") > 64:
        text = _MANY_PATHS.sub(lambda match: match[1] or "<PATH>", text)
    elif ")" in text and _CALL.search(text):
        text = _PATH_OR_CALL.sub("<PATH>", text)
    elif "/" in text:
        text = _PATH.sub("<PATH>", text)
    text = replace(_NUM, "<NUM>", replace(_TOKEN, "<TOKEN_WITH_DIGIT>", text))
    if "{" in text:
        text = _EMPTY_SET.sub("<EMPTY_SET>", text)
    if "[" in text:
        text = _EMPTY_LIST.sub("<EMPTY_LIST>", text)
    # a lone backslash is dropped with the delimiters
    return " ".join([part for part in text.translate(_CUTS).split(" ") if part and part != "\\"]).lower()


class _ByShape:
    """Keeps what `_learn` finds out about a shape, for all lines of that shape: (what, its dates), or None for nothing.
    Not thread-safe, but a race only loses an entry.
    """

    def __init__(self, most: int = SHAPES):
        self.most = most
        self.known: dict[str, tuple[Any, list[tuple[re.Pattern, int, int]]] | None] = {}

    def _find(self, text: str) -> Any:
        """Return what is known about the text's shape, None where that does not hold for the text."""
        if len(text) > LONGEST_SHAPE:
            return None
        shape = text.translate(_ONES)
        try:
            entry = self.known[shape]
        except KeyError:
            if len(self.known) >= self.most:
                for old in list(self.known)[: self.most // 2]:
                    self.known.pop(old, None)
            entry = self.known[shape] = self._learn(shape)
        if entry is None:
            return None
        pattern, dates = entry
        for rule, start, end in dates:
            match = rule.match(text, start)
            if match is None or match.end() != end:
                return None
        return pattern

    def _learn(self, shape: str) -> tuple[Any, list[tuple[re.Pattern, int, int]]] | None:
        raise NotImplementedError


def _dates(shape: str) -> list[tuple[re.Pattern, int, int]]:
    return [(rule, *match.span()) for rule in (_UTC, _CUSTOM) for match in rule.finditer(shape)]


class Shapes(_ByShape):
    """A cache of masked texts by the shape of the line."""

    def mask(self, line: str) -> str:
        """Return the masked text of one line, in lower case, words separated by one space; "" for an empty line."""
        text = _cut(line)
        masked = self._find(text)
        return _masked(text) if masked is None else masked

    def _learn(self, shape: str):
        masked, dates = _masked(shape), _dates(shape)
        # Two kinds of dates, or one in an address, could hide each other: such shapes are masked line by line.
        mixed = len({rule for rule, _start, _end in dates}) > 1
        if "1" in masked or mixed or (dates and ("://" in shape or _KLOG.search(shape))):
            return None
        return masked, dates


_SHAPES = Shapes()


def mask(line: str) -> str:
    """Return the masked text of one line, in lower case with single spaces; "" for an empty line."""
    return _SHAPES.mask(line)


def mask_many(lines: Iterable[str]) -> list[str]:
    """Return `mask` of each line, in order."""
    mask_line = _SHAPES.mask
    return [mask_line(line) for line in lines]


class HiddenValues(_ByShape):
    """Finds what stands in a line where its masked text has one of VALUES.

    Where the digits of a shape's values are is found by masking it with other digits: in the n-th pass each digit is
    the n-th digit of its own place.
    """

    def of(self, line: str) -> list[str]:
        """Return the values of a line in the order of their places in the masked text."""
        text = _cut(line)
        spans = self._find(text)
        return _values(text) if spans is None else [text[start:end] for start, end in spans]

    def _learn(self, shape: str):
        dates = _dates(shape)
        kept = {place for _rule, start, end in dates for place in range(start, end)}
        digits = [place for place, sign in enumerate(shape) if sign in _DIGITS and place not in kept]
        passes = []
        for tens in (1, 10, 100, 1000):
            signs = list(shape)
            for place in digits:
                signs[place] = str(place // tens % 10)
            passes.append(_values("".join(signs)))
        ascii_digits = all(not _DIGITS.isdisjoint(value) for values in passes for value in values)
        if not ascii_digits or len({tuple(map(len, values)) for values in passes}) != 1:
            return None
        spans = [_span(together) for together in zip(*passes, strict=True)]
        return (spans, dates) if [shape[start:end] for start, end in spans] == _values(shape) else None


def _span(values: tuple[str, ...]) -> tuple[int, int]:
    """Return where a value is in its line; values: what it was in each pass."""
    first = next(place for place, sign in enumerate(values[0]) if sign in _DIGITS)
    start = sum(int(value[first]) * 10**power for power, value in enumerate(values)) - first
    return start, start + len(values[0])


def _values(text: str) -> list[str]:
    """Return the values of a line by the rules alone; none where they cannot be told from the line's own words."""
    by_mask: dict[str, list[str]] = {}
    masks = VALUES.findall(_masked(text, by_mask))
    rest = {mask: iter(values) for mask, values in by_mask.items()}
    if any(masks.count(mask) != len(values) for mask, values in by_mask.items()) or not set(masks) <= set(by_mask):
        return []
    return [next(rest[mask]) for mask in masks]


_HIDDEN = HiddenValues()


def values_of(line: str) -> list[str]:
    """Return what stands in the line where its masked text has <num>, <duration> or <token_with_digit>, in order;
    nothing where the line itself contains such a word.
    """
    return _HIDDEN.of(line)

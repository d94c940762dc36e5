"""Words of all scripts. Those that are written without spaces (Han, kana, Thai, …) have no bounds that could be seen:
each character is a word of its own, as OpenSearch's standard analyser divides most of them, and words one after the
other are found in the middle of a sentence.
"""

from __future__ import annotations

import re

# Both as the content of a class of characters, for Python and for PostgreSQL. What OpenSearch leaves together is
# JOINED: Thai and its neighbours, katakana.
JOINED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u30a0-\u30ff\u31f0-\u31ff\uff66-\uff9f"
UNSPACED = (
    f"{JOINED}\u2e80-\u2fdf\u3005\u3007\u3040-\u309f\u3100-\u312f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
LEAST = 3  # characters of a word that the index of its parts can find

WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
TOKEN = re.compile(rf"[{JOINED}]+|[{UNSPACED}]|[^\W{UNSPACED}]+")
IS_UNSPACED = re.compile(rf"[{UNSPACED}]")
IS_JOINED = re.compile(rf"[{JOINED}]")
RUN = re.compile(rf"[\w{UNSPACED}]+")
# Of a masked text: masks, characters that stand alone, and what is between them.
PIECE = re.compile(
    rf"<[a-z_]+>|[{UNSPACED}\u3001-\u303f\uff00-\uff65]|(?:(?!<[a-z_]+>)[^{UNSPACED}\u3001-\u303f\uff00-\uff65])+"
)
# Regular expressions leave these characters out of what they ask the index for.
HIGH = re.compile(rf"[^\x00-\u07ff\W]{{{LEAST},}}|[{UNSPACED}]{{{LEAST},}}")


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of the text in lower case."""
    return tuple(WORD.findall(text.lower()))


def pieces(word: str) -> list[str]:
    """Return a word of a masked text as it is, or divided where it is of a script without spaces."""
    return PIECE.findall(word) if not word.isascii() and IS_UNSPACED.search(word) else [word]


def is_unspaced(character: str) -> bool:
    return IS_UNSPACED.match(character) is not None


def begin(character: str, bound: str) -> str:
    """Return what a regular expression has before a word that begins so, where `bound` matches the bounds of words."""
    return "" if is_unspaced(character) else rf"(?:{bound}|(?<=[{UNSPACED}]))"


def end(character: str, bound: str) -> str:
    """Return what a regular expression has after a word that ends so."""
    return "" if is_unspaced(character) else rf"(?:{bound}|(?=[{UNSPACED}]))"


def phrase(text: str) -> str:
    """Return a regular expression of PostgreSQL for the words of the text, one after the other; "" without words."""
    words = list(WORD.finditer(text.lower()))
    if not words:
        return ""
    parts = [begin(words[0][0], r"\m")]
    for at, word in enumerate(words):
        if at and word.start() > words[at - 1].end():
            parts.append(r"\W*" if is_unspaced(word[0]) or is_unspaced(words[at - 1][0]) else r"\W+")
        parts.append(re.escape(word[0]))
    return "".join([*parts, end(words[-1][0][-1], r"\M")])


def parts_for_index(text: str) -> list[str]:
    """Return parts of the text that the index finds, but not by a regular expression, and whose case is one."""
    return [part for part in HIGH.findall(text) if part.lower() == part.upper()]

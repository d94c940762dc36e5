"""Words of a masked text to numbers, and the vocabulary file. Used by training and scoring.

The rules and the file are Opni's (its checkpoints come with such a file), so the first learned word gets number 5, as
`<EMPTY>` does; the file then names the word. A word with two digits or more is `<NUM>`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path

from opnilog import scripts

PAD, CLS, MASK, UNK, NUM, EMPTY = range(6)
SPECIAL = ("<PAD>", "<CLS>", "<MASK>", "<UNK>", "<NUM>", "<EMPTY>")
FIRST_LEARNED = 5
MAX_WORDS = 10_000
LONGEST = 64  # words of a text, `<CLS>` among them
LONGEST_WORD = 200  # characters; longer words are not in a vocabulary


def word_of(word: str) -> str:
    """Return the word's form in the vocabulary."""
    digits = 0
    for sign in word:
        digits += sign.isdigit()
        if digits > 1:
            return "<NUM>"
    return word


class Tokenizer:
    """The numbers of words. `size` is how many numbers there are, `used` how many of them have a word.

    `apart`: words of scripts without spaces are divided (opnilog/scripts.py), else a whole sentence is one word, as
    for Opni and models of earlier releases.
    """

    def __init__(self, size: int = MAX_WORDS, *, apart: bool = False):
        self.size, self.apart = size, apart
        self.numbers = {word: number for number, word in enumerate(SPECIAL)}
        self.used = FIRST_LEARNED

    def learn(self, word: str) -> None:
        if word not in self.numbers and self.used < self.size and len(word) <= LONGEST_WORD:
            self.numbers[word] = self.used
            self.used += 1

    def split(self, masked: str) -> list[str]:
        """Return the words that get a number, in order, without `<CLS>`."""
        words = [word for word in masked.lower().split(" ") if word]
        if self.apart and not masked.isascii():
            words = [piece for word in words for piece in scripts.pieces(word)]
        return [word_of(word) for word in words] or ["<EMPTY>"]

    def divides(self, masked: str) -> bool:
        """Return whether sentences of the text are divided into characters."""
        return self.apart and not masked.isascii() and scripts.IS_UNSPACED.search(masked) is not None

    def places(self, masked: str) -> list[tuple[int, str]]:
        """Return for each word that gets a number the position of the word that it is, or is a part of, and its
        text.
        """
        words = [word for word in masked.split(" ") if word]
        if not self.apart or masked.isascii():
            return list(enumerate(words))
        return [(place, piece) for place, word in enumerate(words) for piece in scripts.pieces(word)]

    def encode(self, masked: str, *, learning: bool = False) -> list[int]:
        """Return [CLS, word, …] in full length; [CLS, EMPTY] for an empty text; unknown words are
        UNK unless learning.
        """
        words = self.split(masked)
        if learning:
            for word in words:
                self.learn(word)
        return [CLS, *(self.numbers.get(word, UNK) for word in words)]

    def words(self) -> list[str]:
        """Return the words by number; unused numbers are `<TMPn>`."""
        result = [f"<TMP{number}>" for number in range(self.size)]
        for word, number in self.numbers.items():
            result[number] = word
        return result

    def save(self, path: Path) -> None:
        """Write atomically. Line 1: the number of numbers, line 2: how many are used, then one word a line."""
        text = "\n".join([str(self.size), str(self.used), *self.words()]) + "\n"
        draft = path.with_name(f".{secrets.token_hex(6)}.part")
        with draft.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read the file. Raises ValueError when it is not such a vocabulary."""
        lines = path.read_text(encoding="utf-8").split("\n")
        try:
            tokenizer = cls(int(lines[0]))
            tokenizer.used = int(lines[1])
            words = lines[2 : 2 + tokenizer.size]
            if len(words) != tokenizer.size or not FIRST_LEARNED <= tokenizer.used <= tokenizer.size:
                raise ValueError("number of words")
        except (ValueError, IndexError) as problem:
            raise ValueError(f"{path.name}: not a vocabulary: {problem}")
        tokenizer.numbers = {word: number for number, word in enumerate(words)}
        tokenizer.numbers.setdefault("<EMPTY>", EMPTY)
        return tokenizer


def pad(rows: Sequence[Sequence[int]], longest: int = LONGEST) -> list[list[int]]:
    """Return rows of one length (the longest's, at most `longest`), padded with PAD."""
    width = min(longest, max(map(len, rows), default=1))
    return [[*row[:width], *([PAD] * (width - len(row)))] for row in rows]


def buckets(lengths: Iterable[int], most_tokens: int) -> list[list[int]]:
    """Return indexes in groups of similar length, each of at most `most_tokens` numbers when padded.

    So that a short text is not padded to a long one.
    """
    order = sorted((min(length, LONGEST), index) for index, length in enumerate(lengths))
    groups: list[list[int]] = []
    for length, index in order:
        if not groups or length * (len(groups[-1]) + 1) > most_tokens:
            groups.append([])
        groups[-1].append(index)
    return groups

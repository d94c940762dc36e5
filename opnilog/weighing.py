"""From the surprise of a text's words to a verdict: the score of a text, the threshold, the confidence.

The score is how surprising a text is as a whole, weighted less where every word of it is known, zero for a text seen in
training. The thresholds come from lines that the model had not seen when it scored them (out of fold): in-sample scores
are near zero for every line, and a threshold on them would make each new line an anomaly. That of texts that name no
problem is higher: most new texts of normal lines name none, most of those of a fault do. No label is used.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

from .problem_words import names_problem
from .tokenizer import UNK

THRESHOLD = 0.7  # of the confidence, as in Opni: below is an anomaly
# Share of the training lines allowed above the threshold, out of fold. The smallest of 0.5, 1, 1.5, … % that misses no
# more of the other labelled systems than 2.5 %; not chosen on BGL (docs/aiops-model.md).
ALARMS = 0.02
PLAIN_ALARMS = 0.003  # of them, as lines that name no problem: the false alarms that people put up with
LEAST = 0.5  # nats a word: a less surprising text is never an anomaly, however regular the log
STEEP = 2.0
# nats more for an unknown word: training hides words about twenty times as often as new ones occur
UNKNOWN = 3.0
CHARACTER = 0.5  # weight of a word that is one character of a sentence: a new name has two or three of them
KNOWN_WORDS = 0.4  # weight of a new text whose words are all known
MARKED = 3.0  # nats: a word this surprising is shown as unexpected
MAX_MARKED = 8


def key_of(masked: str) -> int:
    """Return a 63-bit hash of a text, by which seen texts are stored."""
    return int.from_bytes(hashlib.blake2b(masked.encode("utf-8", "replace"), digest_size=8).digest()) >> 1


def weighed(numbers: Sequence[int], costs: Sequence[float], *, apart: bool = False) -> list[float]:
    """Return the costs plus a penalty for unknown words, which is smaller where an unknown word was likely.

    numbers: of the words, CLS first; costs: the surprise of each word in nats. `apart`: the words are characters,
    and each counts for less.
    """
    weight = CHARACTER if apart else 1.0
    return [
        weight * (cost + UNKNOWN * (1 - math.exp(-cost)) if number == UNK else cost)
        for number, cost in zip(numbers[1:], costs, strict=False)
    ]


def score_of(numbers: Sequence[int], costs: Sequence[float]) -> float:
    """Return the score of a text; costs: as `weighed` returns them."""
    if not costs:
        return 0.0
    mean = sum(costs) / len(costs)
    return mean if UNK in numbers else mean * KNOWN_WORDS


class Unseen(NamedTuple):
    """A text that was new to its fold."""

    score: float
    lines: int
    names_problem: bool


class Thresholds(NamedTuple):
    """The scores above which a text is an anomaly: of texts that name a problem, and of others, where it is never
    lower.
    """

    problem: float = LEAST
    plain: float = LEAST

    def of(self, masked: str) -> float:
        """Return the threshold of a text."""
        return self.problem if names_problem(masked) else self.plain

    def exceeded(self, text: Unseen) -> bool:
        return text.score > (self.problem if text.names_problem else self.plain)


def thresholds_of(
    unseen: Sequence[Unseen], lines: int, alarms: float = ALARMS, plain_alarms: float = PLAIN_ALARMS
) -> Thresholds:
    """Return the thresholds. At most the share `alarms` of all lines exceeds that of texts that name a problem, and
    the share `plain_alarms` exceeds that of the others as such lines.
    """
    problem = threshold_of([(text.score, text.lines) for text in unseen], lines, alarms)
    plain = threshold_of([(text.score, text.lines) for text in unseen if not text.names_problem], lines, plain_alarms)
    return Thresholds(problem, max(problem, plain))


def threshold_of(unseen: Sequence[tuple[float, int]], lines: int, alarms: float) -> float:
    """Return the score above which a text is an anomaly. unseen: (score, lines) of texts that were
    new to their fold.
    """
    allowed = alarms * lines
    threshold = LEAST
    for score, count in sorted(unseen, reverse=True):
        allowed -= count
        if allowed < 0:
            threshold = max(LEAST, score)
            break
    return threshold


def confidence_of(score: float, threshold: float) -> float:
    """Return 1 where nothing is surprising, 0.7 at the threshold, towards 0 above it."""
    ratio = max(0.0, score) / threshold
    return 1.0 / (1.0 + (1.0 / THRESHOLD - 1.0) * ratio**STEEP)


def marked(words: Sequence[tuple[int, str]], numbers: Sequence[int], costs: Sequence[float]) -> list[tuple[int, str]]:
    """Return (position, word) of the words that were unexpected or unknown, in reading order; at least the worst.

    words: as Tokenizer.places returns them. Parts of a word that follow each other are one.
    """
    if not costs:
        return []
    order = sorted(range(len(costs)), key=lambda place: -costs[place])[:MAX_MARKED]
    chosen = [place for place in order if costs[place] >= MARKED or numbers[place + 1] == UNK] or order[:1]
    result: list[tuple[int, str]] = []
    last = None
    for place in sorted(chosen):
        position, word = words[place]
        if last == place - 1 and result[-1][0] == position:
            word = result.pop()[1] + word
        result.append((position, word))
        last = place
    return result

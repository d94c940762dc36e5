"""Verdicts of texts that were judged before, asked of DRAIN when lines arrive and stored with them. Used by `accept`.

Nearly every line of a running log has such a text. Stored without a verdict it would be sent to preprocessing and
DRAIN, and its verdict written to the row afterwards: three times the work. A line without an answer goes that way: of
another text, with an unusual value, or while DRAIN does not answer. Threads share what is kept; a race loses a count.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from django.conf import settings

from aiops.judging import own_models
from aiops.wire import subjects
from kernel import bus, sanitize
from kernel.errors import Fault
from kernel.telemetry import meters
from opnilog.masking import mask_many
from opnilog.usual_values import Position, are_usual

log = logging.getLogger(__name__)

Names = tuple[str, str, str]
Question = tuple[Names, list[str], list[int]]  # texts, and how many lines have each
TIMEOUT_S = 0.5
SILENCE_S = 5.0  # after a question without an answer none is asked for that long
UNWATCHED_S = 5.0  # for which a workload that is not watched is not asked about
MAX_UNWATCHED = 10_000
KEPT_S = 1.0  # an answer: far less than a label takes to settle (judging/feedback.py)
MAX_ANSWERS = 20_000
MAX_QUESTION = 1 << 20  # characters of the texts of one question


@dataclass(slots=True)
class _Answer:
    """What DRAIN answered about a text: nothing, where there is no verdict."""

    until: float
    fields: dict = field(default_factory=dict)
    limits: list[tuple[int, Position]] = field(default_factory=list)
    lines: int = 0  # that had the verdict since, and are reported with the next question


class Known:
    """What this process knows from its questions."""

    def __init__(self) -> None:
        self.silent_until = float("-inf")
        self.unwatched: dict[Names, float] = {}
        self.answers: dict[tuple[Names, str], _Answer] = {}

    def judged(self, lines: Sequence[dict]) -> list[dict]:
        """Return the lines, with verdicts where these are known."""
        now, lines = time.monotonic(), list(lines)
        if now < self.silent_until or settings.AIOPS_SUBJECT == subjects.RAW_LOGS:
            return lines
        places: dict[Names, list[int]] = {}
        for place, line in enumerate(lines):
            if line["log_type"] == subjects.WORKLOAD and line["log"]:
                names = line["cluster_id"], line["namespace_name"], line["deployment"]
                places.setdefault(names, []).append(place)
        for names in [names for names in places if self.unwatched.get(names, now) > now]:
            del places[names]
        masked = {names: mask_many([lines[place]["log"] for place in some]) for names, some in places.items()}
        counts = {names: Counter(texts) for names, texts in masked.items()}
        self._ask(self._questions(counts, now), now)
        for names, texts in masked.items():
            for place, text in zip(places[names], texts, strict=True):
                answer = self.answers.get((names, text))
                if answer and answer.fields and (not answer.limits or are_usual(lines[place]["log"], answer.limits)):
                    lines[place] = {**lines[place], **answer.fields}
        return lines

    def _questions(self, counts: dict[Names, Counter[str]], now: float) -> list[Question]:
        """Return what to ask about the texts of each workload's lines, as far as one message has room."""
        room, questions = MAX_QUESTION, []
        for names, texts in counts.items():
            asked = {}
            for text, lines in texts.items():
                answer = self.answers.get((names, text))
                if answer and answer.until > now:
                    answer.lines += lines
                elif text and (room := room - len(text)) > 0:
                    asked[text] = lines + (answer.lines if answer else 0)
            if asked:
                questions.append((names, list(asked), list(asked.values())))
        return questions

    def _ask(self, questions: list[Question], now: float) -> None:
        """Keep the answers to the questions."""
        if not questions:
            return
        if len(self.answers) > MAX_ANSWERS:
            self.answers = {}
        data = json.dumps([[*names, texts, counts] for names, texts, counts in questions], ensure_ascii=False)
        answers = {}
        try:
            rows = sanitize.read_json(bus.request(subjects.KNOWN_VERDICTS, data.encode(), TIMEOUT_S))
            for (names, texts, _counts), row in zip(questions, rows, strict=True):
                if row is None:
                    self._leave(names, now)
                    continue
                for text, fields in zip(texts, row, strict=True):
                    until = now + KEPT_S
                    answers[names, text] = _answer(until, text, *fields) if fields else _Answer(until)
        except (Fault, ValueError, TypeError, KeyError, AttributeError) as problem:  # no answer, or a wrong one
            log.info("%s: %s; lines are judged after they are stored", subjects.KNOWN_VERDICTS, problem)
            self.silent_until = now + SILENCE_S
            self.answers = {}
            return
        self.answers.update(answers)

    def _leave(self, names: Names, now: float) -> None:
        if len(self.unwatched) >= MAX_UNWATCHED:
            self.unwatched = {}
        self.unwatched[names] = now + UNWATCHED_S


def _answer(
    until: float, masked: str, level: str, template: str, number: int, confidence: float | None,
    unexpected: list | None, limits: list, tenant: int = 0,
) -> _Answer:  # fmt: skip
    """Return an answer about a text as it is kept."""
    fields = {
        "masked_log": masked,
        "anomaly_level": level,
        "template_matched": template,
        "template_cluster_id": number,
        "inference_model": own_models.stored(subjects.DRAIN, tenant),
    }
    if confidence is not None:
        fields["opnilog_confidence"] = round(confidence, 6)
    if unexpected:
        fields["unexpected"] = unexpected
    return _Answer(until, fields, [(index, Position.load(known)) for index, known in limits])


def count(lines: Sequence[dict]) -> None:
    """Count the verdicts of lines that were stored with them."""
    for level, number in Counter(line["anomaly_level"] for line in lines if line.get("anomaly_level")).items():
        meters.LOG_LINES_JUDGED.labels(subjects.DRAIN, level).inc(number)


_known = Known()


def judged(lines: Sequence[dict]) -> list[dict]:
    """Return the lines, with verdicts where DRAIN knows them now. Raises nothing: the others are judged later."""
    return _known.judged(lines)


def ask_again() -> None:
    """Ask with the next lines, whatever happened before: for tests, which begin and end services."""
    global _known
    _known = Known()

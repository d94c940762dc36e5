"""The shape of a session: its templates in the order in which they came first, with their numbers of lines.

It is kept as text, so that it means the same to a model version that is trained later and renumbers the templates.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from opnilog.learned_sessions import NEW, SIMILAR, Learned
from opnilog.template_learning import words_of

MAX_BYTES = 16 << 10


def shape_of(learned: Learned, events: Iterable) -> list[list]:
    """Return a session's shape, [[text, lines], …]; [] where it is too large to be kept."""
    shape = [[learned.template(event), lines] for event, lines in Counter(events).items()]
    return shape if len(json.dumps(shape)) <= MAX_BYTES else []


class Normal:
    """The shapes that people have marked as normal in a workload, as the serving model version sees them."""

    def __init__(self, learned: Learned, shapes: Sequence[tuple[int, list]] = ()):
        """Take the shapes, each with the number of its suppression."""
        self.learned = learned
        self.numbers = frozenset(number for number, _shape in shapes)
        self.new: dict[str, tuple[str, ...]] = {}  # texts of no template, with their words
        self.keys: dict[Hashable, int] = {}
        for number, shape in shapes:
            self.keys.setdefault(self._key(self._events(shape), keep=True), number)

    def find(self, events: Iterable) -> int | None:
        """Return the number of the suppression of sessions like this one, if any."""
        return self.keys.get(self._key(events)) if self.keys else None

    def find_shape(self, shape: list) -> int | None:
        """Return the number of the suppression of a session of this shape, if any."""
        return self.find(self._events(shape)) if shape and self.keys else None

    def _events(self, shape: Iterable[Sequence]) -> list:
        """Return the events of a shape; only the places of the first ones are those of the session."""
        return [
            event
            for text, lines in shape
            for event in [NEW if text == NEW else self.learned.event(text)] * int(lines)
        ]  # fmt: skip

    def _key(self, events: Iterable, *, keep: bool = False) -> Hashable:
        return self.learned.sessions.compared([self._settle(event, keep=keep) for event in events])

    def _settle(self, event, *, keep: bool):
        """Return the event; a text of no template as the one that it is similar to in a shape."""
        if not isinstance(event, str) or event == NEW or event in self.new:
            return event
        words = words_of(event)
        for text, others in self.new.items():
            if len(others) == len(words) and sum(map(str.__eq__, others, words)) >= SIMILAR * len(words):
                return text
        if keep:
            self.new[event] = words
        return event

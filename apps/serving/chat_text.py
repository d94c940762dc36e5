"""The text of an answer as it comes from an engine: ended at stop strings, of which nothing is sent."""

from __future__ import annotations


class Ending:
    """Passes text on until one of the stop strings is complete; holds back what may be the beginning of one."""

    def __init__(self, stops: tuple[str, ...]):
        self.stops, self.held, self.ended = stops, "", False

    def take(self, text: str) -> str:
        """Return what may be sent of the text up to here; sets `ended` at a stop string."""
        self.held += text
        places = [place for place in map(self.held.find, self.stops) if place >= 0]
        if places:
            self.ended = True
            return self._pass(min(places))
        return self._pass(len(self.held) - max(map(self._begun, self.stops), default=0))

    def rest(self) -> str:
        """Return what was held back when the answer has ended without a stop string."""
        return "" if self.ended else self._pass(len(self.held))

    def _begun(self, stop: str) -> int:
        """Return how many characters at the end may begin the stop string."""
        sizes = range(min(len(stop) - 1, len(self.held)), 0, -1)
        return next((size for size in sizes if self.held.endswith(stop[:size])), 0)

    def _pass(self, size: int) -> str:
        text, self.held = self.held[:size], self.held[size:]
        return text

"""The answers of OpenAI's API: whole ones, and the events of a stream."""

from __future__ import annotations

import time
import uuid

from chat_engine import LENGTH, STOP, Piece
from chat_requests import Request
from chat_text import Ending


class Answer:
    """One answer as it grows. `finish` is set at its end, after `most` tokens at the latest; `counted` with its first
    piece, when the tokens of the prompt are counted.
    """

    def __init__(self, request: Request, model: str, prompt_tokens: int, most: int):
        self.request, self.prompt_tokens, self.most, self.tokens = request, prompt_tokens, most, 0
        self.ending, self.texts, self.finish = Ending(request.stops), [], ""
        self.counted = False
        kind = "chat.completion" if request.chat else "text_completion"
        streams = ".chunk" if request.chat and request.stream else ""
        prefix = "chatcmpl" if request.chat else "cmpl"
        created = int(time.time())
        self.head = {"id": f"{prefix}-{uuid.uuid4().hex}", "object": kind + streams, "created": created, "model": model}

    def take(self, piece: Piece) -> str:
        """Return the text that a piece adds to the answer."""
        self.tokens += piece.tokens
        text = self.ending.take(piece.text)
        if self.ending.ended:
            self.finish = STOP
        elif self.tokens > self.most:  # the engine should have ended
            self.tokens, self.finish, text = self.most, LENGTH, ""
        elif piece.finish:
            text, self.finish = text + self.ending.rest(), piece.finish
        self.texts.append(text)
        return text

    def whole(self) -> dict:
        """Return the whole answer."""
        text = "".join(self.texts)
        said = {"message": {"role": "assistant", "content": text}} if self.request.chat else {"text": text}
        return {**self.head, "choices": [self._choice(said, self.finish)], "usage": self._usage()}

    def first(self) -> dict:
        """Return the event with which a stream begins."""
        return self._event({"role": "assistant", "content": ""}, None) if self.request.chat else self.chunk("")

    def chunk(self, text: str) -> dict:
        """Return the event with the next piece of text."""
        return self._event({"content": text} if self.request.chat else text, None)

    def last(self) -> list[dict]:
        """Return the events with which a stream ends."""
        events = [self._event({} if self.request.chat else "", self.finish)]
        if self.request.with_usage:
            events.append({**self.head, "choices": [], "usage": self._usage()})
        return events

    def _event(self, delta: dict | str, finish: str | None) -> dict:
        said = {"delta": delta} if self.request.chat else {"text": delta}
        usage = {"usage": None} if self.request.with_usage else {}
        return {**self.head, "choices": [self._choice(said, finish)], **usage}

    def _choice(self, said: dict, finish: str | None) -> dict:
        return {"index": 0, **said, "logprobs": None, "finish_reason": finish}

    def _usage(self) -> dict:
        total = self.prompt_tokens + self.tokens
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.tokens, "total_tokens": total}

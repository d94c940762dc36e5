"""The answers of OpenAI's API: whole ones, and the events of a stream."""

from __future__ import annotations

import time
import uuid

from chat_engine import LENGTH, STOP, Piece
from chat_requests import Request
from chat_text import Ending
from tool_calls import ALONE, Call, Reader

TOOL_CALLS = "tool_calls"  # why an answer has ended


class Answer:
    """One answer as it grows. `finish` is set at its end, after `most` tokens at the latest; `counted` with its first
    piece, when the tokens of the prompt are counted.
    """

    def __init__(self, request: Request, model: str, prompt_tokens: int, most: int, form: str = ""):
        self.request, self.prompt_tokens, self.most, self.tokens = request, prompt_tokens, most, 0
        self.ending, self.texts, self.finish = Ending(request.stops), [], ""
        self.counted = False
        self.calls: list[Call] = []
        tools = request.tools
        self.reader = Reader(ALONE if tools.forced else form, tools.names) if tools else None
        kind = "chat.completion" if request.chat else "text_completion"
        streams = ".chunk" if request.chat and request.stream else ""
        prefix = "chatcmpl" if request.chat else "cmpl"
        created = int(time.time())
        self.head = {"id": f"{prefix}-{uuid.uuid4().hex}", "object": kind + streams, "created": created, "model": model}

    def take(self, piece: Piece) -> tuple[str, list[Call]]:
        """Return the text that a piece adds to the answer, and the calls of tools."""
        text, calls = self._text(piece), []
        if self.reader is not None:
            text, calls = self.reader.take(text)
            if self.finish:
                said, rest = self.reader.rest()
                text, calls = text + said, calls + rest
            if self.request.tools.one and self.calls + calls:
                text, calls = text if not self.calls else "", calls[: 1 - len(self.calls)]
                self.finish = self.finish or STOP
        self.texts.append(text)
        self.calls += calls
        if self.calls and self.finish == STOP:
            self.finish = TOOL_CALLS
        return text, calls

    def _text(self, piece: Piece) -> str:
        self.tokens += piece.tokens
        text = self.ending.take(piece.text)
        if self.ending.ended:
            self.finish = STOP
        elif self.tokens > self.most:  # the engine should have ended
            self.tokens, self.finish, text = self.most, LENGTH, ""
        elif piece.finish:
            text, self.finish = text + self.ending.rest(), piece.finish
        return text

    def whole(self) -> dict:
        """Return the whole answer."""
        text = "".join(self.texts)
        said = {"text": text}
        if self.request.chat:
            said = {"message": {"role": "assistant", "content": text}}
        if self.calls:
            said["message"] |= {"content": text or None, "tool_calls": [call.shown() for call in self.calls]}
        return {**self.head, "choices": [self._choice(said, self.finish)], "usage": self._usage()}

    def first(self) -> dict:
        """Return the event with which a stream begins."""
        return self._event({"role": "assistant", "content": ""}, None) if self.request.chat else self.chunk("")

    def chunk(self, text: str) -> dict:
        """Return the event with the next piece of text."""
        return self._event({"content": text} if self.request.chat else text, None)

    def called(self, calls: list[Call]) -> list[dict]:
        """Return the events with the calls of tools, the last that `take` has returned, each of which is whole."""
        first = len(self.calls) - len(calls)
        return [
            self._event({TOOL_CALLS: [{"index": at, **call.shown()}]}, None) for at, call in enumerate(calls, first)
        ]

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

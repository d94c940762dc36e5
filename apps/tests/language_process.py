"""The serving process of language models within the tests' own process, with engines that are scripted here."""

from __future__ import annotations

import asyncio
import json
import sys

import numpy as np
import pytest

from apps.launching import SERVING


@pytest.fixture
def serving(monkeypatch):
    """Return a function that imports a module of the serving process; none of them stays."""
    monkeypatch.syspath_prepend(str(SERVING))
    before = set(sys.modules)
    yield lambda name: __import__(name)
    for name in set(sys.modules) - before:
        if str(SERVING) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def ask(application, path: str, content: object, **headers: str) -> tuple[int, list[dict]]:
    """Return the status of a response, and its body or the events of its stream."""
    given = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()]
    sent, waiting = [], [{"type": "http.request", "body": json.dumps(content).encode()}]

    async def receive() -> dict:
        if waiting:
            return waiting.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": given}
    asyncio.run(application(scope, receive, send))
    body = b"".join(message.get("body", b"") for message in sent).decode()
    events = [line.removeprefix("data: ") for line in body.split("\n\n") if line]
    return sent[0]["status"], [json.loads(event) for event in events if event != "[DONE]"]


class Writer:
    """An engine that writes a text, a letter as a token; a schema is followed where the text is said to."""

    format, context, parallel, embeds, chats, tools, constrains = "scripted", 10_000, 1, False, True, "hermes", True

    def __init__(self, text: str):
        self.text, self.seen, self.schema, self.called = text, [], None, None

    def encode(self, text: str) -> list[int]:
        return [*range(max(1, len(text)))]

    encode_tokens = list

    def encode_messages(self, messages, tools=(), calling=False) -> list[int]:
        self.seen = [messages, tools, calling]
        return [1]

    def constraint(self, schema: dict) -> object:
        from chat_engine import WrongPrompt

        self.schema = schema
        if schema.get("type") == "nonsense":
            raise WrongPrompt("Invalid type: nonsense")
        return schema

    def calling(self, functions: list[tuple[str, dict]]) -> object:
        self.called = functions
        return functions

    def generate(self, tokens, options, emit, cancelled) -> None:
        from chat_engine import LENGTH, STOP, Piece, WrongPrompt

        if self.text == "stuck":
            raise WrongPrompt("the JSON schema cannot be followed further: too many items")
        for letter in self.text[: options.most]:
            emit(Piece(letter))
        emit(Piece("", 0, STOP if len(self.text) <= options.most else LENGTH))


class Counter:
    """An engine whose vectors are the number of tokens, the first and the last of them, and 0.5."""

    format, context, parallel, embeds, chats, dimensions = "scripted", 20, 1, True, False, 4

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    encode_tokens = list

    def may_have(self, dimensions: int) -> bool:
        return dimensions in (2, self.dimensions)

    def embed(self, texts, cancelled) -> np.ndarray:
        return np.array([[len(text), text[0], text[-1], 0.5] for text in texts], np.float32)

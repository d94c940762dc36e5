"""A language model for tests, as a program: chat.py with an engine that writes what the prompt says.

A token is a character. The prompt's last line is repeated; `wait PATH TEXT` waits before character N for a file PATH.N,
`endless` never ends. PATH.cancelled is written when it was asked to stop meanwhile. `encode PATH` waits for the file
PATH.encoded while the prompt is made tokens, and writes PATH.encoding; meanwhile no other prompt may be.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, os.environ["SERVING"])

import chat
from chat_engine import LENGTH, STOP, Piece, WrongPrompt
from listening import serve


class ScriptedEngine:
    """Repeats; see above."""

    format, context, parallel, embeds = "scripted", 200, 1, False
    tools, constrains = "", False

    def __init__(self, folder: Path):
        self.chats = not (folder / "no-template").exists()
        self.encoding = False

    def encode(self, text: str) -> list[int]:
        return [*text.encode("utf-16-le")[::2]] if text else [0]

    def encode_tokens(self, tokens: list[int]) -> list[int]:
        return tokens

    def encode_messages(self, messages: list[dict[str, str]]) -> list[int]:
        if messages[-1]["role"] != "user":
            raise WrongPrompt("the last message must be the user's")
        if self.encoding:
            raise RuntimeError("Already borrowed")
        kind, _, path = messages[-1]["content"].partition(" ")
        if kind == "encode":
            self.encoding = True
            Path(f"{path}.encoding").touch()
            while not Path(f"{path}.encoded").exists():
                time.sleep(0.01)
            self.encoding = False
        return self.encode("\n".join(message["content"] for message in messages))

    def generate(self, tokens, options, emit, cancelled) -> None:
        words = bytes(tokens).decode("latin-1").splitlines()[-1]
        kind, _, rest = words.partition(" ")
        path, _, text = rest.partition(" ") if kind == "wait" else ("", "", words)
        if kind == "fail":
            raise RuntimeError("out of memory")
        text = "more " * 100_000 if kind == "endless" else text
        text = text if options.temperature else text.upper()
        for at, letter in enumerate(text):
            if at == options.most:
                return emit(Piece("", 0, LENGTH))
            while path and at and not Path(f"{path}.{at}").exists() and not cancelled.wait(0.01):
                pass
            if cancelled.is_set():
                if path:
                    Path(f"{path}.cancelled").touch()
                return emit(Piece("", 0, STOP))
            emit(Piece(letter))
        emit(Piece("", 0, STOP))


if __name__ == "__main__":
    serve(partial(chat.prepared, ScriptedEngine))

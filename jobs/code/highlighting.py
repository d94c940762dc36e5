"""Syntax highlighting by Pygments: tokens are marked with a few classes, which the style sheet colours for both themes.

Only lexers of simple languages are used, and only for a bounded time, since users choose the text.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from importlib import import_module

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Token

MAX_SECONDS = 0.5
MAX_LINES = 10_000
LEXERS = {
    **dict.fromkeys((".py", ".pyi"), ("python", "PythonLexer")),
    **dict.fromkeys((".sh", ".bash"), ("shell", "BashLexer")),
    **dict.fromkeys((".yaml", ".yml"), ("data", "YamlLexer")),
    **dict.fromkeys((".json", ".ipynb"), ("data", "JsonLexer")),
    **dict.fromkeys((".ini", ".cfg", ".conf"), ("configs", "IniLexer")),
    ".toml": ("configs", "TOMLLexer"),
    ".sql": ("sql", "SqlLexer"),
    ".js": ("javascript", "JavascriptLexer"),
    **dict.fromkeys((".c", ".h"), ("c_cpp", "CLexer")),
    **dict.fromkeys((".cc", ".cpp", ".hpp", ".cu", ".cuh"), ("c_cpp", "CppLexer")),
}
CLASSES = (
    (Comment, "hc"),
    (String, "hs"),
    (Number, "hm"),
    (Keyword, "hk"),
    (Operator.Word, "hk"),
    (Name.Function, "hf"),
    (Name.Class, "hf"),
    (Name.Decorator, "hd"),
    (Name.Builtin, "hb"),
    (Name.Tag, "hk"),
)


def lines(text: str, path: str) -> list[SafeString]:
    """Return the lines of a text as HTML, at most MAX_LINES."""
    highlighted, current = [], []
    for kind, value in _tokens(text, path):
        name = next((name for token, name in CLASSES if kind in token), "")
        for number, piece in enumerate(value.split("\n")):
            if number:
                highlighted.append("".join(current))
                current = []
                if len(highlighted) >= MAX_LINES:
                    return [mark_safe(line) for line in highlighted]
            if piece:
                current.append(f'<span class="{name}">{escape(piece)}</span>' if name else escape(piece))
    if current:
        highlighted.append("".join(current))
    return [mark_safe(line) for line in highlighted]


def _tokens(text: str, path: str) -> Iterator[tuple]:
    """Yield (token type, text); after the time limit the rest as plain text."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    place = LEXERS.get(os.path.splitext(path)[1].lower())
    if place is None:
        yield Token, text
        return
    lexer = getattr(import_module(f"pygments.lexers.{place[0]}"), place[1])()
    end, done = time.monotonic() + MAX_SECONDS, 0
    for _, kind, value in lexer.get_tokens_unprocessed(text):
        yield kind, value
        done += len(value)
        if time.monotonic() > end:
            break
    if done < len(text):
        yield Token, text[done:]

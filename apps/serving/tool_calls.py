"""The calls of tools in the text of an answer as it comes: what is said, and what is called.

HERMES: each call is JSON in <tool_call> tags, as Hermes and Qwen write them; LLAMA: the whole answer is calls as JSON,
separated by semicolons, as Llama 3 writes them; ALONE: the whole answer is one call, since it was made to be one. What
looks like a call and is none, of a tool that was not offered for example, stays text.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from dataclasses import dataclass, field

HERMES, LLAMA, ALONE = "hermes", "llama", "alone"
BEGIN, END = "<tool_call>", "</tool_call>"
BEGINS_JSON = ("{", "<|python_tag|>")


def form_of(template: str) -> str:
    """Return the form in which a model with this chat template writes calls; empty where it has no tools, or a form
    that is not read here.
    """
    if "tools" not in template:
        return ""
    if BEGIN in template:
        return "" if "<function=" in template or "<arg_key>" in template else HERMES
    return LLAMA if "<|python_tag|>" in template or "ipython" in template else ""


@dataclass(frozen=True)
class Call:
    """A call of a tool; the arguments are JSON."""

    name: str
    arguments: str
    key: str = field(default_factory=lambda: f"call_{uuid.uuid4().hex[:24]}")

    def shown(self) -> dict:
        return {"id": self.key, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


class Reader:
    """Splits an answer's text into what is said and the calls of tools with these names."""

    def __init__(self, form: str, names: frozenset[str]):
        self.form, self.names = form, names
        self.held, self.inside = "", form == ALONE
        self.searched = 0  # of what is held: it has no end tag up to there
        self.said = self.called = False  # something other than white space; a tool

    def take(self, text: str) -> tuple[str, list[Call]]:
        """Return what may be sent of the text up to here, and the calls that are complete."""
        self.held += text
        if self.form == LLAMA and not self.said and not self.inside:
            begun = self.held.lstrip()
            if not begun or any(mark.startswith(begun) for mark in BEGINS_JSON):
                return "", []
            self.inside = begun.startswith(BEGINS_JSON)
            self.said = not self.inside
        if self.form != HERMES:
            return ("", []) if self.inside else (self._all(), [])
        said, calls = "", []
        while True:
            at = self.held.find(END if self.inside else BEGIN, self.searched)
            if at < 0:
                self.searched = max(0, len(self.held) - len(END)) if self.inside else 0
                break
            if self.inside and _is_within_text(self.held[len(BEGIN) : at]):
                self.searched = at + len(END)
            elif self.inside:
                whole, self.held = self.held[: at + len(END)], self.held[at + len(END) :]
                found = self._read(whole.removeprefix(BEGIN).removesuffix(END))
                calls += found
                said += "" if found else whole
                self.inside, self.searched = False, 0
            else:
                said, self.held = said + self.held[:at].rstrip(), self.held[at:]
                self.inside, self.searched = True, 0
        self.called |= bool(calls)
        return said + ("" if self.inside else self._open()), calls

    def rest(self) -> tuple[str, list[Call]]:
        """Return what was held back when the answer has ended."""
        text, self.held = self.held, ""
        calls = self._read(text.removeprefix(BEGIN)) if self.inside else []
        return ("", calls) if calls or (self.called and not text.strip()) else (text, [])

    def _open(self) -> str:
        """Return what may be sent of a text without a call; white space before one is no part of it."""
        kept = len(self.held) - len(self.held.rstrip())
        begun = next((size for size in range(len(BEGIN) - 1, 0, -1) if self.held.endswith(BEGIN[:size])), 0)
        if begun:
            before = self.held[:-begun]
            kept = begun + len(before) - len(before.rstrip())
        text, self.held = self.held[: len(self.held) - kept], self.held[len(self.held) - kept :]
        return text

    def _all(self) -> str:
        text, self.held = self.held, ""
        return text

    def _read(self, text: str) -> list[Call]:
        """Return the calls that a text is, none where it is something else."""
        text, calls, decoder = text.strip().removeprefix("<|python_tag|>"), [], json.JSONDecoder()
        while text := text.strip().removeprefix(";").strip():
            try:
                given, end = decoder.raw_decode(text)
            except (ValueError, RecursionError):
                return []
            call = self._call(given)
            if call is None:
                return []
            calls.append(call)
            text = text[end:]
        return calls

    def _call(self, given) -> Call | None:
        if not isinstance(given, dict):
            return None
        name, arguments = given.get("name"), given.get("arguments", given.get("parameters", {}))
        if isinstance(arguments, str):  # Granite writes them as JSON in a text
            with contextlib.suppress(ValueError, RecursionError):
                arguments = json.loads(arguments)
        if not isinstance(name, str) or name not in self.names or not isinstance(arguments, dict):
            return None
        try:
            return Call(name, _written(arguments))
        except (ValueError, RecursionError):  # NaN and infinity, which Python reads, and JSON does not have
            return None


def _written(arguments: dict) -> str:
    """Return arguments as JSON. Raises ValueError for numbers that JSON does not have."""
    text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which stays escaped
        return json.dumps(arguments, allow_nan=False)
    return text


def _is_within_text(text: str) -> bool:
    """Return whether JSON that begins so is within a text, in which a tag may be."""
    try:
        json.loads(text)
    except json.JSONDecodeError as problem:
        return problem.msg.startswith("Unterminated string")
    except RecursionError:
        return False
    return False

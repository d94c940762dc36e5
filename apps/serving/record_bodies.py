"""What a record keeps of a body: its text, masked and cut; of what is no text only type and size. No Django here.

A mask is the name of a field, wherever it is, or a path: `email`, `$.user.name`, `$.messages[*].content`,
`$.inputs[0].data`. The name of a tensor of the v2 protocol, of any other object with a `name`, and of a column of
MLflow's `dataframe_split`, are fields, too. Fields are also found in JSON within a text. With masks a body is kept only
where all of it can be read as JSON: what is too large, CSV and refusals, which may repeat a value, are withheld.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import orjson
from masking import masked
from packing import unpacked

CAPTURED = 256 << 10  # bytes of a body that are read, also after unpacking; characters of a stream's text
BINARY = re.compile(r"\s*(image|audio|video|font)/|\s*application/(octet-stream|zip|x-npy|pdf|protobuf)|\s*multipart/",
                    re.IGNORECASE)  # fmt: skip
KEPT, CUT, WITHHELD, BINARY_ONLY, EMPTY = "all", "cut", "withheld", "binary", "none"


class Body(NamedTuple):
    """What was read of a body, whether that is all of it, its size in bytes, its media type and its coding."""

    data: bytes
    whole: bool
    size: int
    type: str
    coding: str


def shown(body: Body, mask: tuple[str, ...], most: int, says_why: bool = False) -> dict:
    """Return {"type", "size", "kept", "text"} of a body; the text has at most `most` bytes."""
    kept, text = _text_of(body, mask, says_why)
    data = text.encode(errors="replace")  # half a surrogate pair, which JSON may escape
    if len(data) > most:
        kept = CUT
    return {"type": body.type[:100], "size": body.size, "kept": kept, "text": data[:most].decode(errors="ignore")}


def _text_of(body: Body, mask: tuple[str, ...], says_why: bool) -> tuple[str, str]:
    data, whole = body.data, body.whole
    if not body.size:
        return EMPTY, ""
    if mask and says_why:
        return WITHHELD, ""
    if BINARY.match(body.type):
        return BINARY_ONLY, ""
    if body.coding.strip():
        try:
            data = unpacked(data, body.coding, CAPTURED) if whole else b""
        except Exception:  # damaged, or larger than is read
            data = b""
        if not data:
            return (WITHHELD if mask else BINARY_ONLY), ""
    try:
        text = data.decode() if whole else data.decode(errors="ignore")
    except UnicodeDecodeError:
        return BINARY_ONLY, ""
    if "\x00" in text:
        return BINARY_ONLY, ""
    if not mask:
        return (KEPT if whole else CUT), text
    try:
        return (KEPT, masked(text, mask)) if whole else (WITHHELD, "")
    except (ValueError, RecursionError):
        return WITHHELD, ""


# --- bodies as they pass ----------------------------------------------------------------------------------------------
class Captured:
    """The first CAPTURED bytes of a body, and its size."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size = self.kept = 0

    def take(self, piece: bytes) -> None:
        self.size += len(piece)
        if piece and self.kept < CAPTURED:
            self.pieces.append(piece[: CAPTURED - self.kept])
            self.kept += len(self.pieces[-1])

    def body(self, type: str, coding: str = "") -> Body:
        """Return what has passed."""
        return Body(b"".join(self.pieces), self.kept == self.size, self.size, type, coding)


class Events:
    """The stream of a language model, as the same request without a stream would be answered: the text of the whole
    answer, in the place where such an answer has it, so that the same masks hold.
    """

    def __init__(self) -> None:
        self.whole: dict = {}
        self.texts: list[str] = []
        self.calls: list[dict] = []
        self.size = self.kept = 0
        self.chat, self.finish, self.complete = False, None, True

    def take(self, piece: bytes) -> None:
        """Take an event, which is sent as one piece."""
        self.size += len(piece)
        for line in piece.split(b"\n"):
            if not line.startswith(b"data: {"):
                continue
            try:
                self._add(orjson.loads(line.removeprefix(b"data: ")))
            except (ValueError, TypeError, KeyError, AttributeError):
                self.complete = False

    def _add(self, event: dict) -> None:
        self.whole |= {name: each for name, each in event.items() if name != "choices" and each is not None}
        for choice in event.get("choices") or []:
            self.chat = self.chat or "delta" in choice
            text = (choice["delta"].get("content") if "delta" in choice else choice["text"]) or ""
            calls = (choice["delta"].get("tool_calls") if "delta" in choice else None) or []
            self.finish = choice.get("finish_reason") or self.finish
            size = len(text) + sum(len(orjson.dumps(call)) for call in calls)
            if self.kept + size > CAPTURED:
                self.complete = False
            else:
                self.texts.append(text)
                self.calls += [{name: each for name, each in call.items() if name != "index"} for call in calls]
                self.kept += size

    def body(self, type: str, coding: str = "") -> Body:
        """Return the answer until now as JSON."""
        text = "".join(self.texts)
        said = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        if self.calls:
            said["message"] |= {"content": text or None, "tool_calls": self.calls}
        answer = {**self.whole, "choices": [{"index": 0, **said, "finish_reason": self.finish}], "stream": True}
        return Body(orjson.dumps(answer), self.complete, self.size, type, coding)

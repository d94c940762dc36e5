"""The last exception at the end of a log: its text, its cause, and the line of the script that raised it.

Logs are untrusted: the text is read line by line, once, and whatever does not have the form of a traceback is not an
exception.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

HEADER = "Traceback (most recent call last):"
MAX_PREFIX = 40
MAX_MESSAGE = 20  # lines
MAX_FRAMES = 400
MAX_HEADERS = 50
MAX_LINES = 3000
MAX_TEXT = 6000
CHAIN = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
FRAME = re.compile(r' {2}File "([^"\n]{1,400})", line (\d{1,9})(?:, in (.{1,200}))?$')
RAISED = re.compile(r"([A-Za-z_][\w.]{0,150})(?:: (.*)|:?)$")
PREFIX = re.compile(r"(?:\[(?:rank)?\d{1,4}\]:? ?)?[ |+]{0,30}")
LEFT_OUT = ("/site-packages/", "/dist-packages/", "<frozen ", "<string>", "/lib/python3")
SYNTAX = ("SyntaxError", "IndentationError", "TabError")


@dataclass(frozen=True)
class Frame:
    """A stack frame of the traceback."""

    file: str
    line: int
    function: str
    code: str


@dataclass
class Trace:
    """An exception: its class, its message, its frames from the outermost to the innermost, and its text."""

    error: str
    message: str
    frames: list[Frame] = field(default_factory=list)
    text: str = ""
    cause: str = ""  # what it was raised from, or while handling it

    @property
    def short(self) -> str:
        """Return its last line, as Python prints it."""
        return f"{self.error}: {self.message}" if self.message else self.error

    def place(self, own: tuple[str, ...]) -> Frame | None:
        """Return the innermost frame below one of the folders, else outside of installed packages, else of all."""
        for fits in (
            lambda file: any(file.startswith(folder.rstrip("/") + "/") for folder in own),
            lambda file: not any(part in file for part in LEFT_OUT),
            lambda file: True,
        ):
            for frame in reversed(self.frames):
                if fits(frame.file):
                    return frame
        return None


def last_exception(text: str, rank: int | None = None) -> Trace | None:
    """Return the last exception of a log, of the given worker if there is one; None if there is none."""
    lines = text.split("\n")
    headers = [index for index, line in enumerate(lines) if 0 <= line.find(HEADER) <= MAX_PREFIX]
    last = None
    for index in reversed(headers[-MAX_HEADERS:]):
        at = lines[index].find(HEADER)
        prefix = lines[index][:at]
        if PREFIX.fullmatch(prefix.replace("Exception Group ", "")) is None:
            continue
        trace = _read(_of_prefix(lines[index : index + MAX_LINES], prefix))
        if trace is not None:
            trace.cause = _cause(lines[:index], prefix)
            if rank is None or prefix.startswith(f"[{rank}]"):
                return trace
            last = last or trace
    return last or _syntax_error(lines)


def _of_prefix(lines: list[str], prefix: str) -> list[str]:
    """Return the lines with that prefix, without it: those of one worker, or of one exception of a group."""
    bare = prefix.rstrip()
    if not bare:
        return [line[len(prefix) :] if line.startswith(prefix) else line for line in lines]
    return [line[len(prefix) :] for line in lines if line.startswith(bare)]


def _read(lines: list[str]) -> Trace | None:
    """Return the exception whose traceback begins with the first line."""
    frames: list[Frame] = []
    index = 1
    while index < len(lines):
        line = lines[index]
        match = FRAME.match(line)
        if match:
            code = lines[index + 1].strip() if index + 1 < len(lines) and lines[index + 1].startswith("    ") else ""
            frames.append(Frame(match[1], int(match[2]), match[3] or "", code[:500]))
            del frames[:-MAX_FRAMES]
        elif line and not line.startswith(" "):
            break
        index += 1
    else:
        return None
    raised = RAISED.match(lines[index])
    if raised is None:
        return None
    message = [raised[2] or ""]
    for line in lines[index + 1 : index + MAX_MESSAGE]:
        if not line.strip() or line in CHAIN or HEADER in line:
            break
        message.append(line)
    whole = "\n".join([*lines[:index], lines[index], *message[1:]])
    return Trace(raised[1], "\n".join(message).strip(), frames, _bounded(whole))


def _cause(before: list[str], prefix: str) -> str:
    """Return the last line of the chained exception, which is printed before."""
    ahead = [line[len(prefix) :] if line.startswith(prefix) else line for line in before[-MAX_MESSAGE - 5 :]]
    while ahead and not ahead[-1].strip():
        ahead.pop()
    if not ahead or ahead[-1] not in CHAIN:
        return ""
    for line in reversed(ahead[:-1]):
        if line.strip() and not line.startswith(" ") and RAISED.match(line):
            return line[:500]
    return ""


def _syntax_error(lines: list[str]) -> Trace | None:
    """Return the error of a script that could not be compiled, which Python prints without a header."""
    for index in reversed(range(len(lines))):
        raised = RAISED.match(lines[index])
        if raised is None or raised[1] not in SYNTAX:
            continue
        for first in range(index - 1, max(-1, index - 6), -1):
            match = FRAME.match(lines[first])
            if match:
                code = lines[first + 1].strip() if first + 1 < index else ""
                frame = Frame(match[1], int(match[2]), "", code[:500])
                return Trace(raised[1], raised[2] or "", [frame], _bounded("\n".join(lines[first : index + 1])))
    return None


def _bounded(text: str) -> str:
    """Return the beginning and the end of a long text."""
    if len(text) <= MAX_TEXT:
        return text
    head, tail = text[: MAX_TEXT // 3], text[-2 * MAX_TEXT // 3 :]
    return f"{head}\n  …\n{tail}"

"""The ways in which the client fails, each with its exit code and one clear line."""

from __future__ import annotations

LOCAL, USAGE, LOGIN, REFUSED, UNREACHABLE, DAMAGED, INTERRUPTED = 1, 2, 3, 4, 5, 6, 130

MEANING = {
    0: "done",
    LOCAL: "something on this machine: a file that cannot be read or written, or changed meanwhile",
    USAGE: "wrong options",
    LOGIN: "not logged in, or the token is not valid",
    REFUSED: "the platform refused: missing, wrong state, too large, no room",
    UNREACHABLE: "the platform could not be reached or had a fault for longer than --patience",
    DAMAGED: "a checksum did not match, again and again",
    INTERRUPTED: "interrupted; the same command goes on where it stopped",
}


class Failure(Exception):
    """Ends the command: one line for the user, one exit code."""

    def __init__(self, code: int, line: str):
        super().__init__(line)
        self.code, self.line = code, line


class Trouble(Exception):
    """Something that may pass: a lost connection, a server that is starting. Tried again until patience ends."""

    def __init__(self, line: str, wait: float = 0.0):
        super().__init__(line)
        self.line, self.wait = line, wait

"""The client's errors, each with its exit code and one line for the user."""

from __future__ import annotations

LOCAL, USAGE, LOGIN, REFUSED, UNREACHABLE, DAMAGED, INTERRUPTED = 1, 2, 3, 4, 5, 6, 130

MEANING = {
    0: "success",
    LOCAL: "local error: a file cannot be read or written, or changed during the upload",
    USAGE: "invalid options or arguments",
    LOGIN: "not logged in, or invalid token",
    REFUSED: "refused by the platform: not found, wrong state, too large, no space left",
    UNREACHABLE: "the platform was unreachable or failing for longer than --patience",
    DAMAGED: "checksum mismatch, also after retries",
    INTERRUPTED: "interrupted; run the same command again to resume",
}


class Failure(Exception):
    """An error that ends the command, with one line for the user and an exit code."""

    def __init__(self, code: int, line: str):
        super().__init__(line)
        self.code, self.line = code, line


class Trouble(Exception):
    """A temporary error: a lost connection, a server that is starting. Retried until --patience is over."""

    def __init__(self, line: str, wait: float = 0.0):
        super().__init__(line)
        self.line, self.wait = line, wait

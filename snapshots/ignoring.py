"""Which files of a script's folder are excluded: default patterns, then those of `.mlpignore`, by the rules of
.gitignore.

Patterns are matched by RE2 in linear time, so that a user's pattern cannot block the server.
"""

from __future__ import annotations

import re
from typing import BinaryIO

import pathspec
import re2

from kernel.errors import Refused

NAME = ".mlpignore"
MAX_BYTES = 64 << 10
MAX_PATTERNS = 1000
DEFAULTS = (
    "__pycache__/", "*.py[cod]", ".git/", ".hg/", ".svn/", ".venv/", "venv/", "node_modules/", ".ipynb_checkpoints/",
    ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".DS_Store",
)  # fmt: skip


def read(file: BinaryIO | None) -> pathspec.GitIgnoreSpec:
    """Return the patterns of the file; None if there is none. Raises Refused naming the file and the invalid line."""
    data = file.read(MAX_BYTES + 1) if file else b""
    if len(data) > MAX_BYTES:
        raise Refused("%(file)s must have at most %(limit)s bytes", field="entry", file=NAME, limit=MAX_BYTES)
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise Refused("%(file)s must be UTF-8", field="entry", file=NAME)
    if len(lines) > MAX_PATTERNS:
        raise Refused("%(file)s must have at most %(limit)s lines", field="entry", file=NAME, limit=MAX_PATTERNS)
    for number, line in enumerate(lines, 1):
        if "*" in line or "[" in line or "\\" in line:  # others are always valid
            try:
                _compile([line])
            except (ValueError, re.error, re2.error):
                raise Refused("%(file)s: line %(line)s is not a valid pattern", field="entry", file=NAME, line=number)
    try:
        return _compile([*DEFAULTS, *lines])
    except (ValueError, re.error, re2.error):
        raise Refused("%(file)s has too many or too long patterns", field="entry", file=NAME)


def patterns(data: bytes | None) -> pathspec.GitIgnoreSpec | None:
    """Return the patterns of a `.gitignore`; None where it has none, or some that git alone understands."""
    if not data or len(data) > MAX_BYTES:
        return None
    try:
        return _compile(data.decode("utf-8-sig", "replace").splitlines()[:MAX_PATTERNS])
    except (ValueError, re.error, re2.error):
        return None


def _compile(lines: list[str]) -> pathspec.GitIgnoreSpec:
    return pathspec.GitIgnoreSpec.from_lines(lines, backend="re2")

"""Which files `.gitignore` and `.mlpignore` exclude, by git's rules: the last pattern that matches counts, `!` takes a
file back, and nothing below an excluded folder is taken back.
"""

from __future__ import annotations

import functools
import re

# What the platform leaves out of a job's code by itself; a `!` line of .mlpignore keeps one.
DEFAULTS = (
    "__pycache__/", "*.py[cod]", ".git/", ".hg/", ".svn/", ".venv/", "venv/", "node_modules/", ".ipynb_checkpoints/",
    ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".DS_Store",
)  # fmt: skip


class Pattern:
    """One line: what it matches below the folder of its file."""

    def __init__(self, line: str):
        self.keeps = line.startswith("!")
        line = line[1:] if self.keeps else line
        self.folders_only = line.endswith("/")
        line = line.rstrip("/") if self.folders_only else line
        anchored = "/" in line
        self.match = re.compile(("" if anchored else "(?:.*/)?") + _expression(line.lstrip("/"))).fullmatch

    def matches(self, path: str, is_folder: bool) -> bool:
        """Return whether it matches the path, which is relative to the folder of its file."""
        return (is_folder or not self.folders_only) and self.match(path) is not None


def read(text: str, defaults=()) -> list:
    """Return the patterns of an ignore file. A line that is no valid pattern matches nothing, as for git."""
    patterns = []
    for line in [*defaults, *text.splitlines()]:
        line = re.sub(r"(?<!\\) +$", "", line)
        if line and not line.startswith("#") and line.strip("!/"):
            try:
                patterns.append(Pattern(line))
            except re.error:
                continue
    return patterns


class Rules:
    """The patterns of all folders: `add` those of each folder before its entries are asked for."""

    def __init__(self):
        self.of: dict = {}
        self.folder_is_excluded = functools.lru_cache(maxsize=None)(self._folder_is_excluded)

    def add(self, folder: str, patterns: list) -> None:
        """Add the patterns of a folder, "" for the top."""
        if patterns:
            self.of.setdefault(folder, []).extend(patterns)

    def excludes(self, path: str, is_folder: bool) -> bool:
        """Return whether the path is excluded, by itself or by a folder above it."""
        above = path.rpartition("/")[0]
        return bool(above and self.folder_is_excluded(above)) or self._by_itself(path, is_folder)

    def _folder_is_excluded(self, path: str) -> bool:
        return self.excludes(path, True)

    def _by_itself(self, path: str, is_folder: bool) -> bool:
        folder = path
        while folder:
            folder = folder.rpartition("/")[0]
            below = path[len(folder) + 1 :] if folder else path
            for pattern in reversed(self.of.get(folder, ())):
                if pattern.matches(below, is_folder):
                    return not pattern.keeps
        return False


def _expression(glob: str) -> str:
    """Return the regular expression of a pattern. Raises re.error when it is compiled, for an invalid one."""
    out, index = "", 0
    while index < len(glob):
        char = glob[index]
        if glob.startswith("**/", index) and (index == 0 or glob[index - 1] == "/"):
            out, index = out + "(?:.*/)?", index + 3
        elif glob[index:] == "**" and index and glob[index - 1] == "/":
            out, index = out + ".+", index + 2
        elif char == "*":
            out, index = out + "[^/]*", index + 1
        elif char == "?":
            out, index = out + "[^/]", index + 1
        elif char == "[":
            match = re.compile(r"\[([!^]?)(\]?(?:\\.|\[:\w+:\]|[^\]\\])*)\]").match(glob, index)
            if match is None:
                raise re.error("no end of the brackets")
            inside = re.sub(r"\[:(\w+):\]", lambda name: CLASSES.get(name[1], ""), match[2])
            inside = re.sub(r"(?<!\\)([\[\]&~|])", r"\\\1", inside)
            out, index = out + "(?!/)[" + ("^" if match[1] else "") + inside + "]", match.end()
        elif char == "\\" and index + 1 < len(glob):
            out, index = out + re.escape(glob[index + 1]), index + 2
        else:
            out, index = out + re.escape(char), index + 1
    return out


CLASSES = {"alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "digit": "0-9", "lower": "a-z", "upper": "A-Z", "space": r"\s"}

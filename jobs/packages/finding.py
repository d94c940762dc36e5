"""The requirements that come with a script: its header, or requirements.txt or pyproject.toml beside it; the first of
these that is there.

The header is that of PEP 723, https://packaging.python.org/en/latest/specifications/inline-script-metadata/, which uv,
pipx and hatch read; of pyproject.toml the dependencies of `[project]` count, in the versions of uv.lock where that lies
beside it. Which Python they ask for is compared.
"""

from __future__ import annotations

import posixpath
import tomllib
from collections.abc import Callable

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from kernel.errors import Refused
from runners import interpreter

from . import text, uv_lock

BEGIN, END = "# /// script", "# ///"
FILE, PROJECT, LOCK = "requirements.txt", "pyproject.toml", "uv.lock"


def found(entry: str, read: Callable[[str], str | None]) -> str:
    """Return the requirements of the script, "" where nothing says any.

    `read` returns the text of a file relative to `.home`, None for one that is not in the code. Raises Refused for what
    cannot be read, or asks for another Python.
    """
    script = read(entry) or ""
    if (header := header_of(script, entry)) is not None:
        return _dependencies(header, entry)
    folder = posixpath.dirname(entry)
    path = posixpath.join(folder, FILE)
    if (wanted := read(path)) is not None:
        _at(path, lambda: text.lines(wanted))
        return f"-r {FILE}" if text.lines(wanted) else ""
    path = posixpath.join(folder, PROJECT)
    if (project := read(path)) is not None:
        table = _toml(project, path).get("project", {})
        wanted = _dependencies(table if isinstance(table, dict) else {}, path)
        lock = posixpath.join(folder, LOCK)
        if wanted and (locked := read(lock)) is not None:
            return _locked(_toml(locked, lock), str(table.get("name", "")), lock)
        return wanted
    return ""


def header_of(script: str, entry: str = "") -> dict | None:
    """Return what the script's header says, None without one. Raises Refused where it is not TOML, or is there twice.

    A header that is not ended is a comment, as for the tools that read them.
    """
    headers: list[str] = []
    lines = iter(script.splitlines())
    for line in lines:
        if line.rstrip() != BEGIN:
            continue
        block: list[str] = []
        for line in lines:
            if line.rstrip() == END:
                headers.append("\n".join(block))
                break
            if line != "#" and not line.startswith("# "):
                break
            block.append(line[2:])
    if len(headers) > 1:
        raise Refused("%(file)s has more than one header", field=text.FIELD, file=entry)
    return _toml(headers[0], entry) if headers else None


def _dependencies(table: dict, path: str) -> str:
    _require_python(table, path)
    lines = table.get("dependencies", [])
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise Refused("%(file)s: dependencies must be a list of texts", field=text.FIELD, file=path)
    return _checked([line.replace("\n", " ") for line in lines], path)


def _locked(lock: dict, project: str, path: str) -> str:
    _require_python(lock, path)
    lines: list[str] = []
    _at(path, lambda: lines.extend(uv_lock.pins(lock, project)))
    return _checked(lines, path)


def _require_python(table: dict, path: str) -> None:
    if not (wanted := table.get("requires-python", "")):
        return
    version = interpreter.of_runs().release
    try:
        fits = SpecifierSet(wanted).contains(version, prereleases=True)
    except (InvalidSpecifier, TypeError, AttributeError):
        fits = False
    if not fits:
        raise Refused(
            "%(file)s requires Python %(wanted)s; jobs have %(version)s",
            field=text.FIELD, file=path, wanted=str(wanted)[:50], version=version,
        )  # fmt: skip


def _checked(lines: list[str], path: str) -> str:
    wanted = "\n".join(lines)
    if len(wanted) > text.MAX_CHARS:
        raise Refused("%(file)s: at most %(most)s characters", field=text.FIELD, file=path, most=text.MAX_CHARS)
    _at(path, lambda: text.lines(wanted))
    return wanted


def _toml(source: str, path: str) -> dict:
    try:
        return tomllib.loads(source)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise Refused("%(file)s: not TOML: %(problem)s", field=text.FIELD, file=path, problem=str(problem)) from problem


def _at(path: str, check: Callable[[], object]) -> None:
    """Run a check of lines; name the file in what it refuses."""
    try:
        check()
    except Refused as refused:
        raise Refused("%(file)s: %(problem)s", field=text.FIELD, file=path, problem=refused.problem) from refused

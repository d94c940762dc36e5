"""The requirements of a version as they are given: lines of requirements.txt, or pyproject.toml with or without
uv.lock.
"""

from __future__ import annotations

from jobs.packages import finding, text
from kernel.errors import Refused

MARK = "\ufeff"  # at the beginning of files of some editors


def lines_of(requirements: str, pyproject: str, lock: str) -> str:
    """Return the requirements, one a line. Raises Refused for what is none, and for files that are not there."""
    requirements, pyproject, lock = (each.removeprefix(MARK) for each in (requirements, pyproject, lock))
    if bool(requirements.strip()) == bool(pyproject.strip()):
        raise Refused("give either requirements or a pyproject.toml", field=text.FIELD)
    if lock.strip() and not pyproject.strip():
        raise Refused("a uv.lock needs its pyproject.toml", field="lock")
    files = {finding.PROJECT: pyproject, finding.LOCK: lock}
    if pyproject.strip():
        requirements = finding.found("", lambda path: (files.get(path, "").strip() and files[path]) or None)
    if any(map(text.INCLUDE.fullmatch, text.lines(requirements))):
        raise Refused("-r is not accepted here; write the lines of the file", field=text.FIELD)
    lines = text.resolved(requirements, "", lambda path: "")
    if not lines:
        raise Refused("no packages are named", field=text.FIELD)
    return lines

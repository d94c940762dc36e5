"""The differences between two runs: their files line by line, arguments, environment variables, packages.

Everything is bounded: the time of a diff grows with the square of the number of lines, and users choose the files.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable
from itertools import zip_longest

from jobs.models import Job
from kernel import masking
from snapshots.manifest import Manifest

from . import capture, reading

MAX_FILES = 200
MAX_LINES = 2000  # that are compared: what is left between an equal beginning and an equal end
MAX_SECONDS = 2.0
CONTEXT = 3


def between(one: Job, two: Job) -> dict:
    """Return {settings, files, args, env, packages} with what differs. A file is {path, change, lines, note}."""
    recorded = [capture.environment_of(job) for job in (one, two)]
    packages = [environment["packages"] for environment in recorded if environment]
    env = [masking.masked(job.shown_env) for job in (one, two)]
    return {
        "settings": _values(*({"script": job.entry, "runtime": job.runtime, "image": job.image} for job in (one, two))),
        "files": _files(one, two),
        "args": _arguments(one, two),
        "env": _values(*env, one.env, two.env),
        "packages": _values(*packages) if len(packages) == 2 else [],  # of a job that has not started none are known
    }


def _values(old: dict, new: dict, real_old: dict | None = None, real_new: dict | None = None) -> list[dict]:
    """Return the names whose values differ: {name, old, new}, None for a name that one side does not have."""
    real_old, real_new = real_old or old, real_new or new
    names = sorted(name for name in {*real_old, *real_new} if real_old.get(name) != real_new.get(name))
    return [{"name": name, "old": old.get(name), "new": new.get(name)} for name in names]


def _arguments(one: Job, two: Job) -> list[dict]:
    """Return the arguments as a diff, one a line."""
    return differing(one.args, two.args) if one.args != two.args else []


def _files(one: Job, two: Job) -> list[dict]:
    old, new = (reading.manifest_of(job) or Manifest("") for job in (one, two))
    blobs = [{file.path: file for file in each.files} for each in (old, new)]
    end = time.monotonic() + MAX_SECONDS
    files = []
    for path in sorted({*blobs[0], *blobs[1]}):
        before, after = blobs[0].get(path), blobs[1].get(path)
        if before and after and before.blob == after.blob:
            continue
        change = "changed" if before and after else "added" if after else "removed"
        row = {"path": path, "change": change, "lines": [], "note": ""}
        if len(files) >= MAX_FILES or time.monotonic() > end:
            row["note"] = "uncompared"
        else:
            texts = [reading.text_of(job, path) if file else "" for job, file in ((one, before), (two, after))]
            row |= _compared(*texts)
        files.append(row)
    return files


def _compared(old: str | None, new: str | None) -> dict:
    if old is None or new is None:
        return {"note": "binary"}
    lines = differing(old.splitlines(), new.splitlines())
    if lines is None:
        return {"note": "long"}
    return {"lines": lines, "note": "" if lines else "ends"}  # only line ends or the mode differ


def differing(old: list[str], new: list[str]) -> list[dict] | None:
    """Return the differing lines with some context: {kind, old, new, text}, where old and new are line numbers. Return
    None for too many lines.
    """
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    cut = [each[max(0, start - CONTEXT) : len(each) - max(0, end - CONTEXT)] for each in (old, new)]
    if max(map(len, cut)) > MAX_LINES:
        return None
    return list(_rows(*cut, max(0, start - CONTEXT)))


def sides(lines: list[dict]) -> list[dict]:
    """Return the lines of a difference in pairs, {kind, old, new}: what was removed beside what was added."""
    pairs: list[dict] = []
    removed: list[dict] = []
    added: list[dict] = []

    def flush() -> None:
        for old, new in zip_longest(removed, added):
            pairs.append({"kind": "changed", "old": old, "new": new})
        removed.clear()
        added.clear()

    for line in lines:
        if line["kind"] in ("old", "new"):
            (removed if line["kind"] == "old" else added).append(line)
            continue
        flush()
        pairs.append({"kind": line["kind"], "old": line, "new": line})
    flush()
    return pairs


def _rows(old: list[str], new: list[str], offset: int) -> Iterable[dict]:
    for number, group in enumerate(difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT)):
        if number or offset or group[0][1] or group[0][3]:
            yield {"kind": "skip", "old": None, "new": None, "text": ""}
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                for index in range(old_to - old_from):
                    at = offset + 1 + index
                    yield {"kind": "same", "old": at + old_from, "new": at + new_from, "text": old[old_from + index]}
                continue
            for index in range(old_from, old_to):
                yield {"kind": "old", "old": offset + 1 + index, "new": None, "text": old[index]}
            for index in range(new_from, new_to):
                yield {"kind": "new", "old": None, "new": offset + 1 + index, "text": new[index]}

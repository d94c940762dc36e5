"""What of a notebook is known before it runs: whether it is one, and whether it can be executed."""

from __future__ import annotations

from typing import Any

from kernel import sanitize
from kernel.errors import Refused

FORMAT = 4
PYTHON = ("python", "python3", "ipython", "ipython3")
KINDS = ("code", "markdown", "raw")
MAX_BYTES = 64 << 20  # with its outputs; it is parsed when it is submitted and when it runs


def parsed(data: bytes, entry: str) -> dict[str, Any]:
    """Return the notebook of a file. Raises Refused, which says what is wrong with it."""
    try:
        found = sanitize.read_json(data.removeprefix(b"\xef\xbb\xbf"))
    except ValueError:
        raise Refused("%(entry)s is not a notebook: it is not JSON", field="entry", entry=entry)
    if not isinstance(found, dict) or not isinstance(found.get("nbformat"), int):
        raise Refused("%(entry)s is not a notebook: it does not say its nbformat", field="entry", entry=entry)
    if found["nbformat"] != FORMAT:
        raise Refused(
            "%(entry)s has nbformat %(version)s, not 4; open it in JupyterLab and save it again",
            field="entry", entry=entry, version=str(found["nbformat"])[:20],
        )  # fmt: skip
    cells = found.get("cells")
    if not isinstance(cells, list):
        raise Refused("%(entry)s is not a notebook: it has no list of cells", field="entry", entry=entry)
    for number, cell in enumerate(cells, 1):
        if not _is_cell(cell):
            raise Refused("%(entry)s: cell %(number)s is damaged", field="entry", entry=entry, number=number)
    return found


def need_executable(data: bytes, entry: str) -> None:
    """Raise Refused for a notebook that no run here could execute. `data` is its begin, of MAX_BYTES + 1 at most."""
    if len(data) > MAX_BYTES:
        raise Refused(
            "%(entry)s is larger than %(limit)s MiB: save it without its outputs",
            field="entry", entry=entry, limit=MAX_BYTES >> 20,
        )  # fmt: skip
    metadata = parsed(data, entry).get("metadata") or {}
    language = language_of(metadata)
    if language and language.lower() not in PYTHON:
        raise Refused(
            "%(entry)s is written in %(language)s; only notebooks in Python run as jobs",
            field="entry", entry=entry, language=language[:50],
        )  # fmt: skip


def language_of(metadata: object) -> str:
    """Return the language of a notebook's kernel, "" where it does not say."""
    for key, name in (("kernelspec", "language"), ("language_info", "name")):
        part = metadata.get(key) if isinstance(metadata, dict) else None
        if isinstance(part, dict) and isinstance(part.get(name), str) and part[name]:
            return part[name]
    return ""


def text_of(value: object) -> str:
    """Return a text of a notebook, which is a list of its lines or a whole."""
    if isinstance(value, list):
        return "".join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _is_cell(cell: object) -> bool:
    if not isinstance(cell, dict) or cell.get("cell_type") not in KINDS:
        return False
    source = cell.get("source", "")
    tags = (cell.get("metadata") or {}).get("tags") if isinstance(cell.get("metadata") or {}, dict) else 0
    lines = isinstance(source, list) and all(isinstance(line, str) for line in source)
    return (isinstance(source, str) or lines) and (tags is None or isinstance(tags, list))

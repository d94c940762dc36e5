"""A notebook as pages show it: code, texts and pictures. Nothing of it becomes markup of the page: HTML and SVG are
shown as text, pictures by their bytes, Markdown as that of notes.

Whoever has written the notebook chooses its sizes, so each part is bounded, and so is the whole.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from typing import Any, BinaryIO

from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from jobs.code import highlighting
from kernel import ansi, markdown, sanitize
from kernel.errors import Refused
from kernel.picture import image_kind, is_showable

from .reading import parsed, text_of

MAX_BYTES = 16 << 20  # that a page reads and escapes; a run executes larger ones, see reading.MAX_BYTES
MAX_REFRESHED = 1 << 20  # of a running job, whose page reads the notebook again with each refresh
MAX_CELLS, MAX_OUTPUTS = 500, 50  # of a notebook, of a cell
MAX_SOURCE, MAX_OUTPUT = 20_000, 20_000  # characters of one
MAX_TEXT, MAX_PICTURES = 1 << 20, 8 << 20  # characters of all that is shown
PICTURES = ("image/png", "image/jpeg")
TEXTS = ("text/plain", "text/markdown", "text/latex", "text/html", "image/svg+xml", "application/json")
MARKUP = {"text/html": "HTML", "image/svg+xml": "SVG"}
CUT = "\n…"


def shown(file: BinaryIO, name: str, limit: int = MAX_BYTES) -> dict[str, Any]:
    """Return what `jobs/_notebook.html` shows: `cells`, whether that is not all (`cut`), and why there is nothing:
    `problem`, or `large` where the file has more than `limit` bytes.
    """
    data = file.read(limit + 1)
    if len(data) > limit:
        return {"cells": [], "cut": False, "problem": "", "large": True}
    try:
        notebook = parsed(data, name)
    except Refused as refused:
        return {"cells": [], "cut": False, "problem": refused.problem, "large": False}
    view = _View()
    cells = [view.cell(number, cell) for number, cell in enumerate(notebook["cells"][:MAX_CELLS], 1)]
    return {"cells": cells, "cut": view.cut or len(cells) < len(notebook["cells"]), "problem": "", "large": False}


class _View:
    """What is still shown of a notebook while its cells are read."""

    def __init__(self):
        self.text, self.pictures, self.cut = MAX_TEXT, MAX_PICTURES, False

    def cell(self, number: int, cell: dict) -> dict[str, Any]:
        """Return a cell: Markdown as `html`, `code` with its `outputs`, anything else as `raw`."""
        source = self._bounded(text_of(cell.get("source")), MAX_SOURCE)
        view: dict[str, Any] = {"number": number, "kind": cell["cell_type"], "outputs": []}
        if cell["cell_type"] == "markdown":
            return {**view, "html": markdown.render(source)}
        if cell["cell_type"] == "raw":
            return {**view, "raw": source}
        count, outputs = cell.get("execution_count"), cell.get("outputs")
        outputs = [each for each in outputs if isinstance(each, dict)] if isinstance(outputs, list) else []
        self.cut = self.cut or len(outputs) > MAX_OUTPUTS
        return {
            **view,
            "count": count if isinstance(count, int) and 0 < count < 10**9 else "",
            "code": format_html_join("\n", "{}", ((line,) for line in highlighting.lines(source, "cell.py"))),
            "outputs": [self._output(each) for each in outputs[:MAX_OUTPUTS]],
            "failed": any(each.get("output_type") == "error" for each in outputs),
        }

    def _output(self, output: dict) -> dict[str, Any]:
        kind = output.get("output_type")
        if kind == "stream":
            return {"text": self._terminal(text_of(output.get("text"))), "stderr": output.get("name") == "stderr"}
        if kind == "error":
            lines = output.get("traceback")
            lines = [line for line in lines if isinstance(line, str)] if isinstance(lines, list) else []
            last = f"{text_of(output.get('ename'))}: {text_of(output.get('evalue'))}"
            return {"text": self._terminal("\n".join(lines) or last), "stderr": True}
        data = output.get("data")
        return self._data(data) if isinstance(data, dict) else {"text": ""}

    def _data(self, data: dict) -> dict[str, Any]:
        """Return the richest form that can be shown: a picture, else a text."""
        for kind in PICTURES:
            if kind in data and (address := self._picture(text_of(data[kind]))):
                return {"picture": address}
        for kind in TEXTS:
            if kind in data:
                value = data[kind]
                whole = text_of(value) if kind != "application/json" else json.dumps(value, indent=1)
                return {"text": self._terminal(whole), "markup": MARKUP.get(kind, "")}
        return {"text": self._terminal(", ".join(key for key in data if isinstance(key, str)))}

    def _picture(self, text: str) -> str:
        """Return a picture as a `data:` address, of the kind that its bytes have; "" for none."""
        if len(text) > self.pictures:
            self.cut = True
            return ""
        try:
            content = base64.b64decode(text.replace("\n", ""), validate=True)
        except (binascii.Error, ValueError):
            return ""
        with open(os.memfd_create("picture"), "w+b") as file:
            file.write(content)
            file.flush()
            kind = image_kind(file)
            if kind not in PICTURES or not is_showable(file):
                return ""
        self.pictures -= len(text)
        return f"data:{kind};base64,{base64.b64encode(content).decode()}"

    def _terminal(self, text: str) -> SafeString:
        return ansi.html(self._bounded(text, MAX_OUTPUT))

    def _bounded(self, text: str, most: int) -> str:
        most = min(most, self.text)
        if len(text) > most:
            self.cut = True
            text = text[:most] + CUT
        self.text -= min(len(text), most)
        return sanitize.text(text)

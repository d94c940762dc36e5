"""Writes the table of layers in docs/architecture.md: `python tools/architecture.py` (a test checks it)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mlp.tests import layers  # noqa: E402

PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- layers: written by tools/architecture.py -->", "<!-- end of layers -->"


def render(page: str) -> str:
    """Return the page with its table rewritten. Raises ValueError when the page lacks the markers."""
    whole = re.compile(re.escape(BEGIN) + r".*?" + re.escape(END), re.DOTALL)
    if not whole.search(page):
        raise ValueError(f"{PAGE} has no {BEGIN} … {END}")
    return whole.sub(lambda match: f"{BEGIN}\n{layers.table()}\n{END}", page)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))

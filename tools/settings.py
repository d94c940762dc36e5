"""Writes docs/settings.md from the declarations in mlp/settings.py and mlp/*_settings.py.

    python tools/settings.py

mlp/tests/test_settings_page.py fails while the page is not current.
"""

from __future__ import annotations

import sys
from pathlib import Path

BASE = Path(__file__).resolve().parent.parent
PAGE = BASE / "docs" / "settings.md"
HEADER = """\
# Settings

<!-- Written by tools/settings.py from mlp/settings.py, mlp/*_settings.py; change it there. -->

All settings are environment variables, read when the platform starts: `MLP_PORT_BASE=31000 make up`. An empty variable
counts as unset. A value that cannot be used stops the start with a message that names the variable.
Administrators see the effective settings, without secrets, under `/admin/`, "Effective settings".

`{root}` is `MLP_ROOT`, `{base}` is `MLP_PORT_BASE`. MiB are units of 1,048,576 bytes.
"""


def render(sections) -> str:
    """Return the page for a list of kernel.environment.Section."""
    parts = [HEADER]
    for section in sections:
        rows = ["", f"## {section.title}", "", "| variable | default | unit | meaning |", "|---|---|---|---|"]
        rows += [
            f"| `{setting.name}` | {shown(setting.default)} | {setting.unit} | {setting.help} |"
            for setting in section.settings.values()
        ]
        parts.append("\n".join(rows) + "\n")
    return "".join(parts)


def shown(default: str) -> str:
    """Return the default as a table cell: a value as code, a sentence as it is."""
    if not default:
        return "none"
    return default if " " in default or default.startswith("`") else f"`{default}`"


def main() -> int:
    sys.path.insert(0, str(BASE))
    from mlp.settings import SECTIONS

    PAGE.write_text(render(SECTIONS))
    return 0


if __name__ == "__main__":
    sys.exit(main())

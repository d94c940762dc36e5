"""What is printed: results on standard output, as JSON, tables or lines; notes on standard error."""

from __future__ import annotations

import json
import shutil
import sys
import unicodedata

from .texts import tr


def fitting(text: str, stream) -> str:
    """Return the text as the stream can show it: without control characters, and in its encoding."""
    encoding = getattr(stream, "encoding", None) or "ascii"
    clean = "".join(char if char.isprintable() else "?" for char in text)
    return clean.encode(encoding, "backslashreplace").decode(encoding)


def note(line: str) -> None:
    """Print a line on standard error."""
    sys.stderr.write(fitting(line, sys.stderr) + "\n")
    sys.stderr.flush()


def line(text: str) -> None:
    """Print a line on standard output."""
    print(fitting(text, sys.stdout))


def text(lines: str) -> None:
    """Print text as it is, in the encoding of standard output."""
    encoding = sys.stdout.encoding or "ascii"
    sys.stdout.write(lines.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def width(text: str) -> int:
    """Return the columns that the text takes on a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, most: int) -> str:
    """Return the text, shortened to that many columns."""
    if width(text) <= most:
        return text
    kept = ""
    for char in text:
        if width(kept + char) > most - 1:
            break
        kept += char
    return kept + "…"


def table(rows: list, columns) -> None:
    """Print rows of objects, as `table_lines` has them."""
    for each in table_lines(rows, columns):
        line(each)


def table_lines(rows: list, columns) -> list:
    """Return rows of objects as lines: `columns` are (heading, function of the object). The last column is cut to the
    terminal's width; nothing is cut where the output is no terminal.
    """
    cells = [[heading for heading, _ in columns]]
    cells += [[fitting(str(value(row)), sys.stdout) for _, value in columns] for row in rows]
    widths = [max(width(row[index]) for row in cells) for index in range(len(columns))]
    if sys.stdout.isatty():
        before = sum(widths[:-1]) + 2 * (len(widths) - 1)
        widths[-1] = max(8, min(widths[-1], shutil.get_terminal_size().columns - before - 1))
        cells = [[*row[:-1], cut(row[-1], widths[-1])] for row in cells]
    lines = []
    for row in cells:
        padded = (cell + " " * (most - width(cell)) for cell, most in zip(row, widths))  # noqa: B905 (3.10)
        lines.append("  ".join(padded).rstrip())
    return lines


def screen(lines: list) -> None:
    """Show the lines from the top of the terminal, in the place of what was shown before; what does not fit is cut."""
    size = shutil.get_terminal_size()
    kept = [cut(fitting(each, sys.stdout), max(1, size.columns - 1)) for each in lines[: max(1, size.lines - 1)]]
    sys.stdout.write("\x1b[H" + "".join(f"{each}\x1b[K\n" for each in kept) + "\x1b[J")
    sys.stdout.flush()


def result(options, value) -> None:
    """Print what a verb has returned: JSON with --json, else its own form or `name: value` lines."""
    if value is None:
        return
    if options.json:
        print(json.dumps(value, ensure_ascii=True))
    elif getattr(options, "show", None):
        options.show(value)
    elif isinstance(value, list):
        for each in value:
            line(str(each))
    else:
        for name, each in value.items():
            if each not in (None, ""):
                line(tr("{name}: {value}", name=name, value=each))

"""The shape of a log line: what stays the same when the same program runs again. Numbers, times, ids and progress bars
differ in any two runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Each begins with few characters, so that a search skips all others: megabytes are replaced in a moment.
ID = re.compile(r"\b[0-9a-f]{8,}(?:-[0-9a-f]{4,12})*\b")
BAR = re.compile(r"\[[=#>.\- ]{3,}\]|[=#>.\-]{4,}|[▏▎▍▌▋▊▉█░▒▓━╸╺─]+")
NUMBER = re.compile(r"[0-9](?:x[0-9a-fA-F]+|[0-9]*(?:[.:,][0-9]+)*(?:[eE][+-]?[0-9]+)?)")
UNIT = re.compile(r"# ?(?:ns|us|µs|ms|s|min|m|h|d|[KMGTP]i?B?|B)\b")
BLANK = re.compile(r"[ \t]{2,}|\t")
BEFORE_A_SIGN = " =:([,"


def shapes(lines: Iterable[str]) -> list[str]:
    """Return the lines with what differs in any two runs replaced, and single blanks; empty for a line of blanks."""
    text = NUMBER.sub("#", BAR.sub(" ", ID.sub("#", "\n".join(lines))))
    for character in BEFORE_A_SIGN:
        text = text.replace(f"{character}-#", f"{character}#")
    return [line.strip() for line in BLANK.sub(" ", UNIT.sub("#", text)).split("\n")]

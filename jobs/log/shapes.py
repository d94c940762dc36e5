"""The shape of a log line: what stays the same when the same program runs again. Numbers, times, ids and progress bars
differ in any two runs.
"""

from __future__ import annotations

import re

# Times, durations, addresses and process ids among them: "0.25", "-1e-3", "12:30:01.5", "1,024", "0x7f30".
NUMBER = re.compile(r"0x[0-9a-fA-F]+|(?:(?<=[\s=:(\[,])-)?\d+(?:[.:,]\d+)*(?:[eE][+-]?\d+)?")
ID = re.compile(r"\b(?=[0-9a-f-]*\d)(?=[0-9a-f-]*[a-f])[0-9a-f]{8,}(?:-[0-9a-f]{4,12})*\b")
BAR = re.compile(r"\[[=#>.\- ]{3,}\]|[▏▎▍▌▋▊▉█░▒▓━╸╺─]+|[=#>.\-]{4,}")
UNIT = re.compile(r"# ?(?:ns|us|µs|ms|s|min|m|h|d|[KMGTP]i?B?|B)\b")
BLANK = re.compile(r"\s+")


def shape(line: str) -> str:
    """Return the line with what differs in any two runs replaced, and single blanks; empty for a line of blanks."""
    line = NUMBER.sub("#", BAR.sub(" ", ID.sub("#", line)))
    return BLANK.sub(" ", UNIT.sub("#", line)).strip()

"""Fields of forms that submit jobs, as what REST would have sent: durations, arguments, environment variables."""

from __future__ import annotations

import math
import shlex

from jobs.models.submission import MAX_PRIORITY
from jobs.summaries import labels
from kernel.errors import Refused
from kernel.filters import values
from kernel.filters.grammar import FilterError, Literal


def seconds(text: str) -> int:
    """Parse a duration: seconds, or units as in 90m or 1h30m. Raises Refused."""
    try:
        return math.ceil(values.duration(Literal(text, False, 0)).total_seconds())
    except FilterError as problem:
        raise Refused(problem.what, field="timeout")


def arguments(text: str) -> list[str]:
    """Parse arguments as a shell does. Raises Refused."""
    try:
        return shlex.split(text)
    except ValueError:
        raise Refused("a quotation mark is not closed", field="args")


def variables(text: str) -> dict[str, str]:
    """Parse one `NAME=value` a line. Raises Refused."""
    variables = {}
    for line in text.splitlines():
        if line.strip():
            name, equals, value = line.partition("=")
            if not equals:
                raise Refused("each line must be NAME=value", field="env")
            variables[name.strip()] = value
    return variables


def tags(text: str) -> dict[str, str]:
    """Return the tags of a text such as `baseline, team=vision`. Raises Refused."""
    pairs = (part.partition("=") for part in text.split(",") if part.strip())
    return labels.tags({name.strip(): value.strip() for name, _equals, value in pairs})


def priority(text: str) -> int:
    """Return the priority of a text. Raises Refused."""
    try:
        number = int(text)
    except ValueError:
        number = None
    if number is None or abs(number) > MAX_PRIORITY:
        raise Refused("must be a whole number from -100 to 100", field="priority")
    return number

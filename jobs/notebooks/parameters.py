"""The parameters of a notebook: a job's arguments `--name value` or `--name=value`, read as papermill's -p does."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

from kernel.errors import Refused

OPTION = re.compile(r"--?([^\s=-][^\s=]*)(?:=(.*))?", re.DOTALL)
WORDS = {"True": True, "False": False, "None": None}
Value = bool | int | float | str | None


def of_arguments(args: Iterable[str]) -> dict[str, Value]:
    """Return the parameters by name; of several values of a name the last. A dash in a name is an underscore.

    Raises Refused for what is no pair of a name and a value.
    """
    values: dict[str, Value] = {}
    waiting = iter(args)
    for arg in waiting:
        match = OPTION.fullmatch(arg)
        if match is None:
            raise Refused(
                "a notebook takes parameters such as --lr 0.1; %(argument)s is none", field="args", argument=arg[:100]
            )
        name, text = match[1].replace("-", "_"), match[2]
        if not name.isidentifier() or keyword.iskeyword(name):
            raise Refused("%(name)s is not the name of a variable", field="args", name=match[1][:100])
        if text is None:
            text = next(waiting, None)
        if text is None or (text.startswith("--") and match[2] is None):
            raise Refused("the parameter %(name)s has no value", field="args", name=match[1][:100])
        values[name] = value_of(text)
    return values


def value_of(text: str) -> Value:
    """Return a value as papermill reads it: True, False, None, a whole number, a number, else a text."""
    if text in WORDS:
        return WORDS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text

"""Amounts as people read them."""

from __future__ import annotations

import math

from django.utils.formats import number_format

SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def count(number: int, noun: str) -> str:
    """Return a count in the English of commands, which are not translated: `1 file`, `2 files`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def memory(mebi: int) -> str:
    """Return an amount of memory, given in MiB: `512 MiB`, `1.5 GiB`."""
    if mebi < 1024:
        return f"{number_format(mebi, 0)} MiB"
    gibi = round(mebi / 1024, 1)
    digits = 0 if gibi >= 100 or gibi == int(gibi) else 1
    return f"{number_format(round(gibi, digits), digits)} GiB"


def size(number: float | None) -> str:
    """Return an amount of bytes: `512 B`, `1.5 GiB`; "" for None."""
    if number is None or number == "":
        return ""
    value, unit = float(number), 0
    while abs(value) >= 1024 and unit < len(SIZES) - 1:
        value, unit = value / 1024, unit + 1
    if unit and abs(round(value, 1)) >= 1024 and unit < len(SIZES) - 1:  # 1023.97 KiB are 1 MiB
        value, unit = value / 1024, unit + 1
    digits = 0 if unit == 0 or abs(value) >= 100 or round(value, 1) == int(round(value, 1)) else 1
    return f"{number_format(round(value, digits), digits)} {SIZES[unit]}"


def short(number: float) -> str:
    """Return a number with about four significant digits; very large and small ones in scientific notation. Whole
    numbers are shown in full, as in charts (mlp/static/mlp/charts/format.js).
    """
    number = float(number)
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else ("∞" if number > 0 else "−∞")
    size = abs(number)
    if number.is_integer() and size < 1e15:
        return number_format(int(number), force_grouping=size >= 10000)
    if size and not 0.001 <= size < 100000:
        return f"{number:.2e}"
    rounded = float(f"{number:.4g}")
    return number_format(int(rounded) if rounded.is_integer() else rounded)

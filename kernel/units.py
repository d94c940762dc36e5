"""Amounts as people read them."""

from __future__ import annotations

from django.utils.formats import number_format


def memory(mebi: int) -> str:
    """Return an amount of memory, given in MiB: `512 MiB`, `1.5 GiB`."""
    if mebi < 1024:
        return f"{number_format(mebi, 0)} MiB"
    gibi = round(mebi / 1024, 1)
    digits = 0 if gibi >= 100 or gibi == int(gibi) else 1
    return f"{number_format(round(gibi, digits), digits)} GiB"

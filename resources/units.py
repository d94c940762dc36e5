"""The four amounts in the units of the rows, and as text. Used by tcc, limits, books and pages."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Decimal

from kernel.errors import Refused

from .models import KINDS

UNITS = {"gpu": "", "cpu": "", "ram": " MiB", "rom": " bytes"}
MICRO = Decimal("0.000001")
MAX_CPU = Decimal(10) ** 8 - MICRO
MAX_INT = 2**63 - 1


def amounts(*, gpu=0, cpu=0, ram=0, rom=0) -> dict:
    """Return the amounts as they are stored: integers, and cpu rounded to a millionth of a core.

    Rounding makes 0.1 + 0.2 equal to 0.3, so that a release names what its request named. Raises Refused for amounts
    that no column could hold: negative, not finite, far too large.
    """
    if not math.isfinite(cpu) or not 0 <= cpu <= MAX_CPU:
        raise Refused("must be %(low)s to %(high)s", field="cpu", low=0, high=f"{MAX_CPU:f}")
    stored = {
        "gpu": int(gpu),
        "cpu": Decimal(str(cpu)).quantize(MICRO, ROUND_HALF_EVEN),
        "ram": int(ram),
        "rom": int(rom),
    }
    for kind, value in stored.items():
        if kind != "cpu" and not 0 <= value <= MAX_INT:
            raise Refused("must be %(low)s to %(high)s", field=kind, low=0, high=MAX_INT)
    return stored


def zero(kind: str):
    """Return zero in the type of this kind."""
    return Decimal(0) if kind == "cpu" else 0


def with_unit(kind: str, value) -> str:
    """Format an amount with its unit: `2.5`, `512 MiB`, `1024 bytes`."""
    number = f"{value.normalize():f}" if isinstance(value, Decimal) else str(value)
    return number + UNITS[kind]


def kinds_of(values: dict, suffix: str = "") -> dict:
    """Return the four amounts out of a query's row, whose columns end in `suffix`."""
    return {kind: values[kind + suffix] or zero(kind) for kind in KINDS}

"""Grades of evaluations in templates."""

from __future__ import annotations

import math

from django import template
from django.utils.formats import number_format
from django.utils.translation import gettext_lazy as _

register = template.Library()

LONG = 1e12  # from there on a number is written with an exponent
VERDICTS = {"improved": _("Improved"), "regressed": _("Regressed"), "changed": _("Changed")}


@register.filter
def grade(number: float | None) -> str:
    """Format a mean with four significant digits; a dash for none."""
    if number is None or number == "":
        return "–"
    if math.isinf(number):  # a difference of two that are as far apart as numbers can be
        return "∞" if number > 0 else "-∞"
    return number_format(round(number)) if 1e4 <= abs(number) < LONG else number_format(f"{number:.4g}")


@register.filter
def change(number: float | None) -> str:
    """Format a difference with its sign; a dash for none."""
    return "–" if number is None else f"{'+' if number > 0 else ''}{grade(number)}"


@register.filter
def verdict(value: str) -> str:
    """Return the word for how a value differs from an older one."""
    return str(VERDICTS.get(value, ""))

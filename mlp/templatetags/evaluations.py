"""Grades of evaluations in templates."""

from __future__ import annotations

from django import template
from django.utils.formats import number_format
from django.utils.translation import gettext_lazy as _

register = template.Library()

VERDICTS = {"improved": _("Improved"), "regressed": _("Regressed"), "changed": _("Changed")}


@register.filter
def grade(number: float | None) -> str:
    """Format a mean with four significant digits; a dash for none."""
    return (
        "–"
        if number is None or number == ""
        else number_format(f"{number:.4g}" if abs(number) < 1e4 else round(number))
    )


@register.filter
def change(number: float | None) -> str:
    """Format a difference with its sign; a dash for none."""
    return "–" if number is None else f"{'+' if number > 0 else ''}{grade(number)}"


@register.filter
def verdict(value: str) -> str:
    """Return the word for how a value differs from an older one."""
    return str(VERDICTS.get(value, ""))

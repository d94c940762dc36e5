"""Times, durations and cost of traces in templates."""

from __future__ import annotations

from datetime import UTC, datetime

from django import template
from django.utils.formats import number_format
from django.utils.translation import gettext as _

register = template.Library()


@register.filter
def moment(ns: int) -> datetime | None:
    """Return the time of so many nanoseconds since 1970; None for none."""
    return datetime.fromtimestamp(ns // 10**9, UTC) if ns else None


@register.filter
def lasted(ns: int | None) -> str:
    """Format a duration of nanoseconds, such as `820 ms` or `1.25 s`; a dash for an unknown one."""
    return lasted_s(None if ns is None else ns / 1e9)


@register.filter
def lasted_s(seconds: float | None) -> str:
    """Format a duration of seconds; a dash for an unknown one."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return _("%(count)s ms") % {"count": number_format(seconds * 1000, 1 if seconds < 0.1 else 0)}
    return _("%(count)s s") % {"count": number_format(seconds, 2 if seconds < 100 else 0)}


@register.filter
def cost(trace) -> str:
    """Format the cost of a trace; `unknown` where it has tokens and no price, a dash where there is nothing to pay."""
    if trace.cost is None:
        return _("unknown") if trace.tokens else "–"
    return f"${number_format(trace.cost, 2 if trace.cost >= 1 else 6)}"


@register.filter
def dotted(number: float) -> str:
    """Format a number for an attribute of SVG, with a point in any language."""
    return f"{number:g}"

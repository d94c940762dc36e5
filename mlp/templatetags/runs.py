"""Filters for the table of runs: `{% load runs %}`."""

from __future__ import annotations

from django import template
from django.http import QueryDict

from jobs.states import WORDS
from tracking.runs.columns import FIXED, Column

register = template.Library()


@register.filter
def split(text: str) -> list[str]:
    """Return the words of a text."""
    return text.split()


@register.filter
def entry(query: QueryDict, name: str) -> str:
    """Return a parameter of the address."""
    return query.get(name, "")


@register.filter
def entries(query: QueryDict, name: str) -> list[str]:
    """Return all values of a parameter of the address."""
    return query.getlist(name)


@register.filter
def column_title(key: str) -> str:
    """Return the title of a column that every run has."""
    return str(FIXED[key])


@register.filter
def group_value(value, column: Column) -> str:
    """Return the value of a group of runs for display."""
    if column.key == "state":
        return str(WORDS.get(value, value))
    return ", ".join(value) if isinstance(value, list) else str(value)


@register.filter
def undo_of(tags: str) -> str:
    """Return the time by which the action of a message can be undone; "" if it cannot."""
    return next((tag.removeprefix("undo-") for tag in (tags or "").split() if tag.startswith("undo-")), "")


@register.filter
def restored_by(tags: str) -> list[str]:
    """Return the kind and the name of the object that a message's action has moved to the trash; [] for none."""
    restored = next((tag for tag in (tags or "").split() if tag.startswith("restore-")), "")
    return restored.removeprefix("restore-").split("/", 1) if restored else []


@register.filter
def tags_text(tags: dict) -> str:
    """Return tags as text for a form: `baseline, team=vision`."""
    return ", ".join(f"{name}={value}" if value else name for name, value in tags.items())

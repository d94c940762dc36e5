"""Validation of projects' names, tags, groups, notes and colours. Each function returns the value or raises Refused."""

from __future__ import annotations

import re

from jobs.models import COLOURS, Project
from kernel.errors import Refused
from kernel.sanitize import UNSTORABLE

MAX_TAGS = 100
MAX_KEY, MAX_VALUE = 250, 8000
MAX_NAME = 500
MAX_GROUP = 100
MAX_NOTES = 64 << 10
MAX_VIEW = 100
# For schemas: the characters of a line, and of its ends; that no part of a path is empty, "." or "..".
INSIDE, EDGE = r"[^\x00-\x1f\x7f\u2028\u2029]", r"[^\s\x00-\x1f\x7f\x85\u2028\u2029]"

PARTS = r"(?!\.{1,2}(/|$))(?!/\.{0,2}(/|$))(?!.+/\.{0,2}(/|$))"

_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]")
_KEY = re.compile(r"""[^=,"'`\x00-\x1f\x7f\u2028\u2029]+""")


def tags(value, field: str = "tags") -> dict[str, str]:
    """Return the tags as an object; a list of labels is an object with empty values."""
    if isinstance(value, list):
        value = {label: "" for label in value if isinstance(label, str)} if len(value) <= MAX_TAGS else None
    if not isinstance(value, dict) or len(value) > MAX_TAGS:
        raise Refused(
            "must be an object of at most %(limit)s strings, or a list of labels", field=field, limit=MAX_TAGS
        )
    for key, text in value.items():
        tag(key, field)
        if not isinstance(text, str) or len(text) > MAX_VALUE or UNSTORABLE.search(text):
            raise Refused("the value of %(name)s must be a text of at most %(limit)s characters", field=field, name=key,
                          limit=MAX_VALUE)  # fmt: skip
    return value


def tag(key: str, field: str = "tags") -> str:
    """Return the name of a tag."""
    if not isinstance(key, str) or not key.strip() or key != key.strip() or len(key) > MAX_KEY:
        raise Refused("a tag has 1 to %(limit)s characters and no space around them", field=field, limit=MAX_KEY)
    if not _KEY.fullmatch(key) or UNSTORABLE.search(key):
        raise Refused("a tag must not contain quotation marks, commas, = or control characters", field=field)
    return key


def project_name(value: str, field: str = "project") -> str:
    """Return the name of a project, which is part of its address."""
    _line(value, field, MAX_NAME)
    if {"", ".", ".."} & set(value.removeprefix("/").split("/")):
        raise Refused("must not contain '//', end in '/' or have '.' or '..' as a part", field=field)
    return value


def project_name_from(title: str) -> str:
    """Return the name that a title gives a project: the title itself, without the parts that no name can have."""
    parts = (part.strip() for part in title.split("/"))
    return "/".join(part for part in parts if part not in ("", ".", "..")) or Project.untitled


def view_name(value: str, field: str = "name") -> str:
    """Return the name of a saved view."""
    return _line(value, field, MAX_VIEW)


def comparison_name(value: str, field: str = "name") -> str:
    """Return the name of a saved comparison, which stands in its address."""
    _line(value, field, MAX_VIEW)
    if "/" in value or value in (".", ".."):
        raise Refused("must not contain '/' and not be '.' or '..'", field=field)
    return value


def group_name(value: str, field: str = "group") -> str:
    """Return the name of a group; an empty name means no group."""
    return _line(value, field, MAX_GROUP) if value != "" else value


def colour(value: int | None, field: str = "colour") -> int:
    """Return the number of a colour of charts."""
    if value is None or not 0 <= value < COLOURS:
        raise Refused("must be a number from %(low)s to %(high)s", field=field, low=0, high=COLOURS - 1)
    return value


def notes(value: str, field: str = "notes") -> str:
    """Return a Markdown text."""
    if not isinstance(value, str) or UNSTORABLE.search(value):
        raise Refused("must be valid text", field=field)
    if len(value) > MAX_NOTES:
        raise Refused("must have at most %(limit)s characters", field=field, limit=MAX_NOTES)
    return value


def _line(value: str, field: str, most: int) -> str:
    if not isinstance(value, str) or UNSTORABLE.search(value):
        raise Refused("must be valid text", field=field)
    if not 1 <= len(value) <= most or value != value.strip() or _CONTROL.search(value):
        raise Refused(
            "must be one line of 1 to %(limit)s characters without space around them", field=field, limit=most
        )
    return value

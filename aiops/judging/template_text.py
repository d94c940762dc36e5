"""The text of a template as DRAIN writes it."""

from __future__ import annotations

import re

WILD = "<*>"


def matches(template: str, text: str) -> bool:
    """Return whether a template matches the text; WILD in it matches any words."""
    if WILD in text or not template.replace(WILD, "").strip():
        return False
    return re.fullmatch(".+".join(map(re.escape, template.split(WILD))), text) is not None


def is_like(template: str, other: str) -> bool:
    """Return whether every text of the other template is one of the template."""
    return template == other or matches(template, other.replace(WILD, "*"))

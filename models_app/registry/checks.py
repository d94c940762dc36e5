"""What names, tags, aliases and descriptions of the registry may be; each function returns the value or raises Refused.

The limits are MLflow's, so that its clients can store here what they can store there.
"""

from __future__ import annotations

import re

from kernel.errors import Refused
from kernel.sanitize import UNSTORABLE
from models_app.models import RegisteredModel, Stage
from models_app.models.registry import MAX_ALIAS, MAX_NAME

MAX_TAGS = 1000
MAX_KEY, MAX_VALUE = 250, 100_000
MAX_DESCRIPTION = 100_000
LATEST = "latest"  # the alias of the newest version, which nobody sets

_ALIAS = re.compile(r"[\w-]+")
_NUMBERED = re.compile(r"[vV]\d+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]")


def name(value, field: str = "name") -> str:
    """Return the name of a registered model, which stands in addresses as one part."""
    if not isinstance(value, str) or UNSTORABLE.search(value):
        raise Refused("must be valid text", field=field)
    if not 1 <= len(value) <= MAX_NAME or not value.strip() or _CONTROL.search(value):
        raise Refused("must be a line of 1 to %(limit)s characters", field=field, limit=MAX_NAME)
    if set(value) & set("/:") or value in (".", ".."):
        raise Refused("must not contain '/' or ':', nor be '.' or '..'", field=field)
    return value


def name_from(title: str) -> str:
    """Return the name that a title gives a registered model: the title without / and :."""
    name = re.sub("[/:]", "-", title)
    return name if name not in ("", ".", "..") else RegisteredModel.untitled


def alias(value, field: str = "alias") -> str:
    """Return the name of an alias that can be set."""
    alias_asked(value, field)
    if value.lower() == LATEST or _NUMBERED.fullmatch(value):
        raise Refused("%(alias)s is reserved", field=field, alias=value)
    return value


def alias_asked(value, field: str = "alias") -> str:
    """Return the name of an alias that is looked up."""
    if not isinstance(value, str) or UNSTORABLE.search(value) or not _ALIAS.fullmatch(value):
        raise Refused("must be of letters, digits, - and _", field=field)
    if len(value) > MAX_ALIAS:
        raise Refused("must have at most %(limit)s characters", field=field, limit=MAX_ALIAS)
    return value


def tag(key, value="", field: str = "tags") -> tuple[str, str]:
    """Return the key and the value of a tag."""
    if not isinstance(key, str) or not key.strip() or len(key) > MAX_KEY or UNSTORABLE.search(key):
        raise Refused("a tag has a name of 1 to %(limit)s characters", field=field, limit=MAX_KEY)
    if not isinstance(value, str) or len(value) > MAX_VALUE or UNSTORABLE.search(value):
        raise Refused(
            "the value of %(name)s must be a text of at most %(limit)s characters",
            field=field, name=key, limit=MAX_VALUE,
        )  # fmt: skip
    return key, value


def tags(value, field: str = "tags") -> dict[str, str]:
    """Return an object of tags."""
    if not isinstance(value, dict) or len(value) > MAX_TAGS:
        raise Refused("must be an object of at most %(limit)s strings", field=field, limit=MAX_TAGS)
    return dict(tag(key, text, field) for key, text in value.items())


def description(value, field: str = "description") -> str:
    """Return a description in Markdown."""
    if not isinstance(value, str) or UNSTORABLE.search(value):
        raise Refused("must be valid text", field=field)
    if len(value) > MAX_DESCRIPTION:
        raise Refused("must have at most %(limit)s characters", field=field, limit=MAX_DESCRIPTION)
    return value


def line(value, field: str, most: int) -> str:
    """Return a text of at most `most` characters."""
    if not isinstance(value, str) or UNSTORABLE.search(value):
        raise Refused("must be valid text", field=field)
    if len(value) > most:
        raise Refused("must have at most %(limit)s characters", field=field, limit=most)
    return value


def stage(value, field: str = "stage") -> str:
    """Return the stage that is meant, written in any case."""
    for choice in Stage.values:
        if isinstance(value, str) and value.lower() == choice.lower():
            return choice
    raise Refused("must be one of %(choices)s", field=field, choices=", ".join(Stage.values))

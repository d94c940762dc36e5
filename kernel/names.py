"""The value patterns of the contract (section 1), one function each. Used by serializers, pages and the data service.

Each returns the value, or raises Refused naming the field.
"""

from __future__ import annotations

import re

from .errors import Refused

NAME = r"^[a-z]{1,50}$"
DATASET_NAME = r"^(?!\.)[a-z.]{1,50}$"
ENTRY = r"^[A-Za-z0-9._/-]{1,200}$"
PLATFORM = "platform"  # nobody's user name: what is the platform's own goes by it
REQUEST_ID = r"^[A-Za-z0-9._:-]{1,64}$"


def _matches(pattern: str, field: str, value: str, words: str) -> str:
    # fullmatch, since `$` also matches before a final newline
    if not isinstance(value, str) or not re.fullmatch(pattern.strip("^$"), value):
        raise Refused(f"{field}: {words}")
    return value


def name(value: str, field: str = "name") -> str:
    return _matches(NAME, field, value, "must be 1 to 50 letters a to z")


def dataset_name(value: str, field: str = "name") -> str:
    return _matches(DATASET_NAME, field, value, "must be 1 to 50 of a to z and dots, and not begin with a dot")


def entry(value: str, field: str = "entry") -> str:
    """A relative path below the user's `.home`."""
    _matches(ENTRY, field, value, "must be a relative path of 1 to 200 of A-Z a-z 0-9 . _ / -")
    parts = value.split("/")
    if "" in parts or ".." in parts or "." in parts:
        raise Refused(f"{field}: must be a relative path without '..', '.' or empty parts")
    return value


def request_id(value: str, field: str = "id") -> str:
    return _matches(REQUEST_ID, field, value, "must be 1 to 64 of A-Z a-z 0-9 . _ : -")


def file_path(value: str, field: str = "path") -> str:
    """A file's path inside a dataset: each part 1 to 255 bytes, no `..`, no control characters, no leading `/`."""
    if not isinstance(value, str) or not value or value.startswith("/"):
        raise Refused(f"{field}: must be a relative path")
    for part in value.split("/"):
        if part in {"", ".", ".."}:
            raise Refused(f"{field}: must have no empty part, '.' or '..'")
        if any(ord(char) < 32 or ord(char) == 127 for char in part):
            raise Refused(f"{field}: must have no control characters")
        try:
            size = len(part.encode())
        except UnicodeEncodeError:
            raise Refused(f"{field}: must be valid UTF-8")
        if size > 255:
            raise Refused(f"{field}: each part must have at most 255 bytes")
    return value

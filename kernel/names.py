"""The value patterns of REST, one function each. Used by serializers, pages and the data service.

Each returns the value, or raises Refused naming the field.
"""

from __future__ import annotations

import re
import unicodedata

from .errors import Refused
from .messages import Message

NAME = r"^[a-z]{1,50}$"
DATASET_NAME = r"^(?!\.)[a-z.]{1,50}$"
JOB_REFERENCE = r"^([a-z]{1,50}/)?[a-z]{1,50}$"
VERSION = r"[1-9][0-9]{0,5}|[0-9a-f]{12,64}"  # a number, or the beginning of a checksum
DATASET_OF_JOB = rf"^([a-z]{{1,50}}/)?(?!\.)[a-z.]{{1,50}}(@({VERSION}))?$"
LETTERS_OF_ENTRY = r"[A-Za-z0-9._/-]{1,200}"
ENTRY = rf"^(?!(.*/)?\.{{0,2}}(/|$)){LETTERS_OF_ENTRY}$"
PLATFORM = "platform"  # owner of the platform's own objects; no user can have this name
FILE_PART = r"(?!\.{1,2}(/|$))[^/\x00-\x1f\x7f]{1,255}"  # of a path; the limit is in bytes
FILE_PATH = rf"^{FILE_PART}(/{FILE_PART})*$"
REQUEST_ID = r"^[A-Za-z0-9._:-]{1,64}$"
MAX_TITLE = 200
CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # in a file's path
# Control characters, line separators, and what changes the direction of the text after it.
CONTROLS = r"\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
TITLE = rf"^[^{CONTROLS}]{{0,{MAX_TITLE}}}$"
INVISIBLE = {"Cc", "Cf", "Zs", "Zl", "Zp"}  # categories of Unicode


def _matches(pattern: str, field: str, value: str, problem: Message) -> str:
    # fullmatch, since `$` also matches before a final newline
    if not isinstance(value, str) or not re.fullmatch(pattern.strip("^$"), value):
        raise Refused(problem, field=field)
    return value


def name(value: str, field: str = "name") -> str:
    return _matches(NAME, field, value, Message("must be 1 to 50 lowercase letters a to z"))


def title(value: str, field: str = "title") -> str:
    """Return a title without the white space around it; "" for a text in which nothing is visible."""
    value = value.strip()
    if len(value) > MAX_TITLE:
        raise Refused("must have at most %(limit)s characters", field=field, limit=MAX_TITLE)
    if re.search(f"[{CONTROLS}]", value):
        raise Refused("must not have control characters", field=field)
    return "" if all(unicodedata.category(char) in INVISIBLE for char in value) else value


def letters_of(text: str) -> str:
    """Return the letters a to z of a text, from which a name can be made: "Größe 7" has `groe`."""
    return re.sub("[^a-z]", "", unicodedata.normalize("NFKD", text.lower()))


def dataset_name(value: str, field: str = "name") -> str:
    problem = Message("must be 1 to 50 characters a to z and dots, and must not begin with a dot")
    return _matches(DATASET_NAME, field, value, problem)


def dataset_of_job(value: str, field: str = "datasets") -> str:
    """Return the name of one of the user's datasets, or `owner/name` for one that is shared; `@` and a number, or 12 or
    more digits of a checksum, name one of its versions.
    """
    problem = Message(
        "must be the name of a dataset, or owner/name for one that is shared with you; name@2 for a version"
    )
    return _matches(DATASET_OF_JOB, field, value, problem)


def job_reference(value: str, field: str = "code_from") -> str:
    """Return the name of one of the user's jobs, or `owner/name` for one that is shared."""
    problem = Message("must be the name of a job, or owner/name for one that is shared with you")
    return _matches(JOB_REFERENCE, field, value, problem)


def entry(value: str, field: str = "entry") -> str:
    """Return a relative path below the user's `.home`."""
    problem = Message("must be a relative path of 1 to 200 characters A-Z a-z 0-9 . _ / -")
    _matches(LETTERS_OF_ENTRY, field, value, problem)
    parts = value.split("/")
    if "" in parts or ".." in parts or "." in parts:
        raise Refused("must be a relative path without '..', '.' or empty parts", field=field)
    return value


def request_id(value: str, field: str = "id") -> str:
    return _matches(REQUEST_ID, field, value, Message("must be 1 to 64 characters A-Z a-z 0-9 . _ : -"))


def file_path(value: str, field: str = "path") -> str:
    """Return a file's path inside a dataset: each part 1 to 255 bytes, no `..`, no control
    characters, no leading `/`.
    """
    if not isinstance(value, str) or not value or value.startswith("/"):
        raise Refused("must be a relative path", field=field)
    for part in value.split("/"):
        if part in {"", ".", ".."}:
            raise Refused("must not have an empty part, '.' or '..'", field=field)
        if CONTROL.search(part):
            raise Refused("must not have control characters", field=field)
        try:
            size = len(part.encode())
        except UnicodeEncodeError:
            raise Refused("must be valid UTF-8", field=field)
        if size > 255:
            raise Refused("each part must have at most 255 bytes", field=field)
    return value

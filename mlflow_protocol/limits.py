"""What names and sizes the MLflow protocol allows: those of MLflow's own server."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from .reading import WrongField

MAX_KEY = 250
MAX_PARAM = 6000
MAX_TAG = 8000
MAX_EXPERIMENT_TAG = 20_000
MAX_NAME = 500
BATCH_METRICS, BATCH_PARAMS, BATCH_TAGS, BATCH_ALL = 1000, 100, 100, 1000
BATCH_BYTES = 1_000_000
BATCH_DATASETS = 1000
RUN_PARAMS = 10_000  # of one run
RUN_KEYS = 200_000  # metrics of one run
SYSTEM = "mlflow."  # the beginning of tags that clients set by themselves
SYSTEM_TAGS = 1000  # of one run

_KEY = re.compile(r"[/\w.\- :]+")
_UNIQUE = re.compile(r"[\w\- :]+")  # keys that are no paths, which is nearly all


def key(name: str, kind: str = "key") -> str:
    """Return the name of a metric, parameter or tag. Raises WrongField."""
    if _UNIQUE.fullmatch(name) is None:
        if _KEY.fullmatch(name) is None:
            raise WrongField(
                f"Invalid value for {kind} '{name[:100]}': names may only contain alphanumerics, underscores (_), "
                "dashes (-), periods (.), spaces ( ), colons (:) and slashes (/)"
            )
        norm = posixpath.normpath(name)
        if norm != name or norm == "." or norm.startswith(("..", "/")):
            raise WrongField(f"Invalid value for {kind} '{name[:100]}': as a path it would be another name, {norm!r}")
    if len(name) > MAX_KEY:
        raise WrongField(f"{kind} '{name[:100]}' exceeds the maximum length of {MAX_KEY} characters")
    return name


def tag_key(name: str) -> str:
    """Return the name of a tag, which pages and filters show as it is. Raises WrongField."""
    if name != name.strip():
        raise WrongField(f"Invalid value for tag '{name[:100]}': it must not begin or end with a space")
    return key(name, "tag")


def batch(what: str, count: int, most: int) -> None:
    """Refuse a batch that has more than so many. Raises WrongField."""
    if count > most:
        raise WrongField(
            f"A batch logging request can contain at most {most} {what}. Got {count} {what}. Please split up {what} "
            "across multiple requests and try again."
        )


def unique(keys: Iterable[str]) -> None:
    """Refuse parameters of which two have one name. Raises WrongField."""
    seen: set[str] = set()
    twice = sorted({name for name in keys if name in seen or seen.add(name)})
    if twice:
        raise WrongField(
            f"Duplicate parameter keys have been submitted: {twice[:10]}. Please ensure the request contains only one "
            "param value per param key."
        )

"""The subscriptions that a page requests on its websocket. Used by mlp.visitors.live, which describes the message."""

from __future__ import annotations

import json

from . import shared
from .shared import Shown

MAX_WATCHED = 24
MAX_BYTES = 1 << 14


def parse(text: str | None) -> tuple[dict, str | None, bool, float | None, Shown | None] | None:
    """Return the subscriptions in a page's message, None when it is malformed.

    These are {(user, job): (the job's key, the last row and the last value that the page has)}, the filters of log
    lines, whether the page watches the components, when the page was rendered, and the shared object that it shows.
    """
    try:
        message = json.loads(text) if text and len(text) <= MAX_BYTES else None
        entries = message["watch"][:MAX_WATCHED]
        lines_query = next((entry["query"] for entry in entries if entry["kind"] == "lines"), None)
        if not isinstance(lines_query, str | None):
            return None
        jobs = {}
        for entry in entries:
            if entry["kind"] in {"lines", "parts", "object"}:
                continue
            user, job, known, after = entry["user"], entry["job"], entry.get("id", 0), entry.get("after", 0)
            values = entry.get("values")
            numbers = (known, after, 0 if values is None else values)
            valid = all(isinstance(number, int) and 0 <= number < 1 << 53 for number in numbers)
            if entry["kind"] != "metrics" or not isinstance(user, str) or not isinstance(job, str) or not valid:
                return None
            if not (user.isascii() and job.isascii() and "\0" not in user + job):
                return None
            jobs[user, job] = (known, after, values)
        begun = message.get("begun")
        if begun is not None and not (isinstance(begun, int | float) and 0 <= begun < 1e11):
            return None
        shown = next((shared.parse(entry) for entry in entries if entry["kind"] == "object"), None)
        return jobs, lines_query, any(entry["kind"] == "parts" for entry in entries), begun, shown
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None

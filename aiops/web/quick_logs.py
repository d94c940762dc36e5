"""The endpoints for log lines without Django's middleware, for the usual request: a full token, plainly valid lines.

Anything else, also what is wrong with a request, is left to Django's views with the body untouched, so that their
answers stay as they are. Small requests are stored together (aiops/intake/grouping.py). Used by mlp.wsgi, and by the
listener of small requests (log_listener.py), which comes first where it runs.
"""

from __future__ import annotations

import functools
import io
import json
import logging
from collections.abc import Callable, Iterable
from types import SimpleNamespace

from django.db import close_old_connections
from django.db.utils import DatabaseError, InterfaceError

from accounts import auth, throttle, tokens
from aiops.intake import bodies, grouping, quota, shippers
from kernel.dispatch import Direct, ViewApplication
from kernel.errors import AWAY, FAULT, Fault, Refused, for_caller

from .logs_serializers import document, usual

log = logging.getLogger(__name__)

MAX_BYTES = 2 << 20  # of a body
READERS = {"application/json": bodies.elements, "application/x-ndjson": bodies.lines}
FOUND = "mlp.log_lines"  # in the environment of the request: what `is_usual` has found in it


def is_usual(environ: dict) -> bool:
    """Return whether `answer` can answer the request; the holder and the lines are then in its environment."""
    found = usual_lines(environ, holder_of, quota.require)
    if found:
        environ[FOUND] = found
    return found is not None


def usual_lines(
    environ: dict, holder_of: Callable[[dict], tokens.Holder | None], require: Callable[[tokens.Holder], object]
) -> tuple[tokens.Holder, list[dict]] | None:
    """Return who sends a usual request, and the documents of its lines; None for any other request. `require` raises
    TooMany where the holder has to wait.
    """
    read = READERS.get((environ.get("CONTENT_TYPE") or "").partition(";")[0].strip().lower())
    if read is None or environ.get("QUERY_STRING") or environ.get("HTTP_ACCEPT", "*/*") not in {"*/*", *READERS}:
        return None
    if not is_small(environ) or "HTTP_CONTENT_ENCODING" in environ or "HTTP_COOKIE" in environ:
        return None
    holder = holder_of(environ)
    if holder is None:
        return None
    try:
        require(holder)
    except quota.TooMany:  # Django's answer says it
        return None
    data = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    environ["wsgi.input"] = io.BytesIO(data)
    lines = _lines(read, data, holder)
    return (holder, lines) if lines else None


def is_small(environ: dict) -> bool:
    """Return whether it is a POST with a body that may be held in memory."""
    length = environ.get("CONTENT_LENGTH") or ""
    return environ["REQUEST_METHOD"] == "POST" and length.isascii() and length.isdigit() and int(length) <= MAX_BYTES


def holder_of(environ: dict) -> tokens.Holder | None:
    """Return the holder of the request's token; None where Django's answer says what is wrong."""
    try:
        token = auth.bearer(environ.get("HTTP_AUTHORIZATION", ""))
        return token and tokens.lookup(token, address=throttle.client_address(SimpleNamespace(META=environ)))
    except Refused:
        return None
    except (DatabaseError, InterfaceError, Fault):  # Django's answer says what is wrong
        close_old_connections()
        return None


def _lines(read: Callable, data: bytes, holder: tokens.Holder) -> list[dict] | None:
    """Return the documents of the lines; None unless all of them can be stored as they are."""
    lines = []
    try:
        for _number, value in read(data):
            row = usual(value)
            # An id that an administrator names may be that of another user's line.
            if row is None or (holder.is_administrator and row.get("_id")):
                return None
            lines.append(document(row, holder))
    except Refused:
        return None
    return lines


def answer(environ: dict, start_response: Callable) -> Iterable[bytes]:
    """Store the lines that `is_usual` has found, and answer as the view does."""
    holder, lines = environ.pop(FOUND)
    try:
        quota.count(holder, lines)
        stored: int | Exception = grouping.store(lines)
    except Exception as problem:
        stored = problem
    status, headers, data = response(environ, len(lines), stored)
    start_response(status, headers)
    return [data]


def response(environ: dict, count: int, stored: int | Exception) -> tuple[str, list[tuple[str, str]], bytes]:
    """Return the status, the headers and the body for a request with so many lines, of which `stored` were new, or
    which could not be stored for that reason.
    """
    status, headers = "200 OK", []
    answer: dict = {"taken": count, "new": stored}
    if isinstance(stored, Exception):  # as Django's views do
        log.error("fault in POST %s", environ["PATH_INFO"], exc_info=stored)
        close_old_connections()
        msg = stored.msg if isinstance(stored, Fault) else AWAY
        status, answer = f"{FAULT} Service Unavailable", {"msg": for_caller(msg, environ)}
        headers = [("Retry-After", "2")]
    data = json.dumps(answer, ensure_ascii=False).encode()
    return status, [("Content-Type", "application/json"), ("Content-Length", str(len(data))), *headers], data


def _pushed(view: Callable) -> Direct:
    return Direct(ViewApplication(functools.partial(view, intake=shippers.Intake(grouping.store))), is_small)


DIRECT = {
    "/api/v1/aiops/logs": Direct(answer, is_usual),
    "/v1/logs": _pushed(shippers.otlp),
    "/loki/api/v1/push": _pushed(shippers.loki_push),
}

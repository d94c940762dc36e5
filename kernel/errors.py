"""The two families of errors, decided where they are raised, and their one form on the wire.

Refused: the caller's fault, described exactly (403). Fault: the platform's, described in general terms, logged whole
(503). Both carry a Message: pages translate, REST answers in English unless the script of a page asks for its language.
Used by every app; `exception_handler` is DRF's, `kernel.middleware.ApiErrors` covers what DRF never sees.
"""

from __future__ import annotations

import logging
from itertools import islice

from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpResponseBase, JsonResponse
from rest_framework import exceptions as drf
from rest_framework.response import Response

from .messages import Message, for_caller, joined, under

log = logging.getLogger(__name__)

REFUSED = 403
MAX_PROBLEMS = 20  # that a refusal names: a list in a body may have thousands of elements
FAULT = 503
NOT_VALID = Message("the request is not valid")
NOT_AUTHENTICATED = Message("not authenticated: send Authorization: Bearer {token}")
AWAY = Message("the database is not available; try again later")
BROKEN = Message("internal error of the platform; try again later")


class Refused(Exception):
    """An invalid request, never retried: `problem` says what is wrong with `field`, or with the request as a whole.

    `msg` is both as REST gives them: `field: problem`.
    """

    def __init__(self, template: str, /, *, field: str = "", **params):
        problem = Message(template, **params) or NOT_VALID
        self.field, self.problem, self.msg = field, problem, under(field, problem)
        super().__init__(self.msg)


class TooMany(Refused):
    """A refusal that ends by itself: after `seconds`, which the answer's Retry-After repeats for programs."""

    def __init__(self, template: str, /, *, seconds: int, field: str = "", **params):
        super().__init__(template, field=field, seconds=seconds, **params)
        self.retry_after_s = seconds


class Fault(Exception):
    """A fault of the server. `msg` is for the caller and carries no inner detail."""

    passes = True  # worth another try
    is_logged = True  # it is worth a look, too: nothing that callers can bring about as often as they like

    def __init__(self, template: str = BROKEN, /, **params):
        self.msg = Message(template, **params) or BROKEN
        super().__init__(self.msg)


def writable(text: str) -> str:
    """Return the text with unpaired surrogates, which UTF-8 cannot encode, escaped: an error must always be sent."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def flatten(detail) -> str:
    """Return DRF's nested error detail as one message, of the first problems: `field: what; field: what`."""
    if isinstance(detail, dict):
        return joined(
            flatten(value) if key == "non_field_errors" else under(str(key), flatten(value))
            for key, value in islice(detail.items(), MAX_PROBLEMS)
        )
    if isinstance(detail, list | tuple):
        return joined(flatten(item) for item in islice(filter(None, detail), MAX_PROBLEMS))
    code = getattr(detail, "code", None)  # where kernel.fields.Invalid puts the message
    return code if isinstance(code, Message) else str(detail)


def describe(exc: Exception) -> tuple[int, str]:
    """Return the status (403 or 503) and the message for any exception at all."""
    match exc:
        case Refused():
            return REFUSED, exc.msg
        case Fault():
            return FAULT, exc.msg
        case OperationalError() | InterfaceError():
            return FAULT, AWAY
        case drf.NotAuthenticated():
            return REFUSED, NOT_AUTHENTICATED
        case drf.UnsupportedMediaType():
            return REFUSED, under("Content-Type", Message("must be application/json"))
        case drf.APIException() if exc.status_code < 500:
            return REFUSED, flatten(exc.detail) or NOT_VALID
        case Http404():
            return REFUSED, Message("no such object")
        case SuspiciousOperation():
            return REFUSED, Message("the request is not valid: too large, too many fields, or not for this host")
        case PermissionDenied():
            return REFUSED, str(exc) or Message("not allowed")
    return FAULT, BROKEN


def exception_handler(exc: Exception, context: dict) -> Response:
    """Turn whatever a view raises into `{"msg"}` with 403 or 503; Django REST framework calls it."""
    status, msg = describe(exc)
    request = context.get("request")
    is_logged = getattr(exc, "is_logged", True)
    if status == FAULT and is_logged:
        log.error("fault in %s %s", getattr(request, "method", "?"), getattr(request, "path", "?"), exc_info=exc)
    seconds = getattr(exc, "retry_after_s", None)
    headers = None if seconds is None else {"Retry-After": str(seconds)}
    msg = writable(for_caller(msg, getattr(request, "META", {})))
    response = Response({"msg": msg}, status=status, headers=headers)
    return response if is_logged else unlogged(response)


def unlogged(response: HttpResponseBase) -> HttpResponseBase:
    """Return the response with Django's mark of what is in the log: otherwise each 5xx gets a line there."""
    response._has_been_logged = True
    return response


def error_response(status: int, msg: str) -> JsonResponse:
    """Return the message as the contract's error body, for code outside of DRF."""
    return JsonResponse({"msg": writable(msg)}, status=status, json_dumps_params={"ensure_ascii": False})

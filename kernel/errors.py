"""The two families of errors, decided where they are raised, and their one form on the wire.

Refused: the caller's fault, told exactly (403). Fault: ours, told in general words, logged whole (503).
Used by every app; `exception_handler` is DRF's, `kernel.middleware.ApiErrors` covers what DRF never sees.
"""

from __future__ import annotations

import logging

from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.http import Http404, JsonResponse
from rest_framework import exceptions as drf
from rest_framework.response import Response

log = logging.getLogger(__name__)

REFUSED = 403
FAULT = 503


class Refused(Exception):
    """An invalid request: `msg` names the field or the rule. Never retried."""

    def __init__(self, msg: str):
        super().__init__(msg)
        self.msg = str(msg) or "the request is not valid"


class Fault(Exception):
    """A fault of the server. `msg` is for the caller and carries no inner detail."""

    passes = True  # worth another try

    def __init__(self, msg: str = "the platform has a fault, try again later"):
        super().__init__(msg)
        self.msg = str(msg) or "the platform has a fault, try again later"


def writable(text: str) -> str:
    """The text, with halves of characters, which UTF-8 cannot write, as their escapes: an error must always be told."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def flatten(detail) -> str:
    """One sentence out of DRF's nested error detail: `field: what; field: what`."""
    if isinstance(detail, dict):
        parts = []
        for key, value in detail.items():
            text = flatten(value)
            parts.append(text if key == "non_field_errors" else f"{key}: {text}")
        return "; ".join(parts)
    if isinstance(detail, list | tuple):
        return "; ".join(flatten(item) for item in detail if item)
    return str(detail)


def describe(exc: Exception) -> tuple[int, str]:
    """The status (403 or 503) and the message for any exception at all."""
    match exc:
        case Refused():
            return REFUSED, exc.msg
        case Fault():
            return FAULT, exc.msg
        case drf.NotAuthenticated():
            return REFUSED, "not authenticated: send Authorization: Bearer {token}"
        case drf.UnsupportedMediaType():
            return REFUSED, "Content-Type: must be application/json"
        case drf.ValidationError():
            return REFUSED, flatten(exc.detail) or "the request is not valid"
        case drf.APIException() if exc.status_code < 500:
            return REFUSED, flatten(exc.detail) or "the request is not valid"
        case Http404():
            return REFUSED, "no such object"
        case SuspiciousOperation():
            return REFUSED, "the request is not valid: too large, too many fields, or not for this host"
        case PermissionDenied():
            return REFUSED, str(exc) or "not allowed"
    return FAULT, "the platform has a fault, try again later"


def exception_handler(exc: Exception, context: dict) -> Response:
    """DRF's hook: whatever a view raises leaves as `{"msg"}` with 403 or 503."""
    status, msg = describe(exc)
    if status == FAULT:
        request = context.get("request")
        log.error("fault in %s %s", getattr(request, "method", "?"), getattr(request, "path", "?"), exc_info=exc)
    return Response({"msg": writable(msg)}, status=status)


def error_response(status: int, msg: str) -> JsonResponse:
    return JsonResponse({"msg": writable(msg)}, status=status, json_dumps_params={"ensure_ascii": False})

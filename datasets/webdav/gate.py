"""The gate of the data service: who is calling, and how an error becomes an answer. Used by put/, verbs.py, server.py.

Only nginx reaches the views behind it; it proves itself by `internal_key`. Errors are answered with the usual HTTP
codes and `{"msg"}`.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import logging
from collections.abc import Mapping
from errno import EDQUOT, EEXIST, EISDIR, ELOOP, ENAMETOOLONG, ENOSPC, ENOTDIR, ENOTEMPTY

from django.conf import settings
from django.db.utils import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from psycopg import Error as LinkError

from accounts import tokens
from accounts.auth import basic, bearer
from accounts.tokens import Holder
from kernel.database import AWAY
from kernel.disk import DiskFull
from kernel.errors import NOT_AUTHENTICATED, Fault, Refused
from kernel.messages import for_caller

from .errors import HttpError, body_of

log = logging.getLogger(__name__)

CHALLENGE = 'Basic realm="data", charset="UTF-8"'


@functools.cache
def internal_key() -> str:
    """Return the secret by which nginx proves that it is nginx: derived, so only nginx's configuration holds it."""
    return hashlib.sha256(b"internal:" + settings.SECRET_KEY.encode()).hexdigest()


def authenticate(authorization: str, address: str = "") -> Holder:
    """Return the holder of the Bearer token, or of the token sent as the password of HTTP Basic.

    Takes the Authorization header, "" for none, and the client's address. What the token may do is judged with the
    target (admission.require_scope). Raises HttpError 401.
    """
    if not authorization:
        raise HttpError(401, NOT_AUTHENTICATED, WWW_Authenticate=CHALLENGE)
    try:
        credentials = basic(authorization)
        token = credentials[1] if credentials else bearer(authorization)
    except Refused as refused:
        raise HttpError(401, refused.msg, WWW_Authenticate=CHALLENGE)
    holder = tokens.user_holder(token, narrow=True, address=address) if token else None
    if holder is None or (credentials and not hmac.compare_digest(credentials[0].encode(), holder.username.encode())):
        raise HttpError(401, "not valid", field="token", WWW_Authenticate=CHALLENGE)
    return holder


def guarded(view):
    """Decorate a view that only nginx may call; every exception becomes an answer with its code and message."""

    @csrf_exempt
    @functools.wraps(view)
    def wrapper(request: HttpRequest) -> HttpResponse:
        if not from_nginx(request):
            return respond(HttpError(404, "no such address"))
        try:
            return view(request)
        except Exception as problem:
            return for_page(error_response(problem, request.path), request.META)

    return wrapper


def from_nginx(request: HttpRequest) -> bool:
    """Return whether the request carries the internal key, which only nginx has."""
    return has_internal_key(request.META)


def has_internal_key(meta: Mapping[str, str]) -> bool:
    """Return whether these headers (names as WSGI has them) carry the internal key."""
    return hmac.compare_digest(meta.get("HTTP_X_INTERNAL_KEY", "").encode(), internal_key().encode())


def error_response(problem: Exception, where: str) -> HttpResponse:
    """Return the answer to an exception that was raised while serving `where`, and log it if it is our fault."""
    match problem:
        case HttpError():
            return respond(problem)
        case Refused():
            return respond(HttpError(409, problem.msg))
        case DiskFull():
            return respond(HttpError(507, problem.msg))
        case Fault():
            return respond(HttpError(503, problem.msg, Retry_After="2"))
        case OSError():
            return respond(_disk_error(where, problem))
        case DatabaseError() | InterfaceError() | LinkError():
            log.error("data service: the database failed in %s", where, exc_info=problem)
            return respond(HttpError(503, AWAY, Retry_After="2"))
        case _:  # a bug: its details go to the log only
            log.error("data service: %s failed", where, exc_info=problem)
            return respond(HttpError(503, Fault().msg, Retry_After="2"))


def for_subrequest(view):
    """Decorate a view for nginx's auth_request, which understands 2xx, 401 and 403 only.

    An error goes as 403, with its own status and message in the headers X-Data-Status and X-Data-Reason.
    """

    @functools.wraps(view)
    def wrapper(request: HttpRequest) -> HttpResponse:
        response = view(request)
        if "X-Data-Status" in response:
            return response
        if 400 <= response.status_code < 500 or response.status_code == 507:
            response["X-Data-Status"] = str(response.status_code)
            response["X-Data-Reason"] = response.content.decode()
            response.status_code = 403
        return response

    return csrf_exempt(wrapper)


def _disk_error(where: str, problem: OSError) -> HttpError:
    if problem.errno in {ENOTDIR, ELOOP}:
        return HttpError(409, "a parent folder is a file or a symbolic link", field="path")
    if problem.errno in {EISDIR, ENOTEMPTY, EEXIST}:
        return HttpError(409, "a folder of that name already exists", field="path")
    if problem.errno in {ENOSPC, EDQUOT}:
        return HttpError(507, "the platform's disk is full")
    if problem.errno == ENAMETOOLONG:
        return HttpError(400, "too long", field="path")
    if isinstance(problem, FileNotFoundError):
        return HttpError(409, "was removed in the meantime; try again", field="path")
    log.error("data service: %s failed", where, exc_info=problem)
    return HttpError(503, "storage error of the platform; try again later", Retry_After="2")


def respond(error: HttpError) -> HttpResponse:
    """Return the error as a response with its `{"msg"}`."""
    answer = HttpResponse(error.body(), status=error.status, content_type="application/json", headers=error.headers)
    answer.msg = error.msg
    return answer


def for_page(response: HttpResponse, meta: Mapping[str, str]) -> HttpResponse:
    """Translate an error of `respond` when a page of ours asks for it; programs are answered in English."""
    if msg := getattr(response, "msg", ""):
        response.content = body_of(for_caller(msg, meta))
    return response

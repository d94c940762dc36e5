"""The gate of the data service: who asks, and how whatever goes wrong is answered. Used by put.py and verbs.py.

nginx alone reaches the views behind it: it shows `internal_key`. The usual HTTP codes are answered, each refusal as
`{"msg"}`.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import logging
from errno import EDQUOT, EEXIST, EISDIR, ELOOP, ENAMETOOLONG, ENOSPC, ENOTDIR, ENOTEMPTY

from django.conf import settings
from django.db.utils import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from accounts import tokens
from accounts.auth import basic, bearer
from accounts.tokens import Holder
from kernel.errors import Fault, Refused

from .errors import HttpError

log = logging.getLogger(__name__)

ASK = 'Basic realm="data", charset="UTF-8"'


@functools.cache
def internal_key() -> str:
    """What nginx shows to prove that it is nginx; derived, so it is nowhere stored but in its configuration."""
    return hashlib.sha256(b"internal:" + settings.SECRET_KEY.encode()).hexdigest()


def authenticate(request: HttpRequest) -> Holder:
    """The holder of the Bearer token, or of the token sent as HTTP Basic's password. Raises HttpError 401."""
    header = request.META.get("HTTP_AUTHORIZATION", "")
    if not header:
        raise HttpError(401, "not authenticated: send Authorization: Bearer {token}", WWW_Authenticate=ASK)
    try:
        given = basic(header)
        token = given[1] if given else bearer(header)
    except Refused as refused:
        raise HttpError(401, refused.msg, WWW_Authenticate=ASK)
    holder = tokens.person(token) if token else None
    if holder is None or (given and not hmac.compare_digest(given[0].encode(), holder.username.encode())):
        raise HttpError(401, "token: not valid", WWW_Authenticate=ASK)
    return holder


def guarded(view):
    """For nginx only; whatever goes wrong becomes an answer with the right code and words."""

    @csrf_exempt
    @functools.wraps(view)
    def wrapper(request: HttpRequest) -> HttpResponse:
        if not from_nginx(request):
            return respond(HttpError(404, "no such address"))
        try:
            return view(request)
        except Exception as problem:
            return answer_to(problem, request.path)

    return wrapper


def from_nginx(request: HttpRequest) -> bool:
    shown = request.META.get("HTTP_X_INTERNAL_KEY", "")
    return hmac.compare_digest(shown.encode(), internal_key().encode())


def answer_to(problem: Exception, where: str) -> HttpResponse:
    """The answer to whatever went wrong while `where` was asked."""
    match problem:
        case HttpError():
            return respond(problem)
        case Refused():
            return respond(HttpError(409, problem.msg))
        case Fault():
            return respond(HttpError(503, problem.msg, Retry_After="2"))
        case OSError():
            return respond(_disk_answer(where, problem))
        case DatabaseError():
            log.error("data service: the database failed in %s", where, exc_info=problem)
            return respond(HttpError(503, "the database is not available, try again later", Retry_After="2"))
        case _:  # a bug: told to nobody but the log
            log.error("data service: %s failed", where, exc_info=problem)
            return respond(HttpError(503, Fault().msg, Retry_After="2"))


def for_subrequest(view):
    """auth_request understands 2xx, 401 and 403: a refusal goes as 403 with the true status and words in headers."""

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


def _disk_answer(where: str, problem: OSError) -> HttpError:
    if problem.errno in {ENOTDIR, ELOOP}:
        return HttpError(409, "path: a folder on the way is a file or a link")
    if problem.errno in {EISDIR, ENOTEMPTY, EEXIST}:
        return HttpError(409, "path: a folder of that name is there")
    if problem.errno in {ENOSPC, EDQUOT}:
        return HttpError(507, "the platform's disk is full")
    if problem.errno == ENAMETOOLONG:
        return HttpError(400, "path: too long")
    if isinstance(problem, FileNotFoundError):
        return HttpError(409, "path: it vanished meanwhile")
    log.error("data service: %s failed", where, exc_info=problem)
    return HttpError(503, "the platform's storage has a fault, try again later", Retry_After="2")


def respond(answer: HttpError) -> HttpResponse:
    return HttpResponse(answer.body(), status=answer.status, content_type="application/json", headers=answer.headers)

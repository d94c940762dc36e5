"""The base of all calls of the MLflow protocol: the caller, the request, the answer, and errors in MLflow's form.

A call is a function that takes a Call and returns the object to answer with. A table of routes (`{"runs/get": {"GET":
get}}`) becomes Django's patterns, and direct addresses of the HTTP server (kernel.dispatch), since clients call them
by the thousand. Unlike the contract's REST calls these ignore unknown fields: clients of many releases send them.

MLflow's clients repeat a request after 429, 500, 502, 503 and 504 for minutes: what is wrong with a request is
answered by other codes.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import orjson
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.db import DatabaseError, DataError, InterfaceError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.http.request import UnreadablePostError
from django.urls import URLPattern, path
from django.views.decorators.csrf import csrf_exempt

from accounts import auth, scopes, throttle, tokens
from accounts.models import User
from jobs.artifacts.space import NoRoom
from jobs.auth import job_of_token
from kernel import disk, stored
from kernel.dispatch import Direct, ViewApplication
from kernel.effects import STORING, Effect
from kernel.errors import Fault, Refused, TooMany, unlogged, writable
from kernel.locking import Missing
from kernel.registering import ALL, Rights
from kernel.sanitize import check_count
from resources.models import Tenant

from .reading import Fields, WrongField

log = logging.getLogger(__name__)

PREFIX = "mlflow/"
# As MLflow's clients call it; and as its web interface does.
BASES = ("api/2.0/mlflow/", "ajax-api/2.0/mlflow/")
BASES_3 = ("api/3.0/mlflow/", "ajax-api/3.0/mlflow/")
WORKSPACE = "HTTP_X_MLFLOW_WORKSPACE"
ARTIFACT_BASES = ("api/2.0/mlflow-artifacts/", "ajax-api/2.0/mlflow-artifacts/")
SENDING_BASES = ("", "ajax-api/2.0/mlflow/")
CHALLENGE = 'Basic realm="mlflow", charset="UTF-8"'
STATUS = {
    "INVALID_PARAMETER_VALUE": 400,
    "RESOURCE_ALREADY_EXISTS": 400,
    "INVALID_STATE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "RESOURCE_DOES_NOT_EXIST": 404,
    "ENDPOINT_NOT_FOUND": 404,
    "QUOTA_EXCEEDED": 413,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL_ERROR": 500,
    "TEMPORARILY_UNAVAILABLE": 503,
}
RETRY_S = "2"


class MlflowError(Exception):
    """A refusal with one of MLflow's codes. `status` is that of the code unless given."""

    def __init__(self, code: str, message: str, status: int | None = None, **headers: str):
        self.code, self.message, self.headers = code, message, headers
        self.status = STATUS[code] if status is None else status
        super().__init__(message)


def missing(what: str, name: object) -> MlflowError:
    """Return the refusal of an object that does not exist or is another user's: both get the same answer."""
    return MlflowError("RESOURCE_DOES_NOT_EXIST", f"{what} with id {name} not found")


@dataclass(frozen=True)
class Caller:
    """Whose token was sent. `job_id` is set for a job's own token, which may do less; `rights` are what the token may
    change in the registry.
    """

    user_id: int
    username: str
    job_id: int = 0
    token: str = field(default="", repr=False)
    rights: Rights = ALL

    @property
    def by(self) -> str:
        """Return the actor for the history."""
        return "job" if self.job_id else self.username


@dataclass
class Call:
    """One request: its caller, and the fields of its body or query."""

    request: HttpRequest
    caller: Caller
    fields: Fields

    @cached_property
    def user(self) -> User:
        return User.objects.select_related("tenant").get(pk=self.caller.user_id)

    @property
    def workspace(self) -> str | None:
        """Return the tenant that the call names for what it creates; None for the user's default."""
        return self.request.META.get(WORKSPACE, "").strip() or None


Handler = Callable[..., dict | HttpResponseBase]
Routes = Mapping[str, Mapping[str, Handler]]


def for_jobs(handler: Handler) -> Handler:
    """Decorate a call that a job's token may make. The call itself sees to it that it is about the job's own run."""
    handler.for_jobs = True
    return handler


def effect(value: Effect) -> Callable[[Handler], Handler]:
    """Decorate a call with what it does, for the scopes of named tokens: without it the call takes full tokens only."""

    def declare(handler: Handler) -> Handler:
        handler.effect = value
        return handler

    return declare


def frees(handler: Handler) -> Handler:
    """Decorate a call that submits, but only makes room: it goes on while the disk is nearly full."""
    handler.frees = True
    return handler


def stores(handler: Handler) -> bool:
    """Return whether a call takes room on the disk."""
    return getattr(handler, "effect", None) in STORING and not getattr(handler, "frees", False)


def patterns(routes: Routes, bases: Sequence[str] = BASES) -> list[URLPattern]:
    """Return Django's patterns of these routes, relative to PREFIX."""
    return [path(base + route, endpoint(methods)) for route, methods in routes.items() for base in bases]


def direct(routes: Routes, bases: Sequence[str] = BASES) -> dict[str, Direct]:
    """Return the direct addresses of those routes that have no variable part."""
    return {
        f"/{PREFIX}{base}{route}": Direct(ViewApplication(endpoint(methods)))
        for route, methods in routes.items()
        if "<" not in route
        for base in bases
    }


def endpoint(methods: Mapping[str, Handler]) -> Callable[..., HttpResponseBase]:
    """Return the view of an address: its handlers by method."""

    @csrf_exempt
    def view(request: HttpRequest, **kwargs) -> HttpResponseBase:
        try:
            handler = methods.get("GET" if request.method == "HEAD" else request.method)
            caller = caller_of(request, getattr(handler, "effect", None))
            if handler is None:
                raise MlflowError(
                    "ENDPOINT_NOT_FOUND", f"{request.method} is not allowed here, only {', '.join(methods)}", 405,
                    Allow=", ".join(methods),
                )  # fmt: skip
            if caller.job_id and not getattr(handler, "for_jobs", False):
                raise MlflowError("PERMISSION_DENIED", "a job's token cannot make this call")
            if request.method not in ("GET", "HEAD") and stores(handler):
                disk.require()
                stored.require(caller.user_id)
            call = Call(request, caller, fields_of(request))
            check_workspace(call)
            answer = handler(call, **kwargs)
            return answer if isinstance(answer, HttpResponseBase) else reply(answer)
        except Exception as problem:
            return refusal(request, problem)

    view.methods = methods
    return view


def check_workspace(call: Call) -> None:
    """Refuse a call that is about a workspace which is none of the caller's tenants. Raises MlflowError."""
    if call.workspace and call.workspace not in workspaces_of(call):
        raise missing_workspace(call.workspace)


def workspaces_of(call: Call) -> list[str]:
    """Return the names of the caller's tenants, the default one first."""
    tenants = Tenant.objects.filter(pk__in=call.user.roles()).order_by("name")
    return sorted((tenant.name for tenant in tenants), key=lambda name: name != call.user.tenant.name)


def missing_workspace(name: str) -> MlflowError:
    return MlflowError("RESOURCE_DOES_NOT_EXIST", f"Workspace '{name[:100]}' not found")


@csrf_exempt
def unknown(request: HttpRequest, path: str = "") -> HttpResponse:
    """Answer an address below PREFIX that is none."""
    return _error(MlflowError("ENDPOINT_NOT_FOUND", f"{writable(request.path)} is not an endpoint of this server"))


def reply(answer: dict) -> HttpResponse:
    """Return the answer; it may have orjson.Fragment where the database has written JSON."""
    try:
        body = orjson.dumps(answer)
    except TypeError:  # numbers of more than 64 bits, halves of surrogate pairs
        text = json.dumps(answer, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        body = text.encode("utf-8", "backslashreplace")
    return HttpResponse(body, content_type="application/json")


# --- who calls --------------------------------------------------------------------------------------------------------
def caller_of(request: HttpRequest, does: Effect | None) -> Caller:
    """Return whose token the request carries: as Bearer, or as the password of Basic. `does` is the effect that the
    call declares. Raises MlflowError.
    """
    header = request.META.get("HTTP_AUTHORIZATION", "")
    username, token = "", ""
    try:
        credentials = auth.basic(header)
        username, token = credentials or ("", auth.bearer(header) or "")
    except Refused as refused:
        raise _unauthenticated(str(refused.msg)) from None
    if not token:
        raise _unauthenticated("no token: set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_PASSWORD, to your API token")
    caller = _caller(request, token, does)
    if caller is None or (username and not hmac.compare_digest(username.encode(), caller.username.encode())):
        what = "the password must be your API token" if credentials else "the token is not valid"
        raise _unauthenticated(f"not authenticated: {what}")
    return caller


def _caller(request: HttpRequest, token: str, does: Effect | None) -> Caller | None:
    if token.startswith(auth.JOB_PREFIX):
        job = job_of_token(token)
        return job and Caller(job.user_id, job.user.username, job.pk, token, job.registry_rights)
    holder = tokens.user_holder(token, narrow=True, address=throttle.client_address(request))
    if holder is not None:
        try:
            scopes.require(holder, does, holder.username)
        except Refused as refused:
            raise MlflowError("PERMISSION_DENIED", str(refused.msg)) from None
    return holder and Caller(holder.user_id, holder.username, token=token, rights=holder.rights)


def _unauthenticated(message: str) -> MlflowError:
    return MlflowError("UNAUTHENTICATED", message, **{"WWW-Authenticate": CHALLENGE})


# --- what was sent ----------------------------------------------------------------------------------------------------
def fields_of(request: HttpRequest) -> Fields:
    """Return the fields of the query, and those of the JSON body. Raises WrongField."""
    given = {key: values if len(values) > 1 else values[0] for key, values in request.GET.lists()}
    if request.method in ("GET", "HEAD"):
        return Fields(given)
    data = request.body
    if not data:
        return Fields(given)
    try:
        check_count(data)
        body = _read(data)
    except (ValueError, RecursionError):
        raise WrongField("the body must be a JSON object in UTF-8, with a bounded number of values") from None
    if not isinstance(body, dict):
        raise WrongField("the body must be a JSON object")
    return Fields({**given, **body}, size=len(data))


def _read(data: bytes):
    """Return the JSON value. Raises ValueError, RecursionError."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:  # stricter than Python, whose clients may send NaN and halves of surrogate pairs
        return json.loads(data.decode("utf-8"))


# --- errors -----------------------------------------------------------------------------------------------------------
def refusal(request: HttpRequest, problem: Exception) -> HttpResponse:
    """Return the answer to whatever a call has raised."""
    match problem:
        case MlflowError():
            return _error(problem)
        case WrongField():
            return _error(MlflowError("INVALID_PARAMETER_VALUE", str(problem)))
        case Missing():
            return _error(MlflowError("RESOURCE_DOES_NOT_EXIST", str(problem.msg)))
        case NoRoom() | stored.TooMuch():
            return _error(MlflowError("QUOTA_EXCEEDED", str(problem.msg)))
        case disk.DiskFull():
            return unlogged(_error(MlflowError("TEMPORARILY_UNAVAILABLE", str(problem.msg), 507)))
        case TooMany():
            seconds = str(problem.retry_after_s)
            return _error(MlflowError("RESOURCE_EXHAUSTED", str(problem.msg), **{"Retry-After": seconds}))
        case Refused():
            return _error(MlflowError("INVALID_PARAMETER_VALUE", str(problem.msg)))
        case DataError():
            return _error(MlflowError("INVALID_PARAMETER_VALUE", "a value cannot be stored: too large or out of range"))
        case RequestDataTooBig():
            return _error(MlflowError("INVALID_PARAMETER_VALUE", "the body is too large", 413))
        case SuspiciousOperation() | UnreadablePostError():
            return _error(MlflowError("INVALID_PARAMETER_VALUE", "the request is not valid"))
        case Fault():
            return _error(_away(str(problem.msg)))
        case DatabaseError() | InterfaceError():
            log.error("the database failed in %s %s", request.method, request.path, exc_info=problem)
            return _error(_away("the database is not available; try again later"))
    log.error("fault in %s %s", request.method, request.path, exc_info=problem)
    return _error(MlflowError("INTERNAL_ERROR", "internal error of the platform; try again later"))


def _away(message: str) -> MlflowError:
    return MlflowError("TEMPORARILY_UNAVAILABLE", message, **{"Retry-After": RETRY_S})


def _error(error: MlflowError) -> HttpResponse:
    return JsonResponse(
        {"error_code": error.code, "message": writable(error.message)}, status=error.status, headers=error.headers,
        json_dumps_params={"ensure_ascii": False},
    )  # fmt: skip

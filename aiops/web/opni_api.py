"""Opni's own paths, `/ModelTraining/…`, in Opni's JSON: for its services, its gateway's callers and its pages.

JSON whatever the Accept header says; whole numbers as strings, unset messages null, errors as in grpc-gateway ({"code",
"message", "details"}). Unlike the original it requires authentication: the token of an operator or a service, as Bearer
or as the password of HTTP Basic (for callers that can be given an address, but no header).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from accounts import auth, tokens
from aiops.training import requests
from aiops.wire import gpu_info, kv, status, watchlist
from kernel import sanitize
from kernel.errors import NOT_AUTHENTICATED, Fault, Refused, describe
from kernel.messages import under

log = logging.getLogger(__name__)

# grpc's code and grpc-gateway's HTTP status for it
INVALID, NOT_FOUND, DENIED, UNIMPLEMENTED = (3, 400), (5, 404), (7, 403), (12, 501)
INTERNAL, UNAVAILABLE, UNAUTHENTICATED = (13, 500), (14, 503), (16, 401)
MAX_BODY = 8 << 20


class Problem(Exception):
    def __init__(self, kind: tuple[int, int], message: str):
        super().__init__(message)
        self.kind = kind


def call(method: str, *, everybody: bool = False) -> Callable:
    """Return a view of `work(request, …) -> JSON value` that checks the method and the token, and reports errors as
    Opni does.
    """

    def wrap(work: Callable) -> Callable:
        @csrf_exempt  # authenticated by a token, never by a cookie
        def view(request: HttpRequest, **given):
            try:
                if request.method != method:
                    raise Problem(UNIMPLEMENTED, "Method Not Allowed")
                _check_caller(request, everybody)
                return JsonResponse(work(request, **given))
            except Problem as problem:
                return _error(problem.kind, str(problem))
            except (Refused, ValueError) as problem:
                return _error(INVALID, str(problem))
            except (Fault, OperationalError, InterfaceError) as problem:
                return _error(UNAVAILABLE, describe(problem)[1])
            except Exception as problem:
                log.error("fault in %s %s", request.method, request.path, exc_info=problem)
                return _error(INTERNAL, "internal error of the platform; try again later")

        return view

    return wrap


def _error(kind: tuple[int, int], message: str) -> JsonResponse:
    response = JsonResponse({"code": kind[0], "message": message, "details": []}, status=kind[1])
    response._has_been_logged = kind == UNIMPLEMENTED  # the caller's mistake, which Django would log as an error
    return response


def _check_caller(request: HttpRequest, everybody: bool) -> None:
    header = request.META.get("HTTP_AUTHORIZATION", "")
    try:
        pair = auth.basic(header)
        token = pair[1] if pair else auth.bearer(header)
    except Refused as problem:
        raise Problem(UNAUTHENTICATED, problem.msg) from problem
    if token is None:
        raise Problem(UNAUTHENTICATED, NOT_AUTHENTICATED)
    holder = tokens.lookup(token)
    if holder is None:
        raise Problem(UNAUTHENTICATED, under("token", auth.BAD_TOKEN))
    if not everybody and not holder.is_administrator and holder.kind != "service":
        raise Problem(DENIED, "token: this call requires a service token or an administrator")


def _body(request: HttpRequest) -> dict:
    if len(request.body) > MAX_BODY:
        raise ValueError("body: too large")
    try:
        value = sanitize.read_json(request.body or b"{}")
    except sanitize.TooManyValues as problem:
        raise ValueError(f"body: {problem}")
    except ValueError:
        raise ValueError("body: not valid JSON")
    if not isinstance(value, dict):
        raise ValueError("body: must be an object")
    return value


@call("POST")
def train(request: HttpRequest) -> dict:
    body = _body(request)
    _only(body, {"items"})
    items = body.get("items") or []
    if not isinstance(items, list):
        raise ValueError("items: must be a list")
    names = ("clusterId", "namespace", "deployment")
    triples = []
    for item in items:
        if not isinstance(item, dict):
            raise ValueError("items: must be objects")
        _only(item, set(names))
        triples.append(tuple(item.get(name) for name in names))
        if not all(isinstance(value, str) and value for value in triples[-1]):
            raise ValueError("items: clusterId, namespace and deployment must be given")
    return {"response": requests.request_training(watchlist.tree(triples))}


@call("PUT")
def current_status(request: HttpRequest) -> dict:
    requests.put_status(status.read(_body(request)))
    return {}


@call("PUT")
def statistics(request: HttpRequest) -> dict:
    requests.put_statistics(status.read_statistics(_body(request)))
    return {}


@call("GET", everybody=True)
def model_status(request: HttpRequest) -> dict:
    return status.answered(kv.model_status())


@call("GET")
def training_parameters(request: HttpRequest) -> dict:
    return {"items": requests.watched_rows()}


@call("GET")
def workload_aggregation(request: HttpRequest, cluster: str) -> dict:
    rows = requests.count_rows(cluster)
    if rows is None:
        raise Problem(NOT_FOUND, "nats: key not found")
    return {"items": [{**row, "logCount": str(row["logCount"])} for row in rows]}


@call("GET", everybody=True)
def list_gpus(request: HttpRequest) -> dict:
    return {"items": gpu_info.info()}


def _only(body: dict, known: set[str]) -> None:
    for name in body:
        if name not in known:
            raise ValueError(f"{name}: unknown field")

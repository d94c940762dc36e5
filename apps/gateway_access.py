"""The subrequests of the application gateway's nginx for each request (supervision/gateway.conf.tmpl).

`route` returns the address of the application and the secret of its run (apps/proof.py), or 403, as does the faster
`apps/routing.py`, which asks `allowed`, too. For a refused request nginx then gets the response of `refusal`: 401
without a valid token or key, 404 for no such application (also for another user's), 413 for a body that is too large,
503 with a reason while it is not up. Beyond a limit of requests nginx answers itself. Since nginx asks for each request
it needs no reload when applications come and go. The address may be cached for a second, the caller's token or key is
checked each time.
"""

from __future__ import annotations

import functools
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt

from accounts import throttle, tokens
from accounts.auth import bearer
from accounts.models import Scope
from datasets.webdav.gate import from_nginx
from kernel import after_commit
from kernel.dispatch import unavailable
from kernel.errors import Refused

from . import callers, demand, keys, proof, reported_metrics, request_limits, token_limits
from .models import Application, State
from .places import Place, Target, place_of
from .records import feedback as caller_feedback
from .records import plan
from .serving import api_errors

OWN_SITE = ("", "none", "same-origin", "same-site")
CSP = "default-src 'none'; style-src 'self'"


def for_nginx(view):
    """Decorate a view that only nginx may call; everybody else gets 404. What it raises is answered with 503."""

    @csrf_exempt
    @functools.wraps(view)
    def wrapper(request: HttpRequest) -> HttpResponse:
        if not from_nginx(request):
            return HttpResponse(status=404)
        try:
            return view(request)
        except Exception as problem:  # with a 500, nginx would take it for an error of the application
            return unavailable(request, problem)

    return wrapper


class Asked(Protocol):
    """What is read of a request: its headers, and `user` where there is a session."""

    META: Mapping[str, str]


FAILED = "HTTP_X_APP_FAILED"  # the beginning of the URL where nginx had no answer
HELD = "HTTP_X_APP_HELD"  # nginx waits for the turn of the request


@dataclass(frozen=True)
class Verdict:
    """Where requests go: `admitted` of them to the place, the others may try again after `wait_s`. Without a place none
    is admitted: there is no such application, or it is not for this caller. `key` is the row of the key by which it is
    opened, `spent`: that key has used its tokens of the day; `counted`: whose requests a minute they count in.
    """

    place: Place | None
    admitted: int = 0
    wait_s: int = 0
    key: int | None = None
    spent: bool = False
    counted: str = ""


REFUSED = Verdict(None)


@for_nginx
def route(request: HttpRequest) -> HttpResponse:
    """Return 204 with X-App-Base and X-App-Secret if the application is up and the caller may use it, else 403."""
    verdict = allowed(request)
    if verdict.place is None or not verdict.admitted:  # what is refused wakes no application
        return HttpResponse(status=403, headers=headers_of_refusal(verdict, request.META))
    target = _any_target(verdict.place, request.META)
    if target is None:
        return HttpResponse(status=403, headers=headers_of_refusal(verdict, request.META))
    return HttpResponse(status=204, headers=headers_of(verdict, verdict.place, target, request.META))


def _any_target(place: Place, meta: Mapping[str, str]) -> Target | None:
    """Return one of the runs, at random: their load is not known here. An application that sleeps is woken."""
    failed = meta.get(FAILED, "")
    if place.balanced:
        demand.note_request(place.app_id)
        if place.asleep and demand.may_ask(place.app_id):
            after_commit.enqueue("apps.wake", place.app_id)
    preferred = place.preferred(place.draw(meta))
    targets = [target for target in preferred if target.base != failed]
    targets = targets or [target for target in place.targets if target.base != failed]
    return secrets.choice(targets) if targets else None


def headers_of(verdict: Verdict, place: Place, target: Target, meta: Mapping[str, str]) -> dict[str, str]:
    """Return what nginx needs to know to send a request to a run of an application."""
    headers = {"X-App-Base": target.base, proof.HEADER: target.secret}
    if target.model:
        headers["X-App-Model"] = target.model
    if place.canary is not None:  # callers name either model, whichever answers
        headers["X-App-Also"] = place.canary.target.model
    if verdict.key is not None:
        headers[keys.ID_HEADER] = keys.opaque_id(verdict.key)
    if place.record:
        headers[plan.HEADER] = place.record
        headers["X-App-Arm"] = place.arm(target)
    if place.body_mib:
        headers["X-App-Body"] = str(callers.most_bytes(place.body_mib))
    if place.answer_s:
        headers["X-App-Time"] = str(min(place.answer_s, settings.APP_ANSWER_S))
    return headers | _origin_headers(place, meta)


def headers_of_refusal(verdict: Verdict, meta: Mapping[str, str]) -> dict[str, str]:
    """Return what nginx needs to know to answer a request beyond a limit, which nobody else is asked about; nothing for
    others.
    """
    if not verdict.wait_s or verdict.place is None:
        return {}
    spent = {"X-App-Spent": "1"} if verdict.spent else {}
    return {"X-App-Wait": str(verdict.wait_s), **spent, **_origin_headers(verdict.place, meta)}


def _origin_headers(place: Place, meta: Mapping[str, str]) -> dict[str, str]:
    vary = "Origin" if place.origins and callers.ANY not in place.origins else ""
    headers = {"X-App-Vary": vary, "X-App-Origin": callers.allowed_origin(place.origins, meta)}
    return {name: value for name, value in headers.items() if value}


def allowed(request: Asked, times: int = 1) -> Verdict:
    """Judge requests that have arrived together; `times` is how many like this one."""
    place = place_of(request.META.get("HTTP_X_APP_USER", ""), request.META.get("HTTP_X_APP_NAME", ""))
    if place is None:
        return REFUSED
    key = _key(request)
    if key is not None and key.app_id != place.app_id:
        key = None  # it opens another one
    if key is not None:
        subject, rate = f"key:{key.pk}", key.rate
    elif place.public and place.address_rate and not _may(caller(request), place):
        network = throttle.network(throttle.client_address(request))
        subject, rate = f"app:{place.app_id}:{network}", place.address_rate
    elif place.public or _may(caller(request), place):
        subject, rate = "", None
    else:
        return REFUSED
    if _too_large(request.META, place.body_mib):
        return Verdict(place)
    row, counted = key.pk if key is not None else None, subject if rate else ""
    if request.META.get(FAILED) or request.META.get(HELD):  # it was counted at the first try
        admitted = times if place.balanced or not request.META.get(FAILED) else 0
        return Verdict(place, admitted, key=row, counted=counted)
    if key is not None and (wait_s := token_limits.wait_s(key)):
        return Verdict(place, wait_s=wait_s, key=row, spent=True)
    admitted, wait_s = request_limits.take(subject, rate, times) if rate else (times, 0)
    if key is not None and admitted:
        keys.count(key.pk, admitted)
    return Verdict(place, admitted, wait_s, row, counted=counted)


def give_back(verdict: Verdict) -> None:
    """Let a request not count that was admitted, and then refused before it was sent to a run."""
    if verdict.counted:
        request_limits.give_back(verdict.counted)
    if verdict.key is not None:
        keys.count(verdict.key, -1)


def _too_large(meta: Mapping[str, str], body_mib: int | None) -> bool:
    """Return whether the body is longer than the application takes, where its length is known beforehand."""
    length = meta.get("HTTP_X_APP_LENGTH", "")
    return length.isdigit() and int(length[:20]) > callers.most_bytes(body_mib)


def _key(request: Asked) -> keys.Caller | None:
    """Return the valid key that the request is sent with."""
    text = keys.presented(request.META)
    return keys.lookup(text, throttle.client_address(request)) if text else None


@for_nginx
def refusal(request: HttpRequest) -> HttpResponse:
    """Return why the request was not forwarded, as a page for browsers and as JSON for all others."""
    status, message, app = judge(request)
    if status == 200 and (request.headers.get("X-App-Large") or _too_large(request.META, app.body_mib)):
        status, message = 413, _("body: too large, at most %(most)s MiB") % {"most": app.body_mib or callers.BODY_MIB}
    elif status == 200 and request.headers.get("X-App-Late", "-")[-1:].isdigit():
        message = _("The application did not respond within %(seconds)s s (MLP_APP_ANSWER_S).")
        status, message = 503, message % {"seconds": request.headers.get("X-App-Answer-S")}
    elif status == 200:  # ready in the database, but it did not answer: it has just crashed and will be restarted
        status, message = 503, _("The application is not responding and is being restarted.")
    headers = {"Cache-Control": "no-store", **callers.cors_headers(_origins(request), request.META)}
    if status == 503:
        headers["Retry-After"] = "2"
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if "text/html" not in request.headers.get("Accept", ""):
        return JsonResponse(_error(request, status, message), status=status, headers=headers)
    starting = app is not None and (app.asleep or app.state == State.CREATING)
    context = {"code": status, "message": message, "app": app, "starting": starting}
    response = render(request, "apps/refusal.html", context, status=status)
    for name, value in {**headers, "Content-Security-Policy": CSP}.items():
        response[name] = value
    return response


@for_nginx
def metric(request: HttpRequest) -> HttpResponse:
    """Count what a caller reports of an answer, `{"model": "churnv2", "value": 1}`, while a canary is up whose plan has
    a metric. It counts in the caller's requests a minute.
    """
    status, body, headers = _report(request)
    headers |= {"Cache-Control": "no-store", **callers.cors_headers(_origins(request), request.META)}
    return JsonResponse(body, status=status, headers=headers)


@for_nginx
def feedback(request: HttpRequest) -> HttpResponse:
    """Store what a caller says of an answer, `{"id": "…", "value": 1, "comment": "…"}`. It counts in the caller's
    requests a minute.
    """
    status, body, headers = _give_feedback(request)
    headers |= {"Cache-Control": "no-store", **callers.cors_headers(_origins(request), request.META)}
    return JsonResponse(body, status=status, headers=headers)


Answer = tuple[int, dict, dict[str, str]]  # status, body and headers


def _give_feedback(request: HttpRequest) -> Answer:
    verdict = allowed(request)
    place, refused = verdict.place, _no_report(request, verdict)
    if place is None or refused is not None:
        return refused or (404, {}, {})
    try:
        given = json.loads(request.body) if request.method == "POST" else None
    except (ValueError, RecursionError):
        given = None
    try:
        caller_feedback.give(place.app_id, verdict.key, given)
    except caller_feedback.Unknown as problem:
        return _said(404, problem.msg)
    except Refused as problem:
        return _said(400, problem.msg)
    return 201, {"stored": True}, {}


def _said(status: int, message: str, headers: dict[str, str] | None = None) -> Answer:
    return status, {"error": str(message), "msg": str(message)}, headers or {}


def _no_report(request: HttpRequest, verdict: Verdict) -> Answer | None:
    """Return why a caller may not report on an application; None where it may."""
    place = verdict.place
    if place is None or (verdict.key is None and not _may(caller(request), place)):
        status, message, _app = judge(request)
        if status == 200:  # of a public application, whose callers anybody is
            status, message = 401, _("A report needs a key of the application, or its owner's token.")
        return _said(status, message, {"WWW-Authenticate": "Bearer"} if status == 401 else {})
    if not verdict.admitted:
        message = _("Too many requests; try again in %(seconds)s s.") % {"seconds": verdict.wait_s}
        return _said(429, message, {"Retry-After": str(verdict.wait_s)})
    return None


def _report(request: HttpRequest) -> Answer:
    """Return the answer to a report."""
    verdict = allowed(request)
    place, refused = verdict.place, _no_report(request, verdict)
    if place is None or refused is not None:
        return refused or (404, {}, {})
    try:
        given = json.loads(request.body)
        model, value = given.pop("model"), reported_metrics.checked(given.pop("value"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        given, model, value = {"?": ""}, "", None
    if request.method != "POST" or given or not isinstance(model, str) or value is None:
        message = _('Send a POST with the model that answered and a number: {"model": "%(model)s", "value": 1}')
        message %= {"model": place.targets[0].model if place.canary and place.targets else "churnv2"}
        return _said(400, message)
    return 200, {"counted": _count(place, model, value)}, {}


def _count(place: Place, model: str, value: float) -> bool:
    """Count a report; return whether it was: a canary with a metric is up, of which the model is one of the two."""
    canary = place.canary
    if canary is None or not canary.metric or model not in {target.model for target in place.targets}:
        return False
    which = reported_metrics.NEW if model == canary.target.model else reported_metrics.OLD
    return reported_metrics.add(canary.step, which, value)


@for_nginx
def preflight(request: HttpRequest) -> HttpResponse:
    """Answer what a browser asks before the request of a page of another origin, without asking the application.

    No token or key comes with it, so that it is answered alike for applications that are private, down or unknown.
    """
    headers = callers.preflight_headers(_origins(request), request.META)
    if headers is not None:
        return HttpResponse(status=204, headers=headers)
    message = _("Pages of this origin may not call the application: its owner lists the origins that may.")
    return JsonResponse(_error(request, 403, message), status=403, headers={"Vary": "Origin"})


def _error(request: HttpRequest, status: int, message: str) -> dict:
    """Return the body of a refusal, in the form of OpenAI's API where its clients read it (nginx knows the address)."""
    if request.headers.get("X-App-Openai"):
        return api_errors.content(status, message, code=api_errors.CODES.get(status))
    return {"error": message, "msg": message}


def _origins(request: HttpRequest) -> list[str]:
    """Return the origins that the owner of the application has listed."""
    names = request.headers.get("X-App-User", ""), request.headers.get("X-App-Name", "")
    rows = Application.kept.filter(user__username=names[0], name=names[1])
    return rows.values_list("origins", flat=True).first() or []


def judge(request: HttpRequest) -> tuple[int, str, Application | None]:
    """Return (status, message, the application if the caller may use it)."""
    user, name = request.headers.get("X-App-User", ""), request.headers.get("X-App-Name", "")
    app = Application.objects.filter(user__username=user, name=name).select_related("user").first()
    who = caller(request)
    if app is None or not (app.public or _may(who, app) or _opens(_key(request), app)):
        if who is None:
            return 401, _("This needs a key of the application, or its owner's token: send Authorization: Bearer "
                          "{key}."), None  # fmt: skip
        return 404, _("There is no application at this address."), None
    if app.state == State.READY and not app.asleep:
        return 200, "", app
    if app.state in (State.CREATING, State.READY):
        message = _("The application is starting.") + (f" {app.reason.splitlines()[0]}" if app.reason else "")
        return 503, message, app
    if app.state == State.ERROR:
        return 503, _("The application is down: %(reason)s") % {"reason": app.reason.partition("\n")[0]}, app
    return 404, _("There is no application at this address."), None


def caller(request: Asked) -> tuple[int, bool] | None:
    """Return (user id, is staff) by bearer token, or by session if the request comes from the platform's own site.

    A token that is only for this application makes nobody an administrator.
    """
    meta = request.META
    header = meta.get("HTTP_AUTHORIZATION", "")
    if keys.presented(meta):
        return None  # a key is nobody's token, and a session does not replace it
    if header:
        try:
            token = bearer(header)
        except Refused:
            return None
        holder = tokens.user_holder(token, narrow=True, address=throttle.client_address(request)) if token else None
        if holder is None or holder.scope not in (Scope.FULL, Scope.APPLICATION):
            return None
        if holder.scope == Scope.FULL:
            return holder.user_id, holder.is_administrator
        names = meta.get("HTTP_X_APP_USER", ""), meta.get("HTTP_X_APP_NAME", "")
        return (holder.user_id, False) if names == (holder.username, holder.target) else None
    if meta.get("HTTP_SEC_FETCH_SITE", "") not in OWN_SITE or meta.get("HTTP_ORIGIN") == "null":
        return None
    user = getattr(request, "user", None)
    return (user.pk, user.is_administrator) if user is not None and user.is_authenticated else None


def _opens(key: keys.Caller | None, app: Application) -> bool:
    return key is not None and key.app_id == app.pk


def _may(who: tuple[int, bool] | None, app: Application | Place) -> bool:
    return who is not None and (who[0] == app.user_id or who[1])

"""The subrequests of the workspaces' gateway for each request (supervision/workspaces.conf.tmpl).

`route` returns the address of the workspace, the secret of its run (apps.proof) and the digest of the login, or 403.
At `-ssh`, where no browser goes, the login is the owner's token.
For a refused request nginx then gets the response of `refusal`: a browser that opens a page is sent to be let in, all
others get 401, 403, 404 or 503. `enter` is where it comes back to with its code (entering.py).

A request that changes something, or opens a websocket, has to come from a page of the same origin, whatever the
workspace's program thinks of it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from accounts.auth import bearer
from apps import proof
from apps.gateway_access import for_nginx
from apps.places import nginx_base
from kernel import sockets
from kernel.errors import Refused

from . import addresses, entering
from .models import State, Workspace

CSP = "default-src 'none'; style-src 'self'"
OWN_SITE = ("", "none", "same-origin")
MAX_PLACES = 10_000
MARK_S = 600
SSH = "-ssh"


class Place(NamedTuple):
    """The address of a workspace that is up, for one login; `until` on the monotonic clock."""

    base: str
    secret: str
    until: float


_places: dict[tuple[str, str, str], Place] = {}


def cookie_name() -> str:
    """Return the name of the cookie with the login of a browser."""
    return "__Secure-workspace" if settings.SESSION_COOKIE_SECURE else "workspace"


def mark_name() -> str:
    """Return the name of the random cookie of a browser that is being let in."""
    return "__Secure-workspace-mark" if settings.SESSION_COOKIE_SECURE else "workspace-mark"


@for_nginx
def route(request: HttpRequest) -> HttpResponse:
    """Return 204 with X-Workspace-Base, -Secret and -Login for the browser of the owner or a guest,
    and the owner's client of SSH, else 403.
    """
    user, name = _named(request.META)
    if not addresses.is_right_host(request.META.get("HTTP_HOST", ""), user) or not is_own_page(request.META):
        return HttpResponse(status=403)
    login = _login(request)
    place = _place(user, name, login)
    if place is None:
        return HttpResponse(status=403)
    headers = {"Base": place.base, "Secret": place.secret, "Login": entering.digest(login)}
    return HttpResponse(status=204, headers={f"X-Workspace-{key}": value for key, value in headers.items()})


def _login(request: HttpRequest) -> str:
    """Return the login of a browser, or the token of a client of SSH, which opens that one address only."""
    user, name = _named(request.META)
    if request.META.get("HTTP_X_WORKSPACE_URI", "") != f"/{user}/{name}/{SSH}":
        return request.COOKIES.get(cookie_name(), "")
    try:
        return bearer(request.META.get("HTTP_X_WORKSPACE_AUTHORIZATION", "")) or ""
    except Refused:
        return ""


def _named(meta: Mapping[str, str]) -> tuple[str, str]:
    return meta.get("HTTP_X_WORKSPACE_USER", ""), meta.get("HTTP_X_WORKSPACE_NAME", "")


def is_own_page(meta: Mapping[str, str]) -> bool:
    """Return whether a request may come from a page of the workspace itself, or opens such a page.

    Browsers send Origin with websockets and with all methods that change something, and Sec-Fetch-Site where the
    address of the page is https or of the loopback interface. What sends neither is no browser, and has no cookie that
    it was not given.
    """
    method, upgrade = meta.get("HTTP_X_WORKSPACE_METHOD", ""), meta.get("HTTP_X_WORKSPACE_UPGRADE", "")
    origin, site = meta.get("HTTP_ORIGIN", ""), meta.get("HTTP_SEC_FETCH_SITE", "")
    opens = method == "GET" and not upgrade and meta.get("HTTP_SEC_FETCH_MODE", "") == "navigate"
    if site not in OWN_SITE and not (opens and meta.get("HTTP_SEC_FETCH_DEST", "") == "document"):
        return False
    return not origin or urlsplit(origin).netloc == meta.get("HTTP_HOST", "") != ""


def _place(user: str, name: str, login: str) -> Place | None:
    """Return where the workspace is, for a login of its owner or of a guest."""
    now, key = time.monotonic(), (user, name, login)
    place = _places.get(key)
    if place is not None and now < place.until:
        return place
    _places.pop(key, None)
    rows = Workspace.objects.filter(user__username=user, name=name, state=State.READY)
    row = rows.values_list("pk", "user_id", "run_name", "address").first()
    if row is None or not entering.is_let_in(login, row[0], row[1]):
        return None
    try:
        base = nginx_base(sockets.parse(row[3]))
    except OSError:
        return None
    if len(_places) >= MAX_PLACES:
        _places.clear()
    place = _places[key] = Place(base, proof.secret(row[2]), now + entering.PLACE_S)
    return place


@for_nginx
def refusal(request: HttpRequest) -> HttpResponse:
    """Return why a request was not forwarded; a browser that opens a page is sent to be let in."""
    user, name = _named(request.META)
    plain = request.META.get("HTTP_X_WORKSPACE_METHOD") == "GET" and not request.META.get("HTTP_X_WORKSPACE_UPGRADE")
    wants_page = plain and "text/html" in request.headers.get("Accept", "")
    row = Workspace.objects.filter(user__username=user, name=name).first()
    login = _login(request)
    known = row is not None and entering.is_let_in(login, row.pk, row.user_id)
    if not addresses.is_right_host(request.get_host(), user):
        return _refused(request, 404, _("There is no workspace at this address."), wants_page)
    if not known:
        if wants_page:
            return _to_platform(request, user, name)
        words = _("Open the workspace from its page on the platform.")
        if login.startswith(entering.TOKEN):
            words = _("This needs a token of the workspace's owner that may do everything.")
        return _refused(request, 401, words, wants_page)
    if not is_own_page(request.META):
        return _refused(request, 403, _("Pages of other origins cannot act on a workspace."), wants_page)
    if row.state == State.CREATING:
        return _refused(request, 503, _("The workspace is starting."), wants_page, refresh=True)
    if row.state == State.READY:  # it has just ended, or does not respond
        return _refused(request, 503, _("The workspace does not respond; if it has ended, it is started again."),
                        wants_page, refresh=True)  # fmt: skip
    return _refused(request, 503, _("The workspace does not run. Start it on its page."), wants_page)


def _to_platform(request: HttpRequest, user: str, name: str) -> HttpResponse:
    """Give the browser a random cookie, and send it to the platform's page that knows its session."""
    cookie = request.COOKIES.get(mark_name(), "")
    if len(cookie) < 40:
        cookie = secrets.token_urlsafe(32)
    wanted = request.META.get("HTTP_X_WORKSPACE_URI", "")
    query = urlencode({"mark": entering.digest(cookie), "next": wanted})
    page = f"{addresses.platform(request)}/workspaces/of/{quote(user)}/{quote(name)}/enter?{query}"
    response = HttpResponseRedirect(page, headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
    _set_cookie(response, mark_name(), cookie, user, name, MARK_S)
    return response


def _set_cookie(response: HttpResponse, key: str, value: str, user: str, name: str, seconds: int) -> None:
    response.set_cookie(
        key, value, max_age=seconds, path=f"/{user}/{name}/", httponly=True, samesite="Lax",
        secure=settings.SESSION_COOKIE_SECURE,
    )  # fmt: skip


@for_nginx
def enter(request: HttpRequest) -> HttpResponse:
    """Take the code that the platform's page has given this browser, and give it a login."""
    user, name = _named(request.META)
    code = request.GET.get("code", "")[:100]
    row = Workspace.objects.filter(user__username=user, name=name).first()
    text = ""
    if row is not None and addresses.is_right_host(request.get_host(), user):
        text = entering.redeem(code, request.COOKIES.get(mark_name(), ""), row)
    if not text:
        words = _("This link has been used, or is too old. Open the workspace from its page on the platform.")
        return _refused(request, 403, words, True)
    base = f"/{user}/{name}/"
    wanted = request.GET.get("next", "")
    target = wanted if wanted.startswith(base) and "\\" not in wanted else f"{base}lab"
    response = HttpResponseRedirect(target, headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
    _set_cookie(response, cookie_name(), text, user, name, entering.LOGIN_S)
    _set_cookie(response, mark_name(), "", user, name, 0)  # as it was set: else a browser would keep it with TLS
    return response


def _refused(request: HttpRequest, status: int, words: str, page: bool, refresh: bool = False) -> HttpResponse:
    headers = {"Cache-Control": "no-store"} | ({"Retry-After": "2"} if status == 503 else {})
    if not page:
        return JsonResponse({"msg": words, "message": words}, status=status, headers=headers)
    _user, name = _named(request.META)
    context = {"words": words, "refresh": refresh, "back": f"{addresses.platform(request)}/workspaces/{quote(name)}"}
    response = render(request, "workspaces/refusal.html", context, status=status)
    for header, value in {**headers, "Content-Security-Policy": CSP}.items():
        response[header] = value
    return response

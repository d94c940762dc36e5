"""The pages of second factors: giving one at a log-in, and adding and removing them in the account."""

from __future__ import annotations

import json
from functools import partial, wraps
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib import messages
from django.http import JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from accounts import logins, sessions, throttle
from kernel.errors import Refused
from kernel.messages import translate
from kernel.pages import Problems, address, attempt, number_in, problems_of, safe_next, why_not

from . import entering, factors

SECRET = "second_factor_secret"  # in the session: of an app that is being added
STATE = "passkey"  # in the session: the challenge that the browser has been given
BACK = "/account/security"


# --- giving one at a log-in ---------------------------------------------------------------------------------------
@sensitive_post_parameters("code")
@never_cache
@require_http_methods(["GET", "POST"])
def second_factor(request):
    """Ask for the second factor of who has given the password."""
    user, target = entering.waiting(request)
    if user is None:
        return redirect("regist_login")
    problems = Problems()
    if request.method == "POST":
        problems = problems_of(lambda: factors.check_code(request, user, request.POST.get("code", "")), ("code",))
        if not problems:
            return entering.finish(request, user, target, proven=True)
    kinds = {factor.kind for factor in factors.factors_of(user)}
    context = {"problems": problems, "kinds": kinds, "passkeys": factors.passkeys_work(address(request))}
    response = render(request, "signin/second_factor.html", context, status=problems.status if problems else 200)
    if problems.retry_after_s:
        response["Retry-After"] = str(problems.retry_after_s)
    return response


@never_cache
@require_POST
def use_passkey(request):
    """Log in with a passkey, as the second factor or alone: first the challenge, then the browser's answer to it."""
    user, target = entering.waiting(request)
    try:
        body = _body(request)
        if "credential" not in body:
            throttle.count_sign_in(throttle.client_address(request))
            options, request.session[STATE] = factors.begin_use(user, address(request))
            return JsonResponse(options)
        state = request.session.pop(STATE, None)
        if not state:
            raise Refused("the sign-in has taken too long; start again")
        owner = factors.use_passkey(user, address(request), state, body["credential"])
        if not owner.is_active:
            raise Refused("this account is not active; an administrator can activate it")
    except Refused as refused:
        return JsonResponse({"msg": translate(refused.problem)}, status=403)
    way = entering.finish(request, owner, target or _target(body), proven=True)
    answer = JsonResponse({"next": way["Location"]})
    answer.cookies = way.cookies
    return answer


def _target(body: dict) -> str:
    wanted = body.get("next")
    good = isinstance(wanted, str) and wanted.startswith("/") and not wanted.startswith(("//", "/\\"))
    return wanted if good else settings.LOGIN_REDIRECT_URL


# --- the account's ------------------------------------------------------------------------------------------------
def _of_owner(view):
    """Let in a user who is logged in, or is at the second step of a log-in and has to set up a second factor there."""

    @wraps(view)
    def wrapped(request):
        user, _target = entering.waiting(request)
        at_log_in = not request.user.is_authenticated and user is not None and not factors.has(user)
        if not (request.user.is_authenticated or at_log_in):
            return redirect(f"{reverse('regist_login')}?next={request.path}")
        request.owner, request.at_log_in = (user, True) if at_log_in else (request.user, False)
        return view(request)

    return wrapped


@_of_owner
@never_cache
@require_http_methods(["GET", "POST"])
def security(request):
    """Show the second factors. A POST proves with the password that it still is the owner who asks."""
    problems = Problems()
    if request.method == "POST" and not request.at_log_in:
        given = request.POST.get("current", "")
        problems = problems_of(lambda: logins.confirm(request.owner, given), ("current",))
        if not problems:
            sessions.prove(request)
            return redirect(safe_next(request, BACK))
    return _security(request, problems)


def _security(request, problems: Problems, codes: list[str] | None = None):
    fresh = request.at_log_in or sessions.is_fresh(request)
    rows = list(factors.factors_of(request.owner))
    for each in rows:
        each.undeletable = why_not(partial(factors.require_other, request.owner, each))
    context = {
        "owner": request.owner, "at_log_in": request.at_log_in, "fresh": fresh, "problems": problems, "codes": codes,
        "rows": rows, "left": request.owner.recovery_codes.count(), "next": BACK,
        "required": factors.required(request.owner), "passkeys": factors.passkeys_work(address(request)),
        "can_confirm": request.owner.has_usable_password(),
        "full": why_not(lambda: factors.require_room(request.owner)),
    }  # fmt: skip
    if fresh and not codes:
        context |= _new_app(request)
    return render(request, "signin/security.html", context, status=problems.status if problems else 200)


def _new_app(request) -> dict:
    import segno

    secret = request.session.setdefault(SECRET, factors.new_secret())
    uri = factors.app_address(request.owner, secret, urlsplit(address(request)).hostname or "")
    picture = segno.make(uri).svg_data_uri(scale=4, border=2, light="white", dark="black")
    return {"secret": " ".join(secret[at : at + 4] for at in range(0, len(secret), 4)), "picture": picture}


@sensitive_post_parameters()
@_of_owner
@never_cache
@require_POST
def add_app(request):
    secret, factors_added = request.session.get(SECRET, ""), []
    if not secret or not (request.at_log_in or sessions.is_fresh(request)):
        return redirect("security")
    given, name = request.POST.get("code", ""), request.POST.get("name", "")
    problems = problems_of(lambda: factors_added.append(factors.add_app(request.owner, secret, given, name)), ("code",))
    if problems:
        return _security(request, problems)
    request.session.pop(SECRET, None)
    return _added(request, factors_added[0])


@_of_owner
@never_cache
@require_POST
def add_passkey(request):
    """Add a passkey: first the challenge, then what the browser has made of it."""
    try:
        body = _body(request)
        if not (request.at_log_in or sessions.is_fresh(request)):
            raise Refused("the log-in is too long ago; reload the page and confirm your password")
        if "credential" not in body:
            options, request.session[STATE] = factors.begin_passkey(request.owner, address(request))
            return JsonResponse(options)
        state = request.session.pop(STATE, None)
        if not state:
            raise Refused("the sign-in has taken too long; start again")
        name = body.get("name") if isinstance(body.get("name"), str) else ""
        codes = factors.add_passkey(request.owner, address(request), state, body["credential"], name)
    except Refused as refused:
        return JsonResponse({"msg": translate(refused.problem)}, status=403)
    return _added(request, codes)


def _added(request, codes: list[str]):
    """Answer with the page that shows the recovery codes once; a log-in that had to wait for this is completed."""
    cookies = None
    if request.at_log_in:
        _user, target = entering.waiting(request)
        cookies = entering.finish(request, request.owner, target, proven=True).cookies
        request.at_log_in = False
    else:
        request.session[entering.PROVEN] = True  # given just now, when it was added
    messages.success(request, _("The second factor is added."))
    response = _security(request, Problems(), codes) if codes else redirect("security")
    if cookies:
        response.cookies.update(cookies)
    return response


@_of_owner
@require_POST
def remove(request):
    if not sessions.is_fresh(request) or request.at_log_in:
        return redirect("security")
    problem = attempt(lambda: factors.remove(request.owner, number_in(request.POST.get("factor", "")) or 0))
    if problem:
        messages.error(request, problem)
    else:
        messages.success(request, _("The second factor is removed."))
    return redirect("security")


@_of_owner
@never_cache
@require_POST
def renew_codes(request):
    if not sessions.is_fresh(request) or request.at_log_in or not factors.has(request.owner):
        return redirect("security")
    return _security(request, Problems(), factors.renew_codes(request.owner))


def _body(request) -> dict:
    try:
        body = json.loads(request.body or b"{}")
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise Refused("the browser's answer is not valid: %(why)s", why="JSON")
    return body

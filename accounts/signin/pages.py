"""The pages of a sign-in at a provider: there, back, connected accounts, and the end of the session there."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout as close_session
from django.contrib.auth.decorators import login_required
from django.http import Http404
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from accounts import sessions, throttle
from kernel.errors import Refused
from kernel.messages import translate
from kernel.pages import address, attempt, number_in, safe_next

from . import entering, oidc, people

STARTED = "signin"  # in the session: where a sign-in leads to, and whose account it is to be connected with
ENDS = "signin_ends"  # in the session: the provider and the ID token, with which the session there ends


def _provider(key: str):
    provider = oidc.provider_of(key)
    if provider is None:
        raise Http404
    return provider


@never_cache
@require_GET
def start(request, provider):
    """Send the browser to the provider. It is a link: a form that leads to another origin would be blocked."""
    row = _provider(provider)
    target = safe_next(request, settings.LOGIN_REDIRECT_URL)
    waiting = request.session.get(STARTED, {})
    connects = waiting.get("connect") == row.key and request.user.is_authenticated
    back = address(request) + reverse("signin_back", args=[row.key])
    try:
        throttle.count_sign_in(throttle.client_address(request))
        there = oidc.start(request, row, back)
    except Refused as refused:
        return _refused(request, refused)
    request.session[STARTED] = {"next": target, "connects": request.user.pk if connects else 0}
    return redirect(there)


@never_cache
@require_GET
def back(request, provider):
    """Take the provider's answer: log in, or connect the account with the one that is logged in."""
    row = _provider(provider)
    started = request.session.pop(STARTED, {})
    try:
        person, id_token = oidc.finish(request, row)
        if started.get("connects"):
            if request.user.pk != started["connects"]:
                raise Refused("you are no longer logged in; log in and connect the account again")
            people.connect(request.user, person)
            messages.success(request, _("You can log in with %(provider)s from now on.") % {"provider": row.label})
            return redirect("account")
        user = people.enter(person, row.rules)
    except Refused as refused:
        return _refused(request, refused)
    response = entering.enter(
        request, user, started.get("next") or settings.LOGIN_REDIRECT_URL, proven=not row.second_factor
    )
    request.session[ENDS] = {"provider": row.key, "token": id_token if len(id_token) < 8000 else ""}
    return response


@login_required
@require_POST
def connect(request, provider):
    """Begin to connect the account with one at the provider."""
    row = _provider(provider)
    if not sessions.is_fresh(request):  # a stolen session must not gain a way in that lasts
        messages.info(request, _("Prove first that it is you, then connect the account."))
        return redirect("security")
    request.session[STARTED] = {"connect": row.key}
    return _leave(request, reverse("signin_start", args=[row.key]), row.label)


@login_required
@require_POST
def disconnect(request):
    problem = attempt(lambda: people.disconnect(request.user, number_in(request.POST.get("identity", "")) or 0))
    if problem:
        messages.error(request, problem)
    else:
        messages.success(request, _("The connection is ended."))
    return redirect("account")


@require_POST
def logout(request):
    """End the session here, and at the provider that it was opened with."""
    ends = request.session.get(ENDS) or {}
    row = oidc.provider_of(ends.get("provider", ""))
    close_session(request)
    there = oidc.end_address(row, ends["token"], address(request) + reverse("regist_login")) if row else ""
    return _leave(request, there, row.label) if there else redirect(settings.LOGOUT_REDIRECT_URL)


def _leave(request, there: str, label: str):
    """Show a page that goes on to the address: browsers block a form whose answer redirects to another origin."""
    return render(request, "signin/leave.html", {"there": there, "label": label})


def _refused(request, refused: Refused):
    messages.error(request, translate(refused.problem))
    return redirect("account" if request.user.is_authenticated else "regist_login")

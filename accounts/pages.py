"""Registering, logging in and out, and a user's own account, in the browser (contract 7)."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login as open_session
from django.contrib.auth import logout as close_session
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from mlp.kernel.errors import Fault, Refused
from mlp.kernel.pages import attempt, safe_next

from . import lifecycle, throttle
from .auth import login

BACKEND = "django.contrib.auth.backends.ModelBackend"


@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "POST"])
def regist_login(request):
    """One page for both; `action` is login or register. Ends at the index, or where `next` leads to."""
    target = safe_next(request, settings.LOGIN_REDIRECT_URL)
    action = "register" if request.POST.get("action", request.GET.get("action")) == "register" else "login"
    context = {"action": action, "next": target, "username": request.POST.get("username", "")}
    if request.method == "GET":
        return (
            redirect(target)
            if request.user.is_authenticated
            else render(request, "accounts/regist_login.html", context)
        )
    try:
        user = _register(request) if action == "register" else _login(request)
    except (Refused, Fault) as problem:
        status = 403 if isinstance(problem, Refused) else 503
        return render(request, "accounts/regist_login.html", {**context, "error": problem.msg}, status=status)
    if not user.is_active:
        messages.info(request, _("You are registered. An operator will activate your account."))
        return redirect("regist_login")
    open_session(request, user, backend=BACKEND)
    return redirect(target)


def _login(request):
    return login(request, request.POST.get("username", ""), request.POST.get("password", ""))


def _register(request):
    throttle.count_registration(throttle.client_address(request))
    username = request.POST.get("username", "")
    return lifecycle.register(
        username=username,
        password=request.POST.get("password", ""),
        active=not settings.REGISTRATION_NEEDS_APPROVAL,
        by=username,
    )


@require_POST
def logout(request):
    close_session(request)
    return redirect(settings.LOGOUT_REDIRECT_URL)


@login_required
@never_cache
def account(request):
    return render(request, "accounts/account.html", {"token": lifecycle.token_of(request.user)})


@login_required
@require_POST
def rotate_token(request):
    problem = attempt(lambda: lifecycle.rotate_token(user=request.user, by=request.user.username))
    messages.error(request, problem) if problem else messages.success(
        request, _("You have a new token; the old one is dead.")
    )
    return redirect(safe_next(request, "account"))


@sensitive_post_parameters()
@login_required
@require_POST
def change_password(request):
    """Asks for the present password; other sessions of the user end."""
    user = request.user
    if not user.check_password(request.POST.get("current", "")):
        messages.error(request, _("That is not your present password."))
        return redirect("account")
    problem = attempt(
        lambda: lifecycle.change_password(user=user, password=request.POST.get("password", ""), by=user.username)
    )
    if problem:
        messages.error(request, problem)
    else:
        user.refresh_from_db()
        update_session_auth_hash(request, user)
        messages.success(request, _("Your password is changed."))
    return redirect("account")


@login_required
@require_POST
def deregister(request):
    """Ends the account for good, when its name was typed as a confirmation."""
    username = request.user.username
    if request.POST.get("confirm") != username:
        messages.error(request, _("Type your username to confirm."))
        return redirect("account")
    problem = attempt(lambda: lifecycle.deregister(username=username, by=username))
    if problem:
        messages.error(request, problem)
        return redirect("account")
    close_session(request)
    messages.success(request, _("You are de-registered."))
    return redirect("regist_login")

"""The pages of registration, log-in, log-out and a user's own account."""

from __future__ import annotations

from functools import partial

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout as close_session
from django.contrib.auth.decorators import login_required
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from kernel import disk
from kernel.pages import Problems, address, attempt, number_in, problems_of, safe_next, why_not

from . import lifecycle, logins, sessions, throttle
from .models import Factor, User
from .signin import entering, factors, people


@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "POST"])
def regist_login(request):
    """Log in or register, by `action`; then redirect to `next`, by default the index.

    Without `action` (the buttons always send it, scripts may not) an existing username logs in, another registers.
    """
    target = safe_next(request, settings.LOGIN_REDIRECT_URL)
    target = settings.LOGIN_REDIRECT_URL if target == "/" else target  # the index's canonical address
    if request.method == "GET":
        return redirect(target) if request.user.is_authenticated else _form(request, target)
    users: list[User] = []
    enter = _register if _action(request) == "register" else _login
    problems = problems_of(lambda: users.append(enter(request)), ("username", "password"))
    if problems:
        return _form(request, target, problems)
    user = users[0]
    if not user.is_active:
        messages.info(request, _("You are registered. An administrator will activate your account."))
        return redirect("regist_login")
    return entering.enter(request, user, target)


def _form(request, target: str, problems: Problems | None = None):
    context = {
        "next": target,
        "username": request.POST.get("username", ""),
        "problems": problems,
        "shortest": settings.PASSWORD_MIN_LENGTH,
        "providers": settings.OIDC_PROVIDERS,
        "directory": settings.LDAP_DIRECTORY is not None,
        "mail": bool(settings.EMAIL_HOST),
        "passkeys": factors.passkeys_work(address(request)) and Factor.objects.filter(kind="passkey").exists(),
    }
    status = problems.status if problems else 200
    response = render(request, "accounts/regist_login.html", context, status=status)
    if problems and problems.retry_after_s:
        response["Retry-After"] = str(problems.retry_after_s)
    return response


def _action(request) -> str:
    action = request.POST.get("action", "")
    if action in {"login", "register"}:
        return action
    return "login" if User.objects.filter(username=_username(request)).exists() else "register"


def _username(request) -> str:
    return request.POST.get("username", "").strip().replace("\x00", "")  # PostgreSQL rejects NUL in a string


def _login(request) -> User:
    return logins.check(request, _username(request), request.POST.get("password", ""))


def _register(request) -> User:
    disk.require()
    throttle.count_registration(throttle.client_address(request))
    username = _username(request)
    with throttle.hashing():
        return lifecycle.register(
            username=username,
            password=request.POST.get("password", ""),
            active=not settings.REGISTRATION_NEEDS_APPROVAL,
            by=username,
        )


@login_required
@never_cache
@require_GET
def account(request):
    return _account(request)


def _account(request, problems: Problems | None = None):
    identities = list(request.user.identities.order_by("pk"))
    for each in identities:
        each.undeletable = why_not(partial(people.require_other_way, request.user, each.pk))
    context = {
        "token": lifecycle.token_of(request.user),
        "tokens": request.user.tokens.exclude(kind="named").order_by("kind", "pk"),
        "sessions": sessions.visits_of(request.user),
        "here": request.session.session_key,
        "identities": identities,
        "providers": settings.OIDC_PROVIDERS,
        "problems": problems,
        "shortest": settings.PASSWORD_MIN_LENGTH,
    }
    return render(request, "accounts/account.html", context, status=problems.status if problems else 200)


@login_required
@require_POST
def end_sessions(request):
    """End the user's sessions in all other browsers."""
    sessions.end_others(request.user, keep=request.session.session_key)
    messages.success(request, _("All other sessions are logged out."))
    return redirect("account")


@login_required
@require_POST
def end_session(request):
    """End one session of the user, in another browser or in this one."""
    visit = request.user.visits.filter(pk=number_in(request.POST.get("session", "")) or 0).first()
    if visit is not None:
        sessions.end(visit)
        messages.success(request, _("The session is logged out."))
    return redirect("account")


@login_required
@require_POST
def rotate_token(request):
    problem = attempt(lambda: lifecycle.rotate_token(user=request.user, by=request.user.username))
    if problem:
        messages.error(request, problem)
    else:
        messages.success(request, _("You have a new token. The old token no longer works."))
    return redirect(safe_next(request, "account"))


@sensitive_post_parameters()
@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def change_password(request):
    """Change the password, after a check of the current one; the user's other sessions end."""
    if request.method == "GET":  # the redirect of a log-in, when the session had expired
        return redirect("account")
    user, current, password = request.user, request.POST.get("current", ""), request.POST.get("password", "")
    problems = problems_of(lambda: logins.confirm(user, current), ("current",)) or problems_of(
        lambda: lifecycle.change_password(user=user, password=password, by=user.username), ("password",)
    )
    if problems:
        return _account(request, problems)
    user.refresh_from_db()
    sessions.renew(request, user)
    messages.success(request, _("Your password is changed."))
    return redirect("account")


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def deregister(request):
    """Deactivate the account, once its name was typed as a confirmation."""
    if request.method == "GET":
        return redirect("account")
    username = request.user.username
    if request.POST.get("confirm", "").strip() != username:
        return _account(request, Problems(fields={"confirm": _("Type your username to confirm.")}))
    problems = problems_of(lambda: lifecycle.deregister(username=username, by=username))
    if problems:
        return _account(request, problems)
    close_session(request)
    messages.success(request, _("Your account is deactivated."))
    return redirect("regist_login")

"""Forgotten passwords: a link by e-mail, with which its reader chooses a new one.

The answer is the same whether there is such an account or not, and takes as long: a task sends the e-mail. The link
works for an hour and once, since it depends on the password and the last log-in. It replaces no second factor, and
gives no password to who logs in at a provider, where leaving a company has to be enough.
"""

from __future__ import annotations

import logging

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.tokens import default_token_generator
from django.core.mail import send_mail
from django.http import Http404
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import get_language, override
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from accounts import lifecycle, logins, sessions, throttle
from accounts.models import Preference, State, User
from kernel import after_commit
from kernel.errors import Refused
from kernel.pages import Problems, number_in, problems_of

log = logging.getLogger(__name__)

SEND = "accounts.send_reset"  # the actor's name: actors import this module


@never_cache
@require_http_methods(["GET", "POST"])
def forgotten(request):
    """Take a username, and have the link sent to the account's e-mail address if there is one."""
    if not settings.EMAIL_HOST:
        raise Http404
    problems = Problems()
    if request.method == "POST":
        problems = problems_of(lambda: _send(request), ("username",))
        if not problems:
            messages.success(
                request,
                _("If the account has a password and an e-mail address, a link is sent to it. It works for an hour."),
            )
            return redirect("regist_login")
    status = problems.status if problems else 200
    response = render(request, "signin/forgotten.html", {"problems": problems}, status=status)
    if problems.retry_after_s:
        response["Retry-After"] = str(problems.retry_after_s)
    return response


def _send(request) -> None:
    username = request.POST.get("username", "").strip().replace("\0", "")[:50]
    if not username:
        raise Refused("is missing", field="username")
    throttle.count_reset(throttle.client_address(request), username)
    after_commit.enqueue(SEND, username, get_language() or "en")


def link_of(user: User) -> str:
    """Return the link. Its host is never that of the request, which a stranger may have sent."""
    return settings.GATEWAY_URL + reverse("choose_password", args=[user.pk, default_token_generator.make_token(user)])


def send(username: str, language: str) -> None:
    """Send the link, where the account has a password and an e-mail address; called by a worker."""
    user = User.objects.filter(username=username, state=State.ACTIVED).first()
    row = user and Preference.objects.filter(user=user).exclude(email="").first()
    if not row or not user.has_usable_password():
        log.info("no link for a new password was sent: %s has no password or no e-mail address", username)
        return
    with override(language):
        text = _(
            "Somebody, probably you, asked for a new password for %(name)s.\n\n%(link)s\n\n"
            "The link works once, for an hour. If it was not you, ignore this e-mail."
        ) % {"name": username, "link": link_of(user)}
        send_mail(_("New password"), text, settings.DEFAULT_FROM_EMAIL, [row.email])
    log.info("a link for a new password was sent to %s", username)


@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "POST"])
def choose(request, user, token):
    """Let the reader of the e-mail choose a new password; all sessions of the account end."""
    row = User.objects.filter(pk=number_in(user) or 0).first()
    good = row is not None and row.is_active and row.has_usable_password()
    if not good or not default_token_generator.check_token(row, token):
        messages.error(request, _("The link has expired or was used. Ask for a new one."))
        return redirect("forgotten" if settings.EMAIL_HOST else "regist_login")
    problems = Problems()
    if request.method == "POST":
        password = request.POST.get("password", "")
        problems = problems_of(
            lambda: lifecycle.change_password(user=row, password=password, by=row.username), ("password",)
        )
        if not problems:
            sessions.end_others(row, keep="")
            logins.forgive(row.username)
            messages.success(request, _("Your password is changed."))
            return redirect("regist_login")
    context = {"problems": problems, "owner": row, "shortest": settings.PASSWORD_MIN_LENGTH}
    response = render(request, "signin/choose.html", context, status=problems.status if problems else 200)
    response["Referrer-Policy"] = "no-referrer"
    return response

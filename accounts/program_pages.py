"""The page on which a user confirms the log-in of a program, by the code that the program prints."""

from __future__ import annotations

from datetime import UTC, datetime

from django.contrib.auth.decorators import login_required
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from kernel.errors import Refused
from kernel.pages import number_in, problems_of

from . import program_logins, throttle
from .models import Scope
from .program_logins import ProgramLogin
from .token_pages import DAYS, USUAL_DAYS


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def confirm(request):
    """Ask for the code; show what asks; make the token that the user allows."""
    logins: list[ProgramLogin] = []
    problems, done = None, ""
    if request.method == "POST":
        problems = problems_of(lambda: logins.append(_waiting(request)), ("code",))
        if logins and request.POST.get("do") in ("allow", "deny"):
            problems = problems_of(lambda: _answer(request, logins[0]), ("scope", "days"))
            done = "" if problems else request.POST["do"]
    context = {
        "login": logins[0] if logins else None,
        "at": datetime.fromtimestamp(logins[0].at, UTC) if logins else None,
        "done": done,
        "typed": request.POST.get("code", ""),
        "scopes": [(value, words) for value, words in Scope.choices if value in program_logins.SCOPES],
        "scope": request.POST.get("scope") or Scope.FULL,
        "days": DAYS,
        "given_days": request.POST.get("days", str(USUAL_DAYS)),
        "problems": problems,
    }
    return render(request, "accounts/program.html", context, status=problems.status if problems else 200)


def _waiting(request) -> ProgramLogin:
    throttle.count_code(request.user.username)  # whatever else is asked with it
    return program_logins.waiting(request.POST.get("code", ""))


def _answer(request, login: ProgramLogin) -> None:
    if request.POST["do"] == "deny":
        program_logins.deny(login)
    else:
        typed = request.POST.get("days", "")
        days = number_in(typed)
        if typed and days is None:
            raise Refused("must be a whole number", field="days")
        program_logins.allow(login, user=request.user, scope=request.POST.get("scope", ""), days=days)

"""The steps of each log-in in a browser after the first proof: a second factor where one is needed, then the session.

Until the second step the session knows only who has passed the first, for ten minutes; nobody is logged in.
"""

from __future__ import annotations

import time

from django.contrib.auth import login as open_session
from django.shortcuts import redirect
from django.utils.crypto import constant_time_compare

from accounts import logins, sessions
from accounts.models import User
from accounts.settings_pages import with_choices

from . import factors

BACKEND = "django.contrib.auth.backends.ModelBackend"
WAITS = "second_factor_of"  # in the session: who has passed the first step
PROVEN = "second_factor"  # in the session: a second factor was given, or the provider vouches for one
WAIT_S = 600


def enter(request, user: User, target: str, *, proven: bool = False):
    """Return the way on after the first step: to the second, or with `proven` past it; the log-in is complete then."""
    if not proven and factors.needed(user):
        request.session.cycle_key()
        request.session[WAITS] = {
            "user": user.pk, "hash": user.get_session_auth_hash(), "next": target, "at": time.time(),
        }  # fmt: skip
        return redirect("second_factor" if factors.has(user) else "security")
    return finish(request, user, target, proven=proven)


def waiting(request) -> tuple[User | None, str]:
    """Return who has passed the first step in this browser, and where the log-in leads to; (None, "") for nobody."""
    step = request.session.get(WAITS) or {}
    if not step or abs(time.time() - step["at"]) > WAIT_S:
        return None, ""
    user = User.objects.filter(pk=step["user"]).first()
    if user is None or not user.is_active or not constant_time_compare(user.get_session_auth_hash(), step["hash"]):
        return None, ""
    return user, step["next"]


def finish(request, user: User, target: str, *, proven: bool = False):
    """Open the user's session and return the way to the target."""
    request.session.pop(WAITS, None)
    open_session(request, user, backend=BACKEND)
    sessions.prove(request)
    if proven:
        request.session[PROVEN] = True
    return logins.entered(request, with_choices(redirect(target), user), user)

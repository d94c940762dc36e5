"""The last step of each log-in in a browser: the session is opened, and the browser is known from now on."""

from __future__ import annotations

from django.contrib.auth import login as open_session
from django.shortcuts import redirect

from accounts import logins
from accounts.settings_pages import with_choices

BACKEND = "django.contrib.auth.backends.ModelBackend"


def enter(request, user, target: str):
    """Open the user's session and return the way to the target."""
    open_session(request, user, backend=BACKEND)
    return logins.entered(request, with_choices(redirect(target), user), user)

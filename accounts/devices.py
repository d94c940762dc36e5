"""The device cookie: a browser that has logged in to an account is known again, also after the log-out.

Failed log-ins are counted for each such browser by itself, so that guessers elsewhere cannot slow its user down
(OWASP's "device cookies"). The cookie gives no access: it is signed, and has a random mark for each account's number.
"""

from __future__ import annotations

import secrets

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponse

from .models import User

SALT = "accounts.devices"
A_YEAR_S = 365 * 86400
MAX_ACCOUNTS = 5  # of one browser


def cookie_name() -> str:
    """Return the cookie's name; under TLS with the prefix that keeps other hosts and plain HTTP from setting it."""
    return "__Host-device" if settings.SESSION_COOKIE_SECURE else "device"


def mark_of(request, user: User | None) -> str:
    """Return the mark that this browser has for the account, "" when it has none."""
    return _marks(request).get(str(user.pk), "") if user is not None else ""


def remember(request: HttpRequest, response: HttpResponse, user: User) -> None:
    """Give the browser a mark for the account that it has just logged in to."""
    marks = _marks(request)
    mark = marks.pop(str(user.pk), "") or secrets.token_urlsafe(12)
    marks = dict(list(marks.items())[1 - MAX_ACCOUNTS :]) | {str(user.pk): mark}
    response.set_cookie(
        cookie_name(),
        signing.dumps(marks, salt=SALT),
        max_age=A_YEAR_S,
        httponly=True,
        samesite="Lax",
        secure=settings.SESSION_COOKIE_SECURE,
    )


def _marks(request) -> dict[str, str]:
    try:
        return signing.loads(request.COOKIES.get(cookie_name(), ""), salt=SALT, max_age=A_YEAR_S)
    except signing.BadSignature:
        return {}

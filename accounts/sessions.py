"""A user's browser sessions: list and end them. Used by the pages, the admin and lifecycle."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from django.conf import settings
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.signals import user_logged_in, user_logged_out
from django.contrib.sessions.models import Session
from django.db import transaction
from django.dispatch import Signal
from django.utils import timezone

from kernel import after_commit

from .models import User, Visit
from .throttle import client_address

log = logging.getLogger(__name__)

ended = Signal()  # sent with the user, in the transaction that ends sessions of theirs
FRESH = "proven_at"  # in the session: when its user last proved who they are
FRESH_S = 900


def is_fresh(request) -> bool:
    """Return whether the user of the session has proved who they are in the last minutes.

    What would give a stolen session a way in that lasts is refused without that.
    """
    return abs(time.time() - request.session.get(FRESH, 0)) < FRESH_S


def prove(request) -> None:
    """Record that the user has proved who they are."""
    request.session[FRESH] = time.time()


def visits_of(user: User) -> list[Visit]:
    """Return the user's sessions that have not expired, newest first."""
    valid = Session.objects.filter(expire_date__gt=timezone.now()).values("session_key")
    return list(Visit.objects.filter(user=user, session_key__in=valid).order_by("-at"))


def end_others(user: User, keep: str) -> int:
    """End all sessions of the user except `keep`, immediately on open pages, too. Return how many ended."""
    with transaction.atomic():
        others = Visit.objects.filter(user=user).exclude(session_key=keep)
        keys = list(others.values_list("session_key", flat=True))
        Session.objects.filter(session_key__in=keys).delete()
        others.delete()
        _note_end(user)
    return len(keys)


def end(visit: Visit) -> None:
    """End one session, immediately on its open pages, too."""
    with transaction.atomic():
        Session.objects.filter(session_key=visit.session_key).delete()
        Visit.objects.filter(pk=visit.pk).delete()
        _note_end(visit.user)


def renew(request, user: User) -> None:
    """Continue this session under a new key and end all others, after the user has changed their password."""
    before = request.session.session_key
    update_session_auth_hash(request, user)
    Visit.objects.filter(user=user, session_key=before).update(session_key=request.session.session_key)
    end_others(user, keep=request.session.session_key)


def _lasts_s(user: User) -> int:
    longest = settings.SESSION_COOKIE_AGE
    return min(longest, settings.ADMIN_SESSION_S) if user.is_staff else longest


def _logged_in(sender, request, user, **_others) -> None:
    now = timezone.now()
    User.objects.filter(pk=user.pk).update(last_login=now)
    # A moment, not a duration: otherwise each change of the session would prolong it.
    request.session.set_expiry(now + timedelta(seconds=_lasts_s(user)))
    if not request.session.session_key:
        request.session.save()
    Visit.objects.update_or_create(
        session_key=request.session.session_key,
        defaults={
            "user": user,
            "agent": request.META.get("HTTP_USER_AGENT", "").replace("\0", "")[:200],
            "address": client_address(request)[:50] if "REMOTE_ADDR" in request.META else "",
        },
    )


def _logged_out(sender, request, user, **_others) -> None:
    """Delete the session before notifying its other pages: Django would delete it only after this signal."""
    key = request.session.session_key
    if user is None or key is None:
        return
    log.info("log-out of %s", user.username)
    with transaction.atomic():
        Session.objects.filter(session_key=key).delete()
        Visit.objects.filter(session_key=key).delete()
        _note_end(user)


def _note_end(user: User) -> None:
    after_commit.changed(user.username, "session", "")
    ended.send(sender=User, user=user)


def listen() -> None:
    # Django's own receiver saves the whole object, which fails when the account is deactivated during the log-in.
    user_logged_in.disconnect(dispatch_uid="update_last_login")
    user_logged_in.connect(_logged_in, dispatch_uid="accounts.sessions")
    user_logged_out.connect(_logged_out, dispatch_uid="accounts.sessions.out")

"""Enqueues due deliveries, deletes old notices, expired sessions and counts of failed log-ins.

Called by `manage.py reconcile`.
"""

from __future__ import annotations

import time
from datetime import timedelta

from django.contrib.sessions.models import Session
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from kernel import after_commit, clock

from . import logins, named_tokens, throttle
from .models import Delivery, Notice, Visit
from .sharing import grants

AT_ONCE = 100
EXPIRED_AT_ONCE = 1000
KEPT = timedelta(days=90)
TIDY_EVERY_S = 3600.0
_tidied = 0.0


def run() -> None:
    global _tidied
    now = timezone.now()
    for pk in _deliveries(now).order_by("not_before").values_list("pk", flat=True)[:AT_ONCE]:
        after_commit.enqueue("accounts.deliver", pk)
    if time.monotonic() - _tidied > TIDY_EVERY_S or not _tidied:
        now = clock.settled(now)  # what is not valid any more is refused at once, and deleted later
        expired = Session.objects.filter(expire_date__lt=now).values_list("pk", flat=True)[:EXPIRED_AT_ONCE]
        removed, _ = Session.objects.filter(pk__in=list(expired)).delete()
        if removed >= EXPIRED_AT_ONCE:
            return  # there may be more: the next round continues
        _tidied = time.monotonic()
        Notice.objects.filter(at__lt=now - KEPT).delete()
        throttle.tidy()
        logins.tidy()
        named_tokens.warn()
        grants.tidy()
        Visit.objects.filter(at__lt=now - timedelta(days=1)).exclude(
            session_key__in=Session.objects.filter(expire_date__gt=now).values("session_key")
        ).delete()


def pending() -> list[QuerySet]:
    """Return what a round is needed for: what is due, by the time of the database."""
    return [_deliveries(Now())]


def _deliveries(now) -> QuerySet:
    """Return what is to be sent; a few seconds late, so that the message enqueued with the row is handled first."""
    return Delivery.objects.filter(open=True, not_before__lt=now - timedelta(seconds=5))

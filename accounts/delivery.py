"""Sends notices by e-mail and webhook. Called by actors; reconcile enqueues the deliveries that are due again.

What a webhook gets is signed so that the receiver can verify the sender: `X-Platform-Signature:
sha256=HMAC-SHA256(secret, body)` with the secret of the settings page. Where it may be is decided by kernel.webhook.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections import Counter

from django.conf import settings
from django.core.mail import send_mail
from django.utils import translation
from django.utils.translation import gettext

from kernel import after_commit, retries, webhook
from kernel.errors import Refused
from kernel.messages import translate
from kernel.telemetry import meters

from .models import Delivery, Notice, Preference, User
from .tokens import signature

log = logging.getLogger(__name__)

MAX_IN_DIGEST = 100  # notices in an e-mail


def _attempt(first: Delivery) -> None:
    """Make an attempt, by e-mail together with all that is due to the same user."""
    rows = [first]
    if first.channel == Delivery.Channel.MAIL:
        beside = SENDER.due().filter(notice__user=first.notice.user, channel=first.channel).exclude(pk=first.pk)
        rows += beside[: MAX_IN_DIGEST - 1]
    rows = sorted(filter(retries.claim, rows), key=lambda row: row.notice_id)
    preference = Preference.objects.filter(user=first.notice.user).first()
    if not rows:
        return
    error = ""
    try:
        if preference is not None:
            send = _mail if first.channel == Delivery.Channel.MAIL else _post_webhook
            send([row.notice for row in rows], preference)
    except Exception as problem:  # a remote server may fail in any way
        error = f"{type(problem).__name__}: {problem}"[:500]
        log.warning("delivery %s by %s failed: %s", first.pk, first.channel, error)
    meters.DELIVERIES.labels(first.channel, "failed" if error else "sent").inc()
    for row in rows:
        retries.settle(row, failed=bool(error), error=error)


SENDER = retries.Sender(Delivery, "notice__user", _attempt)
deliver = SENDER.deliver


def again(row: Delivery) -> None:
    """Start the delivery over, after an administrator has corrected what was wrong."""
    if retries.start_over(row):
        after_commit.enqueue("accounts.deliver", row.pk)


def secret_of(user: User) -> str:
    return signature("webhook", user.pk)


def _post_webhook(notices: list[Notice], preference: Preference) -> None:
    [notice] = notices
    body = json.dumps(as_object(notice)).encode()
    digest = hmac.new(secret_of(notice.user).encode(), body, hashlib.sha256).hexdigest()
    status, _ = webhook.post(preference.webhook, body, {"X-Platform-Signature": f"sha256={digest}"})
    if not 200 <= status < 300:
        raise ConnectionError(f"the webhook answered {status}")


def as_object(notice: Notice) -> dict:
    """Return the JSON object that a webhook receives."""
    return {
        "id": notice.pk,
        "at": notice.at.isoformat(),
        "user": notice.user.username,
        "kind": notice.kind,
        "name": notice.name,
        "title": notice.title,
        "event": notice.event,
        "reason": notice.reason,
        "diagnosis": notice.advice,
        "link": settings.GATEWAY_URL + notice.link if notice.link else "",
    }


def _mail(notices: list[Notice], preference: Preference) -> None:
    if not settings.EMAIL_HOST:
        raise Refused("this platform does not send e-mail", field="email")
    with translation.override(preference.language or settings.LANGUAGE_CODE):
        subject = _subject(notices[0])
        if len(notices) > 1:
            events = Counter(gettext(notice.event) for notice in notices)
            counts = ", ".join(f"{event} {count}" for event, count in events.most_common())
            subject = gettext("%(count)s notifications (%(events)s)") % {"count": len(notices), "events": counts}
        text = "\n\n\n".join(map(_text, notices))
        send_mail(" ".join(subject.split()), text, settings.DEFAULT_FROM_EMAIL, [preference.email])


def _subject(notice: Notice) -> str:
    return f"{gettext(notice.kind)} {notice.shown_name}: {gettext(notice.event)}"


def _text(notice: Notice) -> str:
    link = settings.GATEWAY_URL + (notice.link or "/notifications")
    parts = (_subject(notice), translate(notice.advice), translate(notice.reason), link)
    return "\n\n".join(part for part in parts if part)

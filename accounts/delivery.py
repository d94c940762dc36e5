"""Sends notices by e-mail and webhook. Called by actors; reconcile enqueues the deliveries that are due again.

Users choose their webhook's URL, so it must not reach internal services: its host name is resolved once, all of its
addresses must be public and not of this machine (unless MLP_WEBHOOK_PRIVATE is set), the connection goes to a resolved
address, and redirects are not followed. The body is signed so that the receiver can verify the sender:
`X-Platform-Signature: sha256=HMAC-SHA256(secret, body)` with the secret of the settings page.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import send_mail
from django.utils import timezone, translation
from django.utils.translation import gettext

from kernel import after_commit, outbound
from kernel.errors import Refused
from kernel.messages import translate
from kernel.telemetry import meters

from .models import Delivery, Notice, Preference, User
from .tokens import signature

log = logging.getLogger(__name__)

PAUSES_S = (10, 60, 300, 1800, 7200)  # after each failed attempt; after the last the delivery has failed
LIMIT_S = 10.0  # of one attempt
AT_ONCE = 3  # concurrent deliveries of one process: its other threads are for work that users wait for
LOOKUP_S = 3.0
MAX_IN_DIGEST = 100  # notices in an e-mail
TURN_S = 60.0  # after which a thread takes no further deliveries
WEB_PORTS = (80, 443)
LOWEST_PORT = 1024  # of others: those below belong to services of other kinds, such as mail
_lookups = ThreadPoolExecutor(4, "lookup")
_busy_users: set[int] = set()  # the users whose notices are being delivered by this process
_guard = threading.Lock()


def deliver(pk: int) -> None:
    """Attempt a delivery that is due, then others that are due.

    May be called any number of times: each attempt is claimed in the database and made once. A user's deliveries are
    sent one after the other, and those of at most AT_ONCE users at a time, so that slow servers block no more threads
    than that, and one user's no more than one. A delivery that finds no free slot is sent by a thread that is already
    delivering, or enqueued again by reconcile.
    """
    end = time.monotonic() + TURN_S
    row = _due().filter(pk=pk).first()
    while row is not None and _claim_slot(row.notice.user_id):
        try:
            _attempt(row)
        finally:
            _release_slot(row.notice.user_id)
        row = _due().exclude(notice__user__in=_users_with_slots()).first() if time.monotonic() < end else None


def _due():
    due = Delivery.objects.filter(open=True, not_before__lte=timezone.now())
    return due.select_related("notice__user").order_by("not_before", "pk")


def _claim_slot(user: int) -> bool:
    with _guard:
        free = user not in _busy_users and len(_busy_users) < AT_ONCE
        if free:
            _busy_users.add(user)
        return free


def _release_slot(user: int) -> None:
    with _guard:
        _busy_users.discard(user)


def _users_with_slots() -> list[int]:
    with _guard:
        return list(_busy_users)


def _attempt(first: Delivery) -> None:
    """Make an attempt, by e-mail together with all that is due to the same user."""
    rows = [first]
    if first.channel == Delivery.Channel.MAIL:
        beside = _due().filter(notice__user=first.notice.user, channel=first.channel).exclude(pk=first.pk)
        rows += beside[: MAX_IN_DIGEST - 1]
    rows = sorted(filter(_claim, rows), key=lambda row: row.notice_id)
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
        retried = bool(error) and row.attempts < len(PAUSES_S)
        Delivery.objects.filter(pk=row.pk).update(open=retried, error=error)


def _claim(row: Delivery) -> bool:
    """Take the next attempt of a delivery, unless another process has."""
    pause = timedelta(seconds=PAUSES_S[min(row.attempts, len(PAUSES_S) - 1)])
    unclaimed = Delivery.objects.filter(pk=row.pk, open=True, attempts=row.attempts)
    return bool(unclaimed.update(attempts=row.attempts + 1, not_before=timezone.now() + pause))


def again(pk: int) -> None:
    """Start the delivery over, after an administrator has corrected what was wrong."""
    if Delivery.objects.filter(pk=pk).update(open=True, attempts=0, not_before=timezone.now()):
        after_commit.enqueue("accounts.deliver", pk)


def secret_of(user: User) -> str:
    return signature("webhook", user.pk)


def check_webhook(url: str) -> None:
    """Check that notices may be sent to the URL. Raises Refused."""
    target(url)


def target(url: str) -> tuple[str, str, int, str, str]:
    """Return (scheme, host, port, path, the IP address to connect to). Raises Refused."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        raise Refused("must be a URL that begins with http:// or https://", field="webhook")
    plain = url.isascii() and url.isprintable() and not set(url) & set(' "<>\\^`{|}')
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or not plain:
        raise Refused("must be a URL that begins with http:// or https://", field="webhook")
    if port < LOWEST_PORT and port not in WEB_PORTS:
        raise Refused("the port must be 80, 443 or at least %(lowest)s", field="webhook", lowest=LOWEST_PORT)
    addresses = _resolve(host, port)
    if not settings.WEBHOOK_PRIVATE and not all(outbound.is_public(one) for one in addresses):
        raise Refused("must be a public address", field="webhook")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return parts.scheme, host, port, path, sorted(addresses)[0]


def _resolve(host: str, port: int) -> set[str]:
    """Return the IP addresses of a host name. Raises Refused when it cannot be resolved within LOOKUP_S.

    A name server may be slow, and a lookup cannot be cancelled: so lookups have a small thread pool of their own.
    """
    lookup = _lookups.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        return {info[4][0] for info in lookup.result(LOOKUP_S)}
    except TimeoutError:
        lookup.cancel()
        raise Refused("the host name could not be resolved in time; try again later", field="webhook")
    except (OSError, UnicodeError):
        raise Refused("the host name cannot be resolved", field="webhook")


def _post_webhook(notices: list[Notice], preference: Preference) -> None:
    [notice] = notices
    scheme, host, port, path, address = target(preference.webhook)
    body = json.dumps(as_object(notice)).encode()
    digest = hmac.new(secret_of(notice.user).encode(), body, hashlib.sha256).hexdigest()
    host_header = f"[{host}]" if ":" in host else host
    status, _ = outbound.exchange(
        (address, port),
        "POST",
        path,
        body,
        {
            "Host": host_header if port in (80, 443) else f"{host_header}:{port}",
            "Content-Type": "application/json",
            "User-Agent": "ml-platform",
            "X-Platform-Signature": f"sha256={digest}",
        },
        limit_s=LIMIT_S,
        most=0,
        tls_name=host if scheme == "https" else "",
    )
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

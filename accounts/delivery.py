"""Brings notices out of the platform: by e-mail, or to a webhook. Called by actors; reconcile sends what is due again.

A webhook's address is a user's word, so it must not reach what only the platform may: its host is looked up once, every
address it has must be a public one (unless MLP_WEBHOOK_PRIVATE allows others), the connection goes to just that
address, and a redirection is not followed. The body is signed, so that the receiver can tell it from others':
`X-Platform-Signature: sha256=HMAC-SHA256(secret, body)` with the secret of the settings page.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import logging
import socket
import threading
import time
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

from .models import Delivery, Notice, Preference, User
from .tokens import signature

log = logging.getLogger(__name__)

PAUSES_S = (10, 60, 300, 1800, 7200)  # after each failed attempt; then it is given up
LIMIT_S = 10.0  # of one attempt, whatever the other side does
AT_ONCE = 3  # deliveries of one process: its other threads are for what users wait for
LOOKUP_S = 3.0
TURN_S = 60.0  # after which a thread looks for no more
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
OLD_SITE = ipaddress.IPv6Network("fec0::/10")
_lookups = ThreadPoolExecutor(4, "lookup")
_at_work: set[int] = set()  # the users whose notices are being delivered by this process
_guard = threading.Lock()


def deliver(pk: int) -> None:
    """One attempt of a delivery that is due, then of others that are. Any number of times: whoever claims it first
    makes the attempt.

    A user's deliveries go out one after the other, and those of AT_ONCE users at a time: strangers' servers that answer
    slowly hold no more threads than that, and a user's own no more than one. What finds no room is taken by those who
    are at it, once they are through, or comes again by reconcile.
    """
    end = time.monotonic() + TURN_S
    row = _due().filter(pk=pk).first()
    while row is not None and _begin(row.notice.user_id):
        try:
            _attempt(row)
        finally:
            _leave(row.notice.user_id)
        row = _due().exclude(notice__user__in=_busy()).first() if time.monotonic() < end else None


def _due():
    due = Delivery.objects.filter(open=True, not_before__lte=timezone.now())
    return due.select_related("notice__user").order_by("not_before", "pk")


def _begin(user: int) -> bool:
    with _guard:
        free = user not in _at_work and len(_at_work) < AT_ONCE
        if free:
            _at_work.add(user)
        return free


def _leave(user: int) -> None:
    with _guard:
        _at_work.discard(user)


def _busy() -> list[int]:
    with _guard:
        return list(_at_work)


def _attempt(row: Delivery) -> None:
    pk, now = row.pk, timezone.now()
    last = row.attempts >= len(PAUSES_S)
    pause = timedelta(seconds=PAUSES_S[min(row.attempts, len(PAUSES_S) - 1)])
    mine = Delivery.objects.filter(pk=pk, open=True, attempts=row.attempts)
    if not mine.update(attempts=row.attempts + 1, not_before=now + pause):
        return
    chosen = Preference.objects.filter(user=row.notice.user).first()
    error = ""
    try:
        if chosen is not None:
            (_mail if row.channel == Delivery.Channel.MAIL else _hook)(row.notice, chosen)
    except Exception as problem:  # whatever a stranger's server may do
        error = f"{type(problem).__name__}: {problem}"[:500]
        log.warning("delivery %s by %s: %s", pk, row.channel, error)
    Delivery.objects.filter(pk=pk).update(open=bool(error) and not last, error=error)


def again(pk: int) -> None:
    """Begins anew, whatever was tried: an operator has put right what was wrong."""
    if Delivery.objects.filter(pk=pk).update(open=True, attempts=0, not_before=timezone.now()):
        after_commit.enqueue("accounts.deliver", pk)


def secret_of(user: User) -> str:
    return signature("webhook", user.pk)


def check_webhook(url: str) -> None:
    """Raises Refused when it is no address that notices may be sent to."""
    target(url)


def target(url: str) -> tuple[str, str, int, str, str]:
    """(scheme, host, port, path, the address to connect to). Raises Refused."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        raise Refused("must be a URL that begins with http:// or https://", field="webhook")
    plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not host or parts.username or not plain:
        raise Refused("must be a URL that begins with http:// or https://", field="webhook")
    found = _addresses(host, port)
    if not settings.WEBHOOK_PRIVATE and not all(_public(ipaddress.ip_address(one.split("%")[0])) for one in found):
        raise Refused("must be a public address", field="webhook")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return parts.scheme, host, port, path, sorted(found)[0]


def _addresses(host: str, port: int) -> set[str]:
    """What the name stands for. A stranger's name server may take its time, and a lookup cannot be broken off: few are
    made at a time, and nobody waits longer than LOOKUP_S. Raises Refused.
    """
    lookup = _lookups.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        return {info[4][0] for info in lookup.result(LOOKUP_S)}
    except TimeoutError:
        lookup.cancel()
        raise Refused("the host name could not be resolved in time; try again later", field="webhook")
    except (OSError, UnicodeError):
        raise Refused("the host name cannot be resolved", field="webhook")


def _public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Also of the IPv4 address that lies in one of IPv6, where a router may unpack it."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.sixtofour or address.ipv4_mapped
        if address in NAT64 or int(address) < 1 << 32:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _public(inner)
    return address.is_global and not address.is_multicast and address not in OLD_SITE


def _hook(notice: Notice, chosen: Preference) -> None:
    scheme, host, port, path, address = target(chosen.webhook)
    body = json.dumps(as_object(notice)).encode()
    mark = hmac.new(secret_of(notice.user).encode(), body, hashlib.sha256).hexdigest()
    named = f"[{host}]" if ":" in host else host
    status, _ = outbound.exchange(
        (address, port),
        "POST",
        path,
        body,
        {
            "Host": named if port in (80, 443) else f"{named}:{port}",
            "Content-Type": "application/json",
            "User-Agent": "ml-platform",
            "X-Platform-Signature": f"sha256={mark}",
        },
        limit_s=LIMIT_S,
        most=0,
        tls_name=host if scheme == "https" else "",
    )
    if not 200 <= status < 300:
        raise ConnectionError(f"the webhook answered {status}")


def as_object(notice: Notice) -> dict:
    """What a webhook is sent."""
    return {
        "id": notice.pk,
        "at": notice.at.isoformat(),
        "user": notice.user.username,
        "kind": notice.kind,
        "name": notice.name,
        "event": notice.event,
        "reason": notice.reason,
    }


def _mail(notice: Notice, chosen: Preference) -> None:
    if not settings.EMAIL_HOST:
        raise Refused("this platform does not send e-mail", field="email")
    with translation.override(chosen.language or settings.LANGUAGE_CODE):
        subject = f"{gettext(notice.kind)} {notice.name}: {gettext(notice.event)}"
        link = settings.GATEWAY_URL + "/notifications"
        text = "\n\n".join(part for part in (subject, translate(notice.reason), link) if part)
        send_mail(" ".join(subject.split()), text, settings.DEFAULT_FROM_EMAIL, [chosen.email])

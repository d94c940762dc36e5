"""Rate limits: failed logins by username and address, registrations by address. Counted in Valkey.

After the free attempts each further failure doubles the wait, up to 15 minutes. While Valkey is unavailable there is no
throttling: logins still need the password.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import math
import time

from django.conf import settings
from redis.exceptions import RedisError

from kernel.broker import broker
from kernel.errors import Refused

log = logging.getLogger(__name__)

FIRST_S = 1  # the wait after the last free attempt; each further failure doubles it
WINDOW_S = 900
HOUR_S = 3600


def client_address(request) -> str:
    """Return the client's address: nginx's X-Real-IP when the peer is this machine, else the peer's address."""
    peer = request.META.get("REMOTE_ADDR") or "127.0.0.1"
    forwarded = request.META.get("HTTP_X_REAL_IP", "")
    try:
        if forwarded and ipaddress.ip_address(peer).is_loopback:
            return str(ipaddress.ip_address(forwarded))
    except ValueError:
        pass
    return peer


def check_login(username: str, address: str) -> None:
    """Check that this username and address may try to log in. Raises Refused with the time to wait."""
    try:
        for key, _ in _login_keys(username, address):
            left_ms = broker().client.pttl(key + ":wait")  # TTL, in whole seconds, may round down to 0
            if left_ms > 0:
                raise Refused(
                    "too many failed logins; try again in %(seconds)s s",
                    field="username", seconds=math.ceil(left_ms / 1000),
                )  # fmt: skip
    except RedisError:
        log.warning("logins are not throttled: Valkey does not respond")


def login_failed(username: str, address: str) -> None:
    try:
        for key, free in _login_keys(username, address):
            failures = broker().client.incr(key)
            broker().client.expire(key, WINDOW_S)
            if failures >= free:
                wait = min(WINDOW_S, FIRST_S * 2 ** min(failures - free, 10))
                broker().client.set(key + ":wait", 1, ex=wait)
    except RedisError:
        log.warning("logins are not throttled: Valkey does not respond")


def login_succeeded(username: str, address: str) -> None:
    """Reset the failures of this username at this address.

    Those of the address alone are kept: otherwise an attacker could reset them with an account of their own.
    """
    try:
        key = _login_keys(username, address)[0][0]
        broker().client.delete(key, key + ":wait")
    except RedisError:
        log.warning("logins are not throttled: Valkey does not respond")


def count_registration(address: str) -> None:
    """Count a registration. Raises Refused with the time to wait once the address has reached its hourly limit."""
    key = f"mlp:register:{_digest(address)}:{int(time.time() // HOUR_S)}"
    try:
        count = broker().client.incr(key)
        broker().client.expire(key, HOUR_S)
    except RedisError:
        log.warning("registrations are not limited: Valkey does not respond")
        return
    if count > settings.REGISTRATIONS_PER_HOUR:
        wait = HOUR_S - int(time.time()) % HOUR_S
        raise Refused(
            "too many registrations from this address; try again in %(seconds)s s", field="username", seconds=wait
        )


def _login_keys(username: str, address: str) -> list[tuple[str, int]]:
    free = settings.LOGIN_FAILURES_BEFORE_SLOWDOWN
    return [
        (f"mlp:login:{_digest(username, address)}", free),
        (f"mlp:login:{_digest('', address)}", free * 10),
        (f"mlp:login:{_digest(username, '')}", free * 20),
    ]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]

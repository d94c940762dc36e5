"""Slows down guessing: failed logins by name and address, and registrations by address. Counted in Valkey.

After the free tries each further failure doubles the wait, up to a quarter of an hour. When Valkey is away nobody is
refused for it: the password still guards.
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

FIRST_S = 1  # the wait after the last free try; each further failure doubles it
WINDOW_S = 900
HOUR_S = 3600


def client_address(request) -> str:
    """The caller's address: nginx's word for it when the connection comes from this machine, else the peer's."""
    peer = request.META.get("REMOTE_ADDR") or "127.0.0.1"
    told = request.META.get("HTTP_X_REAL_IP", "")
    try:
        if told and ipaddress.ip_address(peer).is_loopback:
            return str(ipaddress.ip_address(told))
    except ValueError:
        pass
    return peer


def check_login(username: str, address: str) -> None:
    """Raises Refused, saying when to come back, while this name or address has failed too often."""
    try:
        for key, _ in _login_keys(username, address):
            left_ms = broker().client.pttl(key + ":wait")  # whole seconds would be rounded, down as well
            if left_ms > 0:
                raise Refused(
                    "too many failed logins; try again in %(seconds)s s",
                    field="username", seconds=math.ceil(left_ms / 1000),
                )  # fmt: skip
    except RedisError:
        log.warning("login slow-down is off: valkey does not answer")


def login_failed(username: str, address: str) -> None:
    try:
        for key, free in _login_keys(username, address):
            failures = broker().client.incr(key)
            broker().client.expire(key, WINDOW_S)
            if failures >= free:
                wait = min(WINDOW_S, FIRST_S * 2 ** min(failures - free, 10))
                broker().client.set(key + ":wait", 1, ex=wait)
    except RedisError:
        log.warning("login slow-down is off: valkey does not answer")


def login_succeeded(username: str, address: str) -> None:
    """Forgets this person's own failures; the address's go on counting, or one account would reset the count."""
    try:
        key = _login_keys(username, address)[0][0]
        broker().client.delete(key, key + ":wait")
    except RedisError:
        log.warning("login slow-down is off: valkey does not answer")


def count_registration(address: str) -> None:
    """Raises Refused, saying when to come back, once the address has used up its registrations of this hour."""
    key = f"mlp:register:{_digest(address)}:{int(time.time() // HOUR_S)}"
    try:
        count = broker().client.incr(key)
        broker().client.expire(key, HOUR_S)
    except RedisError:
        log.warning("registration limit is off: valkey does not answer")
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

"""The tokens of NATS's auth callout: the server's request and our response.

A NATS JWT is signed with Ed25519 and names its parties by their nkeys (https://docs.nats.io, "Auth Callout"). Used by
tracking.metrics.nats_auth and, for the server's configuration, by supervision.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from functools import cache

import nkeys
from django.conf import settings

from . import sanitize
from .secrets import secret

MAX_PAYLOAD = 64 << 10  # bytes of one message of a job
MAX_SUBSCRIPTIONS = 64  # of one connection of a job
HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
# Accounts of the embedded server: subjects of one do not exist in the other, but for what is exported.
PLATFORM_ACCOUNT, JOBS_ACCOUNT = "PLATFORM", "JOBS"


class Platform:
    """The platform's own user on the embedded server. Its key is derived from a secret, as the issuer's is."""

    def __init__(self, secret: str):
        seed = hashlib.sha256(b"nats-platform:" + secret.encode()).digest()
        self.seed = nkeys.encode_seed(seed, nkeys.PREFIX_BYTE_USER)
        self._pair = nkeys.from_seed(self.seed)

    @property
    def public(self) -> str:
        """The public nkey, which the server's configuration names."""
        return self._pair.public_key.decode()

    def hello(self, nonce: str) -> dict:
        """Return the CONNECT options that answer the server's challenge."""
        signature = base64.urlsafe_b64encode(self._pair.sign(nonce.encode())).rstrip(b"=").decode()
        return {"verbose": False, "pedantic": False, "nkey": self.public, "sig": signature}


class Issuer:
    """Signs responses. The key is derived from a secret of the platform, so each process has the same one."""

    def __init__(self, secret: str):
        seed = hashlib.sha256(b"nats-issuer:" + secret.encode()).digest()
        self._pair = nkeys.from_seed(nkeys.encode_seed(seed, nkeys.PREFIX_BYTE_ACCOUNT))

    @property
    def public(self) -> str:
        """The public nkey, which the server's configuration names as `issuer`."""
        return self._pair.public_key.decode()

    def user(self, nkey: str, name: str, *, publish: list[str], subscribe: list[str], seconds: int) -> str:
        """Return the JWT of a user of the jobs' account with these permissions, valid for `seconds`."""
        claims = {
            "aud": JOBS_ACCOUNT,
            "sub": nkey,
            "name": name,
            "exp": int(time.time()) + seconds,
            "nats": {
                "type": "user",
                "version": 2,
                "pub": {"allow": publish},
                "sub": {"allow": subscribe},
                "subs": MAX_SUBSCRIPTIONS,
                "data": -1,  # the server does not count it: what one job may keep waiting, its stream says
                "payload": MAX_PAYLOAD,
            },
        }
        return self._sign(claims)

    def answer(self, request: dict, *, user: str = "", error: str = "") -> bytes:
        """Return the response to a decoded request: a user's JWT, or an error."""
        about = request["nats"]
        claims = {
            "aud": about["server_id"]["id"],
            "sub": about["user_nkey"],
            "nats": {"type": "authorization_response", "version": 2, "jwt": user, "error": error},
        }
        return self._sign(claims).encode()

    def _sign(self, claims: dict) -> str:
        whole = {"iss": self.public, "iat": int(time.time()), "jti": secrets.token_hex(16), **claims}
        text = f"{_encode(HEADER)}.{_encode(whole)}"
        return f"{text}.{_base64(self._pair.sign(text.encode()))}"


@cache
def platform() -> Platform:
    """Return the platform's own user."""
    return Platform(secret(settings.MLP_ROOT, "nats-platform"))


@cache
def issuer() -> Issuer:
    """Return the issuer of this platform."""
    return Issuer(secret(settings.MLP_ROOT, "nats-issuer"))


def decode(token: bytes) -> dict:
    """Return the claims of a request. Its signature is not checked: only the server may publish on that subject.

    Raises ValueError unless it is a JWT with the parts of a request.
    """
    try:
        body = token.split(b".")[1]
        claims = sanitize.read_json(base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4)))
        about = claims["nats"]
        if not isinstance(about["user_nkey"], str) or not isinstance(about["server_id"]["id"], str):
            raise TypeError
        if not isinstance(about["connect_opts"], dict):
            raise TypeError
        return claims
    except (IndexError, KeyError, TypeError, ValueError) as problem:
        raise ValueError("not an authorization request") from problem


def _encode(value: dict) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")

"""The tokens of NATS's auth callout: what the server asks in, and what it is answered in.

A NATS JWT is signed with Ed25519 and names its parties by "nkeys": a kind, the public key and a checksum in base 32
(https://docs.nats.io, "Auth Callout"; nats-io/nkeys). Used by jobs.metrics.nats_auth and, for the
server's configuration, by supervision.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
import time
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.conf import settings

from . import sanitize
from .secrets import secret

ACCOUNT = 0 << 3  # nkeys' kind "A"
HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
GLOBAL_ACCOUNT = "$G"


class Issuer:
    """Signs answers. The key comes from a secret of the platform, so each process makes the same one."""

    def __init__(self, secret: str):
        seed = hashlib.sha256(b"nats-issuer:" + secret.encode()).digest()
        self._key = Ed25519PrivateKey.from_private_bytes(seed)

    @property
    def public(self) -> str:
        """The nkey that the server's configuration names as `issuer`."""
        raw = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        body = bytes([ACCOUNT]) + raw
        checksum = binascii.crc_hqx(body, 0).to_bytes(2, "little")
        return base64.b32encode(body + checksum).decode().rstrip("=")

    def user(self, nkey: str, name: str, *, publish: list[str], subscribe: list[str], seconds: int) -> str:
        """A user of the global account who may do just that, for so long; then it has to ask again."""
        claims = {
            "aud": GLOBAL_ACCOUNT,
            "sub": nkey,
            "name": name,
            "exp": int(time.time()) + seconds,
            "nats": {
                "type": "user",
                "version": 2,
                "pub": {"allow": publish},
                "sub": {"allow": subscribe},
                "subs": -1,
                "data": -1,
                "payload": -1,
            },
        }
        return self._sign(claims)

    def answer(self, request: dict, *, user: str = "", error: str = "") -> bytes:
        """The response to a decoded request: a user's JWT, or why there is none."""
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
        return f"{text}.{_base64(self._key.sign(text.encode()))}"


@cache
def issuer() -> Issuer:
    """This platform's own."""
    return Issuer(secret(settings.MLP_ROOT, "nats-issuer"))


def decode(token: bytes) -> dict:
    """The claims of a request. Its signature is not asked about: only the server may publish where it comes from.

    Raises ValueError for what is no JWT with the parts of a request.
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

"""Who may call the serving process: the platform, which knows the secret of the run (apps/proof.py). No Django here.

Without the secret there are two things: the proof that this is the run, for which a challenge is answered, and, where a
port is served, the health that the kubelet asks for.
"""

from __future__ import annotations

import hmac
import os
import re

import orjson
from copies import TAKE
from load import PATH, Load

VARIABLE = "MLP_APP_SECRET"
HEADER = b"x-app-secret"
CHALLENGE = re.compile(r"/-proof/([0-9a-f]{64})")
HEALTH = ("/v2/health/live", "/v2/health/ready")


def take_secret() -> bytes:
    """Return the secret of the run, empty where it was started by hand; the model's code does not find it any more."""
    return os.environ.pop(VARIABLE, "").encode()


class PlatformOnly:
    """An ASGI application in front of another one, which gets only the requests of those who know the secret."""

    def __init__(self, application, secret: bytes):
        self.application, self.secret, self.load = application, secret, Load()

    async def __call__(self, scope, receive, send) -> None:
        given = [value for name, value in scope.get("headers", ()) if name == HEADER]
        if len(given) == 1 and hmac.compare_digest(given[0], self.secret):
            scope["headers"] = [pair for pair in scope["headers"] if pair[0] != HEADER]
            if scope["type"] == "http" and scope["path"] == PATH:
                await self.load.answer(scope, receive, send)
            elif scope["type"] == "http" and scope["path"] == TAKE:  # no request that the gateway has sent
                await self.application(scope, receive, send)
            else:
                await self.load.during(self.application(scope, receive, send))
        elif scope["type"] == "http":
            await answer(send, *self.without(scope["method"], scope["path"]))

    def without(self, method: str, path: str) -> tuple[int, bytes]:
        """Return the status and the body for a request without the secret."""
        if method in ("GET", "HEAD") and path in HEALTH:
            return 200, orjson.dumps({"live": True, "ready": True})
        challenge = CHALLENGE.fullmatch(path)
        if method == "GET" and challenge:
            return 200, hmac.new(self.secret, challenge[1].encode(), "sha256").hexdigest().encode()
        return 401, orjson.dumps({"error": "this process answers the platform's application gateway only"})


async def answer(send, status: int, body: bytes) -> None:
    """Send a whole response."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

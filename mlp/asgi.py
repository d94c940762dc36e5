"""The ASGI application: websockets, and all HTTP when Daphne is the only server."""

from __future__ import annotations

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlp.settings")
django_application = get_asgi_application()

from channels.auth import AuthMiddlewareStack  # noqa: E402 (needs Django set up)
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402

from mlp.routing import websocket_urlpatterns  # noqa: E402

LIVE = "/healthz/live"
OK = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"Content-Type", b"text/plain"), (b"Cache-Control", b"no-store")],
}


async def http(scope: dict, receive, send) -> None:
    """Answer a question whether this process runs as `health.live` does, but without the thread that Django's handler
    starts for each request: `up` asks every few seconds, and that was most of what an idle server did.
    """
    if scope["path"] != LIVE:
        return await django_application(scope, receive, send)
    await send(OK)
    await send({"type": "http.response.body", "body": b"ok\n"})


application = ProtocolTypeRouter(
    {
        "http": http,
        "websocket": AuthMiddlewareStack(URLRouter(websocket_urlpatterns)),
    }
)

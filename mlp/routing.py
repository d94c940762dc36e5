"""The websocket addresses of all apps. Used by mlp.asgi."""

from __future__ import annotations

from channels.generic.websocket import WebsocketConsumer
from django.urls import path, re_path

from jobs.consumers import AttachConsumer
from mlp.visitors.live import LiveConsumer
from tracking.metrics.consumers import JobMetricsConsumer


class Unknown(WebsocketConsumer):
    """Refuse the handshake of an unknown address; without this the router would raise an exception."""

    def connect(self) -> None:
        self.close()


websocket_urlpatterns = [
    path("ws/live", LiveConsumer.as_asgi()),
    path("api/v1/users/<seg:user>/job_metrics/<seg:name>", JobMetricsConsumer.as_asgi()),
    path("api/v1/users/<seg:user>/jobs/<seg:name>/attach", AttachConsumer.as_asgi()),
    re_path(r"^.*$", Unknown.as_asgi()),
]

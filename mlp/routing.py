"""The websocket addresses of all apps. Used by mlp.asgi."""

from __future__ import annotations

from django.urls import path

from jobs.consumers import JobMetricsConsumer

websocket_urlpatterns = [
    path("api/v1/users/<seg:user>/job_metrics/<seg:name>", JobMetricsConsumer.as_asgi()),
]

"""The root URLconf, which includes the URLs of all apps."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path, re_path
from django.views.generic import RedirectView

from aiops.intake import shippers
from kernel.errors import Refused
from mlflow_protocol import protocol as mlflow
from mlp.visitors import pages
from mlp.visitors.schema import Schema
from operations.monitoring import endpoint
from supervision import health
from tracking.traces import intake as traces


def unknown(request, path=""):
    """Answer unknown paths below /api/v1 with the error format of all REST calls. Raises Refused."""
    raise Refused("%(path)s does not exist", field="path", path=request.path)


api = [
    path("", include("accounts.urls")),
    path("", include("resources.urls")),
    path("", include("datasets.urls")),
    path("", include("jobs.urls")),
    path("", include("tracking.urls")),
    path("", include("models_app.urls")),
    path("", include("apps.urls")),
    path("", include("workspaces.urls")),
    path("", include("aiops.urls")),
    path("", include("automation.urls")),
    path("", include("mlp.trash.urls")),
    path("schema", Schema.as_view(), name="schema"),
    path("docs", pages.reference, name="reference"),
    re_path(r"^(?P<path>.*)$", unknown),
]

handler403 = pages.forbidden
handler404 = pages.not_found
handler500 = pages.broken

urlpatterns = [
    path("healthz", health.healthz),
    path("healthz/live", health.live),
    path("healthz/ready", health.ready),
    path("metrics", endpoint.metrics),
    path("api/v1/", include(api)),
    path("api/v1", unknown),
    path("internal/data/", include("datasets.data_urls")),
    path("internal/mlflow/", include("tracking.mlflow.uploads")),
    path("internal/apps/", include("apps.gateway_urls")),
    path("internal/workspaces/", include("workspaces.gateway_urls")),
    path("ModelTraining/", include("aiops.web.opni_urls")),
    path("v1/logs", shippers.otlp),
    *(path(address.lstrip("/"), traces.traces) for address in traces.ADDRESSES),
    path("loki/api/v1/push", shippers.loki_push),
    path("api/prom/push", shippers.loki_push),  # as clients of Loki's first releases have it
    path("ready", shippers.ready),
    path("mlflow/", include("tracking.mlflow.urls")),
    path("mlflow/", include("tracking.traces.mlflow_urls")),
    path("mlflow/", include("tracking.evaluations.mlflow_urls")),
    path("mlflow/", include("models_app.mlflow.urls")),
    re_path(r"^mlflow(/(?P<path>[\s\S]*))?$", mlflow.unknown),
    path("admin", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("", include("mlp.visitors.page_urls")),
]

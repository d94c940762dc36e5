"""The tracking half of the MLflow protocol, below /mlflow/ (docs/mlflow.md)."""

from __future__ import annotations

from django.urls import path

from mlflow_protocol.protocol import ARTIFACT_BASES, SENDING_BASES, Routes, direct, patterns

from . import (
    artifacts,
    experiments,
    logged,
    logged_search,
    metrics,
    multipart,
    pages,
    runs,
    searching,
    uploads,
    workspaces,
)

ROUTES: Routes = {
    **experiments.ROUTES, **runs.ROUTES, **metrics.ROUTES, **searching.ROUTES, **artifacts.ROUTES,
    **logged_search.ROUTES, **logged.ROUTES,
}  # fmt: skip
PROXIED: Routes = {**artifacts.PROXIED, **multipart.ROUTES}

urlpatterns = [
    path("", pages.landing, name="mlflow"),
    path("experiments/<int:experiment>", pages.experiment, name="mlflow_experiment"),
    path("runs/<str:run>", pages.run, name="mlflow_run"),
    path("health", pages.health),
    path("version", pages.version),
    path("api/3.0/mlflow/server-info", pages.server_info),
    path("ajax-api/3.0/mlflow/server-info", pages.server_info),
    *workspaces.PATTERNS,
    *patterns(ROUTES),
    *patterns(PROXIED, ARTIFACT_BASES),
    *patterns(artifacts.SENDING, SENDING_BASES),
]
DIRECT = {**direct(ROUTES), **direct(PROXIED, ARTIFACT_BASES), **uploads.DIRECT}

"""The addresses of all pages, and of the REST calls that are about objects that can be shared."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver

from apps import urls as app_urls
from automation import urls as sweep_urls
from datasets import urls as dataset_urls
from jobs import urls as job_urls
from mlp.visitors import page_urls
from models_app import urls as model_urls
from tracking import urls as tracking_urls

OBJECT_URLS = (
    job_urls.urlpatterns, tracking_urls.urlpatterns, dataset_urls.urlpatterns, model_urls.urlpatterns,
    app_urls.urlpatterns,
    [route for route in sweep_urls.urlpatterns if "/sweeps" in str(route.pattern)],  # others are not shared
)  # fmt: skip


def page_routes(patterns: list[URLPattern | URLResolver] | None = None) -> list[URLPattern]:
    """Return the routes of the pages; those that an app adds are among them as if they stood in one list."""
    routes: list[URLPattern] = []
    for pattern in page_urls.urlpatterns if patterns is None else patterns:
        routes += page_routes(pattern.url_patterns) if isinstance(pattern, URLResolver) else [pattern]
    assert patterns is not None or len(routes) > 150, "hardly any page is tried"
    return routes


def object_routes() -> list[URLPattern]:
    """Return the routes of REST below users/{user} for the objects that can be shared."""
    return [route for patterns in OBJECT_URLS for route in patterns]

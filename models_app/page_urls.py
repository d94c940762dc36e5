"""The addresses of the pages of models, and the registry. Included by mlp.visitors.page_urls."""

from __future__ import annotations

from django.urls import path

from kernel.page_urls import shared

from . import pages as models
from .registry import pages as registry
from .registry import webhook_pages

urlpatterns = [
    path("models", models.models, name="models"),
    *shared("models/<str:name>", models.model, name="model"),
    *shared("models/<str:name>/files/<path:path>", models.file, name="model_file"),
    path("models/<str:name>/title", models.title, name="model_title"),
    path("models/<str:name>/delete", models.delete, name="model_delete"),
    path("registry", registry.registered_models, name="registered_models"),
    *shared("registry/<str:name>", registry.registered_model, name="registered_model"),
    *shared("registry/<str:name>/compare", registry.compare, name="registered_model_compare"),
    path("registry/<str:name>/change", registry.change, name="registered_model_change"),
    path("webhooks", webhook_pages.registry_webhooks, name="registry_webhooks"),
    path("webhooks/<str:key>/change", webhook_pages.change, name="registry_webhook_change"),
]

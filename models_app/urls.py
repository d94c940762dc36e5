"""The paths of the Model-manager below /api/v1."""

from __future__ import annotations

from django.urls import path

from . import api
from .registry import api as registry
from .registry import webhook_api as webhooks

MODEL = "users/<seg:user>/models/<seg:name>"
REGISTRY = "users/<seg:user>/registry"
WEBHOOKS = "users/<seg:user>/registry-webhooks"

urlpatterns = [
    path("users/<seg:user>/models", api.ModelList.as_view()),
    path(MODEL, api.ModelDetail.as_view()),
    path(f"{MODEL}:edit", api.ModelEdit.as_view()),
    path(f"{MODEL}/notes", api.ModelNotes.as_view()),
    path(f"{MODEL}/files", api.ModelFiles.as_view()),
    path(f"{MODEL}/address", api.ModelAddress.as_view()),
    path(f"{MODEL}/bucket", api.ModelBucket.as_view()),
    path(f"{MODEL}/download", api.ModelDownload.as_view()),
    path(REGISTRY, registry.RegistryList.as_view()),
    path(f"{REGISTRY}/<seg:name>", registry.RegistryDetail.as_view()),
    path(f"{REGISTRY}/<seg:name>/versions", registry.VersionList.as_view()),
    path(f"{REGISTRY}/<seg:name>/versions/<int:number>", registry.VersionDetail.as_view()),
    path(f"{REGISTRY}/<seg:name>/aliases/<seg:alias>", registry.AliasDetail.as_view()),
    path(WEBHOOKS, webhooks.WebhookList.as_view()),
    path(f"{WEBHOOKS}/<seg:key>", webhooks.WebhookDetail.as_view()),
    path(f"{WEBHOOKS}/<seg:key>/test", webhooks.WebhookTest.as_view()),
    path(f"{WEBHOOKS}/<seg:key>/deliveries", webhooks.DeliveryList.as_view()),
    path(f"{WEBHOOKS}/<seg:key>/deliveries/<seg:delivery>", webhooks.DeliveryAgain.as_view()),
]

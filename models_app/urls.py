"""The paths of the Model-manager below /api/v1."""

from __future__ import annotations

from django.urls import path

from . import api

MODEL = "users/<seg:user>/models/<seg:name>"

urlpatterns = [
    path("users/<seg:user>/models", api.ModelList.as_view()),
    path(MODEL, api.ModelDetail.as_view()),
    path(f"{MODEL}/notes", api.ModelNotes.as_view()),
    path(f"{MODEL}/download", api.ModelDownload.as_view()),
]

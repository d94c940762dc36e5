"""The paths of the APP-manager below /api/v1."""

from __future__ import annotations

from django.urls import path

from . import api

APP = "users/<seg:user>/apps/<seg:name>"

urlpatterns = [
    path("users/<seg:user>/apps", api.AppList.as_view()),
    path(APP, api.AppDetail.as_view()),
    path(f"{APP}/log", api.AppLog.as_view()),
]

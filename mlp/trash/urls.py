"""The addresses of the trash's REST calls."""

from __future__ import annotations

from django.urls import path

from . import api

urlpatterns = [
    path("users/<seg:user>/trash", api.TrashList.as_view()),
    path("users/<seg:user>/trash:restore", api.TrashRestore.as_view()),
    path("users/<seg:user>/trash:delete", api.TrashDelete.as_view()),
]

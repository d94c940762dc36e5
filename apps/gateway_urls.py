"""Addresses below /internal/apps that only the application gateway's nginx reaches."""

from __future__ import annotations

from django.urls import path

from . import gateway

urlpatterns = [
    path("route", gateway.route),
    path("told", gateway.told),
]

"""The Resource-manager's paths below /api/v1."""

from __future__ import annotations

from django.urls import path

from . import api

urlpatterns = [
    path("resource_request:try", api.TryRequest.as_view()),
    path("resource_request:confirm", api.ConfirmRequest.as_view()),
    path("resource_request:cancel", api.CancelRequest.as_view()),
    path("gpu_types", api.GpuTypeList.as_view()),
    path("tenants", api.TenantList.as_view()),
    path("tenants/<seg:tenant>", api.TenantDetail.as_view()),
    path("tenants/<seg:tenant>/usage", api.TenantUsage.as_view()),
    path("tenants/<seg:tenant>/work", api.TenantWork.as_view()),
    path("tenants/<seg:tenant>/work:end", api.TenantWorkEnd.as_view()),
    path("tenants/<seg:tenant>/limits", api.LimitList.as_view()),
    path("tenants/<seg:tenant>/limits/<seg:name>", api.LimitDetail.as_view()),
]

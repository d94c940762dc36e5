"""The gateway's addresses as in Opni, at the root of the site."""

from __future__ import annotations

from django.urls import path

from . import opni_api

urlpatterns = [
    path("model/train", opni_api.train),
    path("model/current_status", opni_api.current_status),
    path("model/statistics", opni_api.statistics),
    path("model/status", opni_api.model_status),
    path("model/training_parameters", opni_api.training_parameters),
    path("workload_aggregation/<str:cluster>", opni_api.workload_aggregation),
    path("gpu_info", opni_api.list_gpus),
]

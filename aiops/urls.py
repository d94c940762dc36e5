"""The addresses of AIOps below /api/v1."""

from __future__ import annotations

from django.urls import path

from .web import logs_api
from .web import training_api as training

urlpatterns = [
    path("aiops/logs", logs_api.Logs.as_view()),
    path("aiops/model/train", training.Train.as_view()),
    path("aiops/model/current_status", training.CurrentStatus.as_view()),
    path("aiops/model/statistics", training.CurrentStatistics.as_view()),
    path("aiops/model/status", training.Status.as_view()),
    path("aiops/model/training_parameters", training.Parameters.as_view()),
    path("aiops/workload_aggregation/<seg:cluster>", training.Aggregation.as_view()),
    path("aiops/gpu_info", training.GpuInfo.as_view()),
    path("aiops/trainings", training.Trainings.as_view()),
    path("aiops/versions", training.Versions.as_view()),
    path("aiops/versions/<seg:version>:serve", training.ServeVersion.as_view()),
]

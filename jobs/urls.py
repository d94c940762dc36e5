"""The Job-manager's and the Metrics-manager's paths below /api/v1."""

from __future__ import annotations

from django.urls import path

from . import api
from .metrics import api as metrics_api
from .metrics import series_api

JOB = "users/<seg:user>/jobs/<seg:name>"
METRICS = "users/<seg:user>/job_metrics/<seg:name>"

urlpatterns = [
    path("users/<seg:user>/jobs", api.JobList.as_view()),
    path(JOB, api.JobDetail.as_view()),
    path(f"{JOB}:heartbeat", api.JobHeartbeat.as_view()),
    path(f"{JOB}:cancel", api.JobCancel.as_view()),
    path(f"{JOB}/log", api.JobLog.as_view()),
    path(f"{JOB}/metrics", metrics_api.JobMetricsRows.as_view()),
    path(f"{JOB}/values", series_api.JobValues.as_view()),
    path(f"{JOB}/series", series_api.JobSeries.as_view()),
    path(f"{JOB}/usage", series_api.JobUsage.as_view()),
    path(f"{JOB}/artifacts", api.JobArtifacts.as_view()),
    path(f"{JOB}/artifacts/<anypath:path>", api.JobArtifact.as_view()),
    path(METRICS, metrics_api.JobMetricsReport.as_view()),
    path(f"{METRICS}:begin", metrics_api.JobMetricsBegin.as_view()),
    path(f"{METRICS}:finish", metrics_api.JobMetricsFinish.as_view()),
    path(f"{METRICS}:delete", metrics_api.JobMetricsDelete.as_view()),
]

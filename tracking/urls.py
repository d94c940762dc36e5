"""The Metrics-manager's paths below /api/v1: metrics, media, tables of runs, projects and comparisons."""

from __future__ import annotations

from django.urls import path

from jobs.urls import JOB
from tracking.compare import api as compare_api
from tracking.media import api as media_api
from tracking.metrics import api as metrics_api
from tracking.metrics import series_api, trainer_api
from tracking.runs import api as runs_api
from tracking.traces import api as traces_api

RUNS = "users/<seg:user>/runs"
PROJECTS = "users/<seg:user>/projects"
TRACES = "users/<seg:user>/traces"
METRICS = "users/<seg:user>/job_metrics/<seg:name>"

urlpatterns = [
    path(f"{JOB}:trainer", trainer_api.JobTrainer.as_view()),
    path(f"{JOB}/metrics", metrics_api.JobMetricsRows.as_view()),
    path(f"{JOB}/values", series_api.JobValues.as_view()),
    path(f"{JOB}/series", series_api.JobSeries.as_view()),
    path(f"{JOB}/points", series_api.JobPoints.as_view()),
    path(f"{JOB}/usage", series_api.JobUsage.as_view()),
    path(f"{JOB}/media", media_api.JobMedia.as_view()),
    path(f"{JOB}:edit", runs_api.JobEdit.as_view()),
    path(f"{JOB}:trash", runs_api.JobTrash.as_view()),
    path(f"{JOB}:restore", runs_api.JobRestore.as_view()),
    path(RUNS, runs_api.RunList.as_view()),
    path(f"{RUNS}:tag", runs_api.RunsTag.as_view()),
    path(f"{RUNS}:move", runs_api.RunsMove.as_view()),
    path(f"{RUNS}:mark", runs_api.RunsMark.as_view()),
    path(f"{RUNS}:cancel", runs_api.RunsCancel.as_view()),
    path(f"{RUNS}:trash", runs_api.RunsTrash.as_view()),
    path(f"{RUNS}:restore", runs_api.RunsRestore.as_view()),
    path(f"{RUNS}:delete", runs_api.RunsDelete.as_view()),
    path(PROJECTS, runs_api.ProjectList.as_view()),
    path(f"{PROJECTS}/<int:id>", runs_api.ProjectDetail.as_view()),
    path(f"{PROJECTS}/<int:id>:restore", runs_api.ProjectRestore.as_view()),
    path("users/<seg:user>/views", runs_api.ViewList.as_view()),
    path("users/<seg:user>/views/<int:id>", runs_api.ViewDetail.as_view()),
    path("users/<seg:user>/comparisons", compare_api.ComparisonList.as_view()),
    path("users/<seg:user>/comparisons/<seg:name>", compare_api.ComparisonDetail.as_view()),
    path(TRACES, traces_api.TraceList.as_view()),
    path(f"{TRACES}/<seg:trace>", traces_api.TraceDetail.as_view()),
    path(f"{TRACES}/<seg:trace>/spans", traces_api.TraceSpans.as_view()),
    path(f"{TRACES}/<seg:trace>/feedback", traces_api.TraceFeedback.as_view()),
    path(f"{TRACES}/<seg:trace>/feedback/<seg:key>", traces_api.TraceFeedbackDetail.as_view()),
    path(METRICS, metrics_api.JobMetricsReport.as_view()),
    path(f"{METRICS}:begin", metrics_api.JobMetricsBegin.as_view()),
    path(f"{METRICS}:finish", metrics_api.JobMetricsFinish.as_view()),
    path(f"{METRICS}:delete", metrics_api.JobMetricsDelete.as_view()),
]

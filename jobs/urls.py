"""The Job-manager's and the Metrics-manager's paths below /api/v1."""

from __future__ import annotations

from django.urls import path

from . import api
from .code import api as code_api
from .compare import api as compare_api
from .doctor import api as doctor_api
from .log import api as log_api
from .media import api as media_api
from .metrics import api as metrics_api
from .metrics import series_api, trainer_api
from .runs import api as runs_api

JOB = "users/<seg:user>/jobs/<seg:name>"
RUNS = "users/<seg:user>/runs"
PROJECTS = "users/<seg:user>/projects"
METRICS = "users/<seg:user>/job_metrics/<seg:name>"

urlpatterns = [
    path("users/<seg:user>/jobs", api.JobList.as_view()),
    path(JOB, api.JobDetail.as_view()),
    path(f"{JOB}:heartbeat", api.JobHeartbeat.as_view()),
    path(f"{JOB}:trainer", trainer_api.JobTrainer.as_view()),
    path(f"{JOB}:cancel", api.JobCancel.as_view()),
    path(f"{JOB}:rerun", doctor_api.JobRerun.as_view()),
    path(f"{JOB}/queue", doctor_api.JobQueue.as_view()),
    path(f"{JOB}/diagnosis", doctor_api.JobDiagnosis.as_view()),
    path(f"{JOB}/log", api.JobLog.as_view()),
    path(f"{JOB}/log/lines", log_api.JobLogLines.as_view()),
    path(f"{JOB}/log/search", log_api.JobLogSearch.as_view()),
    path(f"{JOB}/log/differences", log_api.JobLogDifferences.as_view()),
    path(f"{JOB}/metrics", metrics_api.JobMetricsRows.as_view()),
    path(f"{JOB}/values", series_api.JobValues.as_view()),
    path(f"{JOB}/series", series_api.JobSeries.as_view()),
    path(f"{JOB}/points", series_api.JobPoints.as_view()),
    path(f"{JOB}/usage", series_api.JobUsage.as_view()),
    path(f"{JOB}/media", media_api.JobMedia.as_view()),
    path(f"{JOB}/code", code_api.JobCode.as_view()),
    path(f"{JOB}/code/archive", code_api.JobCodeArchive.as_view()),
    path(f"{JOB}/code/diff", code_api.JobCodeDiff.as_view()),
    path(f"{JOB}/code/files/<anypath:path>", code_api.JobCodeFile.as_view()),
    path(f"{JOB}/artifacts", api.JobArtifacts.as_view()),
    path(f"{JOB}/artifacts/<anypath:path>", api.JobArtifact.as_view()),
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
    path(METRICS, metrics_api.JobMetricsReport.as_view()),
    path(f"{METRICS}:begin", metrics_api.JobMetricsBegin.as_view()),
    path(f"{METRICS}:finish", metrics_api.JobMetricsFinish.as_view()),
    path(f"{METRICS}:delete", metrics_api.JobMetricsDelete.as_view()),
]

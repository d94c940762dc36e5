"""The Job-manager's paths below /api/v1."""

from __future__ import annotations

from django.urls import path

from . import api
from .code import api as code_api
from .doctor import api as doctor_api
from .log import api as log_api
from .packages import api as packages_api
from .packages.named import api as named_api

NAMED = "users/<seg:user>/named_environments"
JOB = "users/<seg:user>/jobs/<seg:name>"

urlpatterns = [
    path("users/<seg:user>/environments", packages_api.EnvironmentList.as_view()),
    path("users/<seg:user>/environments/<seg:digest>", packages_api.EnvironmentDetail.as_view()),
    path(NAMED, named_api.NamedEnvironmentList.as_view()),
    path(f"{NAMED}/<seg:reference>", named_api.NamedEnvironmentDetail.as_view()),
    path(f"{NAMED}/<seg:reference>:retry", named_api.NamedEnvironmentRetry.as_view()),
    path("users/<seg:user>/jobs", api.JobList.as_view()),
    path(JOB, api.JobDetail.as_view()),
    path(f"{JOB}:heartbeat", api.JobHeartbeat.as_view()),
    path(f"{JOB}:cancel", api.JobCancel.as_view()),
    path(f"{JOB}:rerun", doctor_api.JobRerun.as_view()),
    path(f"{JOB}/queue", doctor_api.JobQueue.as_view()),
    path(f"{JOB}/diagnosis", doctor_api.JobDiagnosis.as_view()),
    path(f"{JOB}/processes", api.JobProcesses.as_view()),
    path(f"{JOB}/log", api.JobLog.as_view()),
    path(f"{JOB}/log/lines", log_api.JobLogLines.as_view()),
    path(f"{JOB}/log/search", log_api.JobLogSearch.as_view()),
    path(f"{JOB}/log/differences", log_api.JobLogDifferences.as_view()),
    path("users/<seg:user>/checkouts", code_api.Checkout.as_view()),
    path(f"{JOB}/log/usual_way", log_api.JobLogUsualWay.as_view()),
    path(f"{JOB}/code", code_api.JobCode.as_view()),
    path(f"{JOB}/code/archive", code_api.JobCodeArchive.as_view()),
    path(f"{JOB}/code/diff", code_api.JobCodeDiff.as_view()),
    path(f"{JOB}/code/files/<anypath:path>", code_api.JobCodeFile.as_view()),
    path(f"{JOB}/artifacts", api.JobArtifacts.as_view()),
    path(f"{JOB}/artifacts/<anypath:path>", api.JobArtifact.as_view()),
]

"""The addresses of the pages of a job; its media are tracking's. Included by mlp.visitors.page_urls."""

from __future__ import annotations

from django.urls import path

from kernel.page_urls import shared

from . import file_pages as job_files
from . import pages as jobs
from .code import pages as code_pages
from .log import pages as job_logs
from .packages import pages as packages
from .packages.named import pages as named

urlpatterns = [
    path("environments", packages.environments, name="environments"),
    path("environments/<seg:digest>/delete", packages.delete, name="environment_delete"),
    path("environments/named", named.environments, name="named_environments"),
    path("environments/named/<seg:reference>", named.environment, name="environment"),
    path("environments/named/<seg:reference>/retry", named.retry, name="environment_retry"),
    path("environments/named/<seg:reference>/delete", named.delete, name="environment_remove"),
    *shared("jobs/<str:name>", jobs.job, name="job"),
    *shared("jobs/<str:name>/log", job_logs.job_log, name="job_log"),
    *shared("jobs/<str:name>/log/download", job_logs.job_log_file, name="job_log_file"),
    *shared("jobs/<str:name>/log/differences", job_logs.job_log_differences, name="job_log_differences"),
    *shared("jobs/<str:name>/log/usual_way", job_logs.job_usual_way, name="job_usual_way"),
    *shared("jobs/<str:name>/processes", jobs.job_processes, name="job_processes"),
    *shared("jobs/<str:name>/files/<path:path>", job_files.file, name="job_file"),
    *shared("jobs/<str:name>/pictures/<path:path>", job_files.picture, name="job_picture"),
    *shared("jobs/<str:name>/html/<path:path>", job_files.page, name="job_html"),
    *shared("jobs/<str:name>/code", code_pages.code, name="job_code"),
    *shared("jobs/<str:name>/code/archive", code_pages.archive, name="job_code_archive"),
    *shared("jobs/<str:name>/code/diff", code_pages.diff, name="job_code_diff"),
    path("jobs/<str:name>/cancel", jobs.cancel, name="job_cancel"),
    path("jobs/<str:name>/rerun", jobs.rerun, name="job_rerun"),
    path("jobs/<str:name>/delete", jobs.delete, name="job_delete"),
]

"""The addresses of the pages of runs, projects and comparisons. Included by mlp.visitors.page_urls."""

from __future__ import annotations

from django.urls import path

from kernel.page_urls import shared
from tracking.compare import log_pages as compare_logs
from tracking.compare import media_pages as compare_media
from tracking.compare import pages as compare
from tracking.compare import saved_pages as compare_saved
from tracking.evaluations import pages as evaluations
from tracking.media import pages as job_media
from tracking.mlflow import connect_pages
from tracking.runs import jobs_page, project_pages
from tracking.runs import pages as runs
from tracking.traces import pages as traces

urlpatterns = [
    path("connect", connect_pages.connect, name="connect"),
    path("jobs", jobs_page.jobs, name="jobs"),
    path("jobs/<str:name>/edit", project_pages.edit_run, name="job_edit"),
    path("projects", project_pages.project_list, name="projects"),
    path("project/<int:pk>/change", project_pages.change, name="project_change"),
    *shared("projects/<path:name>", project_pages.project, name="project"),
    *shared("traces", traces.traces, name="traces"),
    *shared("traces/<str:key>", traces.trace, name="trace"),
    path("traces/<str:key>/change", traces.change, name="trace_change"),
    *shared("evaluations", evaluations.evaluations, name="evaluations"),
    *shared("evaluations/datasets/<str:key>", evaluations.dataset, name="evaluation_dataset"),
    *shared("evaluations/datasets/<str:key>/export.ndjson", evaluations.export, name="evaluation_dataset_export"),
    path("evaluations/datasets/<str:key>/change", evaluations.change, name="evaluation_dataset_change"),
    *shared("evaluations/runs/<str:name>", evaluations.run, name="evaluation_run"),
    path("runs/act", runs.act, name="runs_act"),
    path("runs/undo", runs.undo, name="runs_undo"),
    path("runs/view", runs.save_view, name="runs_view"),
    path("runs/export.<str:form>", runs.export, name="runs_export"),
    *shared("jobs/<str:name>/media", job_media.media, name="job_media"),
    *shared("jobs/<str:name>/media/part", job_media.part, name="job_media_part"),
    *shared("jobs/<str:name>/media/file/<path:path>", job_media.file, name="job_media_file"),
    *shared("compare", compare.compare, name="compare"),
    *shared("compare/logs", compare_logs.compare_logs, name="compare_logs"),
    *shared("compare/code", compare.compare_code, name="compare_code"),
    *shared("compare/media", compare_media.compare_media, name="compare_media"),
    path("comparisons", compare_saved.save, name="comparison_save"),
    *shared("comparisons/<str:name>", compare_saved.comparison, name="comparison"),
    *shared("compare.csv", compare.compare_csv, name="compare_csv"),
]

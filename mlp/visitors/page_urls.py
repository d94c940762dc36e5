"""The URLs of the pages (contract 7). Included by mlp.urls."""

from __future__ import annotations

from django.urls import path
from django.views.i18n import set_language

from accounts import pages as accounts
from accounts import settings_pages
from aiops.web import alert_pages
from aiops.web import operator_pages as aiops_operators
from aiops.web import pages as aiops
from aiops.web import part_pages as aiops_parts
from apps import pages as apps
from datasets import file_pages
from datasets import pages as datasets
from jobs import file_pages as job_files
from jobs import pages as jobs
from jobs.metrics import compare
from mlp.visitors import first_run, pages, search
from models_app import pages as models
from resources import pages as resources

urlpatterns = [
    path("", pages.index),
    path("index", pages.index, name="index"),
    path("index.jsp", pages.index),
    path("index/seen", pages.failures_seen, name="failures_seen"),
    path("regist_login", accounts.regist_login, name="regist_login"),
    path("regist_login.jsp", accounts.regist_login),
    path("logout", accounts.logout, name="logout"),
    path("account", accounts.account, name="account"),
    path("account/token", accounts.rotate_token, name="rotate_token"),
    path("account/sessions", accounts.end_sessions, name="end_sessions"),
    path("account/password", accounts.change_password, name="change_password"),
    path("account/deregister", accounts.deregister, name="deregister"),
    path("settings", settings_pages.settings_page, name="settings"),
    path("notifications", settings_pages.notifications, name="notifications"),
    path("notifications/read", settings_pages.read, name="notifications_read"),
    path("search", search.search, name="search"),
    path("start", first_run.start, name="start"),
    path("start/dataset", first_run.make_dataset, name="start_dataset"),
    path("start/job", first_run.make_job, name="start_job"),
    path("start/model", first_run.make_model, name="start_model"),
    path("start/app", first_run.make_app, name="start_app"),
    path("datasets", datasets.datasets, name="datasets"),
    path("datasets/<str:name>", datasets.dataset, name="dataset"),
    path("datasets/<str:name>/end", datasets.end_upload, name="dataset_end"),
    path("datasets/<str:name>/delete", datasets.delete, name="dataset_delete"),
    path("datasets/<str:name>/files/<path:path>", file_pages.dataset_file, name="dataset_file"),
    path("datasets/<str:name>/view/<path:path>", file_pages.dataset_view, name="dataset_view"),
    path("datasets/<str:name>/archive", file_pages.dataset_archive, name="dataset_archive"),
    path("scripts", datasets.scripts, name="scripts"),
    path("scripts/new", datasets.script, name="script_new"),
    path("scripts/edit/<path:path>", datasets.script, name="script"),
    path("scripts/file/<path:path>", datasets.script_file, name="script_file"),
    path("scripts/delete/<path:path>", datasets.delete_script, name="script_delete"),
    path("jobs", jobs.jobs, name="jobs"),
    path("jobs/<str:name>", jobs.job, name="job"),
    path("jobs/<str:name>/log", jobs.whole_log, name="job_log"),
    path("jobs/<str:name>/files/<path:path>", job_files.look, name="job_file"),
    path("jobs/<str:name>/pictures/<path:path>", job_files.picture, name="job_picture"),
    path("jobs/<str:name>/cancel", jobs.cancel, name="job_cancel"),
    path("jobs/<str:name>/delete", jobs.delete, name="job_delete"),
    path("compare", compare.compare, name="compare"),
    path("compare.csv", compare.compare_csv, name="compare_csv"),
    path("models", models.models, name="models"),
    path("models/<str:name>", models.model, name="model"),
    path("models/<str:name>/delete", models.delete, name="model_delete"),
    path("apps", apps.applications, name="applications"),
    path("apps/<str:name>", apps.application, name="application"),
    path("apps/<str:name>/log", apps.whole_log, name="application_log"),
    path("apps/<str:name>/delete", apps.delete, name="application_delete"),
    path("usage", resources.usage, name="usage"),
    path("aiops", aiops.insights, name="aiops"),
    path("aiops/line", aiops.line, name="aiops_line"),
    path("aiops/part", aiops_parts.part, name="aiops_part"),
    path("aiops/marks", aiops_parts.marks, name="aiops_marks"),
    path("aiops/templates", aiops.templates, name="aiops_templates"),
    path("aiops/tell", aiops.tell, name="aiops_tell"),
    path("aiops/watchlist", aiops_operators.watch, name="aiops_watchlist"),
    path("aiops/alerts", alert_pages.alerts, name="aiops_alerts"),
    path("aiops/models", aiops_operators.models, name="aiops_models"),
    path("data_client.pyz", datasets.data_client, name="data_client"),
    path("data_client.jar", datasets.data_client),
    path("set_language", set_language, name="set_language"),
]

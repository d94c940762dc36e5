"""The URLs of the pages (contract 7). Included by mlp.urls."""

from __future__ import annotations

from django.urls import path
from django.views.i18n import set_language

from accounts import pages as accounts
from accounts import service_pages, settings_pages, token_pages
from accounts.sharing import links
from accounts.sharing import pages as sharing
from accounts.signin import factor_pages as factors
from accounts.signin import pages as signin
from accounts.signin import passwords
from aiops.web import alert_pages, export, search_pages, watched_pages, workload_pages
from aiops.web import operator_pages as aiops_operators
from aiops.web import pages as aiops
from aiops.web import part_pages as aiops_parts
from apps import pages as apps
from automation.pipelines import pages as pipelines
from automation.schedules import pages as schedules
from automation.sweeps import pages as sweeps
from datasets import file_pages
from datasets import pages as datasets
from jobs import file_pages as job_files
from jobs import pages as jobs
from jobs.code import pages as code_pages
from jobs.compare import log_pages as compare_logs
from jobs.compare import media_pages as compare_media
from jobs.compare import pages as compare
from jobs.compare import saved_pages as compare_saved
from jobs.log import pages as job_logs
from jobs.media import pages as job_media
from jobs.mlflow import connect_pages
from jobs.runs import pages as runs
from jobs.runs import project_pages
from mlp.trash import pages as trash
from mlp.visitors import first_run, pages, search, tenant_pages
from models_app import pages as models
from models_app.registry import pages as registry
from models_app.registry import webhook_pages
from resources import pages as resources


def shared(route: str, view, name: str) -> list:
    """Return the addresses of a page that others may read, too: the owner's own, and the one with the owner in it."""
    return [path(route, view, name=name), path(f"u/<seg:owner>/{route}", view, name=name)]


urlpatterns = [
    path("", pages.index),
    path("index", pages.index, name="index"),
    path("index.jsp", pages.index),
    path("index/seen", pages.failures_seen, name="failures_seen"),
    path("regist_login", accounts.regist_login, name="regist_login"),
    path("regist_login.jsp", accounts.regist_login),
    path("logout", signin.logout, name="logout"),
    path("signin/<seg:provider>", signin.start, name="signin_start"),
    path("signin/<seg:provider>/back", signin.back, name="signin_back"),
    path("signin/<seg:provider>/connect", signin.connect, name="signin_connect"),
    path("second_factor", factors.second_factor, name="second_factor"),
    path("second_factor/passkey", factors.use_passkey, name="use_passkey"),
    path("account/security", factors.security, name="security"),
    path("account/security/app", factors.add_app, name="add_app"),
    path("account/security/passkey", factors.add_passkey, name="add_passkey"),
    path("account/security/remove", factors.remove, name="remove_factor"),
    path("account/security/codes", factors.renew_codes, name="renew_codes"),
    path("account/disconnect", signin.disconnect, name="signin_disconnect"),
    path("account", accounts.account, name="account"),
    path("account/token", accounts.rotate_token, name="rotate_token"),
    path("account/tokens", token_pages.tokens, name="tokens"),
    path("account/tokens/revoke", token_pages.revoke, name="revoke_named"),
    path("account/service", service_pages.accounts, name="service_accounts"),
    path("account/service/end", service_pages.end, name="end_service_account"),
    path("account/sessions", accounts.end_sessions, name="end_sessions"),
    path("account/sessions/end", accounts.end_session, name="end_session"),
    path("password", passwords.forgotten, name="forgotten"),
    path("password/<seg:user>/<seg:token>", passwords.choose, name="choose_password"),
    path("account/password", accounts.change_password, name="change_password"),
    path("account/deregister", accounts.deregister, name="deregister"),
    path("settings", settings_pages.settings_page, name="settings"),
    path("notifications", settings_pages.notifications, name="notifications"),
    path("notifications/read", settings_pages.read, name="notifications_read"),
    path("share/<str:kind>/<path:name>", sharing.share, name="share"),
    path("shared", sharing.with_me, name="shared"),
    path("shared/mine", sharing.by_me, name="shared_mine"),
    path("shared/link", links.open_link, name="shared_link"),
    path("shared/<seg:share>/revoke", sharing.revoke, name="share_revoke"),
    path("tenants", tenant_pages.tenants, name="tenants"),
    path("tenants/default", tenant_pages.make_default, name="tenant_default"),
    path("tenants/in/<seg:name>", tenant_pages.tenant, name="tenant"),
    path("tenants/in/<seg:name>/remove", tenant_pages.remove, name="tenant_remove"),
    path("tenants/in/<seg:name>/end", tenant_pages.end_work, name="tenant_end"),
    path("search", search.search, name="search"),
    path("connect", connect_pages.connect, name="connect"),
    path("start", first_run.start, name="start"),
    path("start/dataset", first_run.make_dataset, name="start_dataset"),
    path("start/job", first_run.make_job, name="start_job"),
    path("start/model", first_run.make_model, name="start_model"),
    path("start/app", first_run.make_app, name="start_app"),
    path("datasets", datasets.datasets, name="datasets"),
    *shared("datasets/<str:name>", datasets.dataset, name="dataset"),
    path("datasets/<str:name>/title", datasets.title, name="dataset_title"),
    path("datasets/<str:name>/end", datasets.end_upload, name="dataset_end"),
    path("datasets/<str:name>/delete", datasets.delete, name="dataset_delete"),
    path("datasets/<str:name>/versions", datasets.change_versions, name="dataset_versions"),
    *shared("datasets/<str:name>/files/<path:path>", file_pages.dataset_file, name="dataset_file"),
    *shared("datasets/<str:name>/view/<path:path>", file_pages.dataset_view, name="dataset_view"),
    *shared("datasets/<str:name>/archive", file_pages.dataset_archive, name="dataset_archive"),
    path("scripts", datasets.scripts, name="scripts"),
    path("scripts/new", datasets.script, name="script_new"),
    path("scripts/edit/<path:path>", datasets.script, name="script"),
    path("scripts/file/<path:path>", datasets.script_file, name="script_file"),
    path("scripts/delete/<path:path>", datasets.delete_script, name="script_delete"),
    path("jobs", jobs.jobs, name="jobs"),
    path("jobs/<str:name>/edit", project_pages.edit_run, name="job_edit"),
    path("projects", project_pages.project_list, name="projects"),
    path("project/<int:pk>/change", project_pages.change, name="project_change"),
    *shared("projects/<path:name>", project_pages.project, name="project"),
    path("runs/act", runs.act, name="runs_act"),
    path("runs/undo", runs.undo, name="runs_undo"),
    path("runs/view", runs.save_view, name="runs_view"),
    path("runs/export.<str:form>", runs.export, name="runs_export"),
    *shared("jobs/<str:name>", jobs.job, name="job"),
    *shared("jobs/<str:name>/log", job_logs.job_log, name="job_log"),
    *shared("jobs/<str:name>/log/download", job_logs.job_log_file, name="job_log_file"),
    *shared("jobs/<str:name>/log/differences", job_logs.job_log_differences, name="job_log_differences"),
    *shared("jobs/<str:name>/files/<path:path>", job_files.look, name="job_file"),
    *shared("jobs/<str:name>/pictures/<path:path>", job_files.picture, name="job_picture"),
    *shared("jobs/<str:name>/html/<path:path>", job_files.page, name="job_html"),
    *shared("jobs/<str:name>/media", job_media.media, name="job_media"),
    *shared("jobs/<str:name>/media/part", job_media.part, name="job_media_part"),
    *shared("jobs/<str:name>/media/file/<path:path>", job_media.file, name="job_media_file"),
    *shared("jobs/<str:name>/code", code_pages.code, name="job_code"),
    *shared("jobs/<str:name>/code/archive", code_pages.archive, name="job_code_archive"),
    *shared("jobs/<str:name>/code/diff", code_pages.diff, name="job_code_diff"),
    path("jobs/<str:name>/cancel", jobs.cancel, name="job_cancel"),
    path("jobs/<str:name>/rerun", jobs.rerun, name="job_rerun"),
    path("jobs/<str:name>/delete", jobs.delete, name="job_delete"),
    *shared("compare", compare.compare, name="compare"),
    *shared("compare/logs", compare_logs.compare_logs, name="compare_logs"),
    *shared("compare/code", compare.compare_code, name="compare_code"),
    *shared("compare/media", compare_media.compare_media, name="compare_media"),
    path("comparisons", compare_saved.save, name="comparison_save"),
    *shared("comparisons/<str:name>", compare_saved.comparison, name="comparison"),
    *shared("compare.csv", compare.compare_csv, name="compare_csv"),
    path("models", models.models, name="models"),
    *shared("models/<str:name>", models.model, name="model"),
    path("models/<str:name>/title", models.title, name="model_title"),
    path("models/<str:name>/delete", models.delete, name="model_delete"),
    path("registry", registry.registered_models, name="registered_models"),
    *shared("registry/<str:name>", registry.registered_model, name="registered_model"),
    *shared("registry/<str:name>/compare", registry.compare, name="registered_model_compare"),
    path("registry/<str:name>/change", registry.change, name="registered_model_change"),
    path("webhooks", webhook_pages.registry_webhooks, name="registry_webhooks"),
    path("webhooks/<str:key>/change", webhook_pages.change, name="registry_webhook_change"),
    path("apps", apps.applications, name="applications"),
    *shared("apps/<str:name>", apps.application, name="application"),
    *shared("apps/<str:name>/log", apps.application_log, name="application_log"),
    *shared("apps/<str:name>/log/download", apps.application_log_file, name="application_log_file"),
    path("apps/<str:name>/title", apps.title, name="application_title"),
    path("apps/<str:name>/delete", apps.delete, name="application_delete"),
    path("apps/<str:name>/change", apps.change, name="application_change"),
    path("sweeps", sweeps.sweeps, name="sweeps"),
    *shared("sweeps/<seg:name>", sweeps.sweep, name="sweep"),
    path("sweeps/<seg:name>/title", sweeps.title, name="sweep_title"),
    path("sweeps/<seg:name>/change", sweeps.change, name="sweep_change"),
    path("pipelines", pipelines.pipelines, name="pipelines"),
    path("pipelines/<seg:name>", pipelines.pipeline, name="pipeline"),
    path("pipelines/<seg:name>/title", pipelines.title, name="pipeline_title"),
    path("pipelines/<seg:name>/change", pipelines.change, name="pipeline_change"),
    path("pipelines/<seg:name>/runs/<seg:number>", pipelines.run, name="pipelinerun"),
    path("pipelines/<seg:name>/runs/<seg:number>/change", pipelines.change_run, name="pipeline_run_change"),
    path("schedules", schedules.schedules, name="schedules"),
    path("schedules/<seg:name>", schedules.schedule, name="schedule"),
    path("schedules/<seg:name>/title", schedules.title, name="schedule_title"),
    path("schedules/<seg:name>/change", schedules.change, name="schedule_change"),
    path("usage", resources.usage, name="usage"),
    path("trash", trash.trash, name="trash"),
    path("trash/change", trash.change, name="trash_change"),
    path("trash/move", trash.move, name="trash_move"),
    path("largest", trash.largest_items, name="largest"),
    path("aiops", aiops.insights, name="aiops"),
    path("aiops/line", aiops.line, name="aiops_line"),
    path("aiops/part", aiops_parts.part, name="aiops_part"),
    path("aiops/marks", aiops_parts.marks, name="aiops_marks"),
    path("aiops/log_lines", aiops_parts.log_lines, name="aiops_log_lines"),
    path("aiops/templates", aiops.templates, name="aiops_templates"),
    path("aiops/tell", aiops.tell, name="aiops_tell"),
    path("aiops/watchlist", aiops_operators.watch, name="aiops_watchlist"),
    path("aiops/export", export.download, name="aiops_export"),
    path("aiops/watched", watched_pages.watched, name="aiops_watched"),
    path("aiops/workload", workload_pages.workload, name="aiops_workload"),
    path("aiops/searches", search_pages.saved, name="aiops_searches"),
    path("aiops/alerts", alert_pages.alerts, name="aiops_alerts"),
    path("aiops/models", aiops_operators.models, name="aiops_models"),
    path("data_client.pyz", datasets.data_client, name="data_client"),
    path("data_client.jar", datasets.data_client),
    path("set_language", set_language, name="set_language"),
]

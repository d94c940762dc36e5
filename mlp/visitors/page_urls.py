"""The URLs of the pages: those of each app, and those that belong to none. Included by mlp.urls."""

from __future__ import annotations

from django.urls import include, path
from django.views.i18n import set_language

from mlp.trash import pages as trash
from mlp.visitors import client_page, first_run, pages, search, tenant_pages

urlpatterns = [
    path("", pages.index),
    path("index", pages.index, name="index"),
    path("index.jsp", pages.index),
    path("index/seen", pages.failures_seen, name="failures_seen"),
    path("tenants", tenant_pages.tenants, name="tenants"),
    path("tenants/default", tenant_pages.make_default, name="tenant_default"),
    path("tenants/in/<seg:name>", tenant_pages.tenant, name="tenant"),
    path("tenants/in/<seg:name>/remove", tenant_pages.remove, name="tenant_remove"),
    path("tenants/in/<seg:name>/approve", tenant_pages.approve, name="tenant_approve"),
    path("tenants/in/<seg:name>/end", tenant_pages.end_work, name="tenant_end"),
    path("mlp.pyz", client_page.client, name="client"),
    path("search", search.search, name="search"),
    path("start", first_run.start, name="start"),
    path("start/dataset", first_run.make_dataset, name="start_dataset"),
    path("start/job", first_run.make_job, name="start_job"),
    path("start/model", first_run.make_model, name="start_model"),
    path("start/app", first_run.make_app, name="start_app"),
    path("trash", trash.trash, name="trash"),
    path("trash/change", trash.change, name="trash_change"),
    path("trash/move", trash.move, name="trash_move"),
    path("largest", trash.largest_items, name="largest"),
    path("set_language", set_language, name="set_language"),
    path("", include("accounts.page_urls")),
    path("", include("resources.page_urls")),
    path("", include("datasets.page_urls")),
    path("", include("jobs.page_urls")),
    path("", include("tracking.page_urls")),
    path("", include("models_app.page_urls")),
    path("", include("apps.page_urls")),
    path("", include("workspaces.page_urls")),
    path("", include("aiops.page_urls")),
    path("", include("automation.page_urls")),
]

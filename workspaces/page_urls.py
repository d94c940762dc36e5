"""The addresses of the pages of workspaces. Included by mlp.visitors.page_urls."""

from __future__ import annotations

from django.urls import path

from . import guest_pages, pages

urlpatterns = [
    path("workspaces", pages.workspaces, name="workspaces"),
    path("workspaces/<str:name>", pages.workspace, name="workspace"),
    path("workspaces/<str:name>/log", pages.workspace_log, name="workspace_log"),
    path("workspaces/<str:name>/log/download", pages.workspace_log_file, name="workspace_log_file"),
    path("workspaces/<str:name>/title", pages.title, name="workspace_title"),
    path("workspaces/<str:name>/notebook", pages.run_notebook, name="workspace_notebook"),
    path("workspaces/<str:name>/change", pages.change, name="workspace_change"),
    path("workspaces/<str:name>/delete", pages.delete, name="workspace_delete"),
    path("workspaces/<str:name>/enter", pages.enter, name="workspace_enter"),
    path("workspaces/<str:name>/guests", guest_pages.change, name="workspace_guests"),
    path("workspaces/of/<seg:owner>/<seg:name>", guest_pages.invitation, name="guest_workspace"),
    path("workspaces/of/<seg:owner>/<seg:name>/answer", guest_pages.answer, name="guest_answer"),
    path("workspaces/of/<seg:owner>/<seg:name>/enter", guest_pages.enter, name="guest_enter"),
]

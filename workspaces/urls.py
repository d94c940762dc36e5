"""The paths of workspaces below /api/v1."""

from __future__ import annotations

from django.urls import path

from . import api, guest_api

WORKSPACE = "users/<seg:user>/workspaces/<seg:name>"
INVITATION = "users/<seg:user>/workspace_invitations/<seg:owner>/<seg:name>"

urlpatterns = [
    path("users/<seg:user>/workspaces", api.WorkspaceList.as_view()),
    path(WORKSPACE, api.WorkspaceDetail.as_view()),
    path(f"{WORKSPACE}:edit", api.WorkspaceEdit.as_view()),
    path(f"{WORKSPACE}:start", api.WorkspaceStart.as_view()),
    path(f"{WORKSPACE}:stop", api.WorkspaceStop.as_view()),
    path(f"{WORKSPACE}:keep", api.WorkspaceKeep.as_view()),
    path(f"{WORKSPACE}/guests", guest_api.GuestList.as_view()),
    path(f"{WORKSPACE}/guests/<seg:guest>", guest_api.GuestDetail.as_view()),
    path("users/<seg:user>/workspace_invitations", guest_api.InvitationList.as_view()),
    path(INVITATION, guest_api.InvitationDetail.as_view()),
    path(f"{INVITATION}:accept", guest_api.InvitationAccept.as_view()),
    path(f"{WORKSPACE}/log", api.WorkspaceLog.as_view()),
    path(f"{WORKSPACE}/log/lines", api.WorkspaceLogLines.as_view()),
    path(f"{WORKSPACE}/log/search", api.WorkspaceLogSearch.as_view()),
]

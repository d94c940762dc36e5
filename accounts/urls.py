"""The User-manager's paths below /api/v1."""

from __future__ import annotations

from django.urls import path

from kernel.dispatch import Direct

from . import api, auth
from . import service_api as service
from .sharing import api as sharing
from .tenancy import api as tenancy

urlpatterns = [
    path("users", api.UserList.as_view()),
    path("users/<seg:user>", api.UserDetail.as_view()),
    path("users/<seg:user>/token", api.UserToken.as_view()),
    path("users/<seg:user>/token:rotate", api.UserTokenRotate.as_view()),
    path("users/<seg:user>/tokens", api.TokenList.as_view()),
    path("users/<seg:user>/tokens/<seg:name>", api.TokenDetail.as_view()),
    path("users/<seg:user>/service_accounts", service.AccountList.as_view()),
    path("users/<seg:user>/service_accounts/<seg:name>", service.AccountDetail.as_view()),
    path("users/<seg:user>/service_accounts/<seg:name>/tokens", service.AccountTokens.as_view()),
    path("users/<seg:user>/service_accounts/<seg:name>/tokens/<seg:token>", service.AccountToken.as_view()),
    path("users/<seg:user>/shares", sharing.ShareList.as_view()),
    path("users/<seg:user>/shares/<seg:share>", sharing.ShareDetail.as_view()),
    path("users/<seg:user>/shared_with_me", sharing.SharedWithMe.as_view()),
    path("users/<seg:user>/tenants", tenancy.UserTenants.as_view()),
    path("users/<seg:user>/tenants/<seg:tenant>:default", tenancy.UserTenantDefault.as_view()),
    path("tenants/<seg:tenant>/members", tenancy.MemberList.as_view()),
    path("tenants/<seg:tenant>/members/<seg:name>", tenancy.MemberDetail.as_view()),
    path("auth", api.Auth.as_view()),
    path("program_logins", api.ProgramLogins.as_view()),
    path("program_logins/<seg:code>", api.ProgramToken.as_view()),
]
LAST = {"token": Direct(auth.own_token, auth.shows_own_token)}
DIRECT = {"/api/v1/auth": Direct(auth.auth, lambda environ: environ["REQUEST_METHOD"] == "GET")}

"""The addresses of the pages of sign-in, accounts and shares. Included by mlp.visitors.page_urls."""

from __future__ import annotations

from django.urls import path

from . import pages as accounts
from . import program_pages, service_pages, settings_pages, token_pages
from .sharing import links
from .sharing import pages as sharing
from .signin import factor_pages as factors
from .signin import pages as signin
from .signin import passwords

urlpatterns = [
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
    path("account/program", program_pages.confirm, name="program_login"),
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
]

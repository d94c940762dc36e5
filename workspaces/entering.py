"""How the browser of a workspace's owner or guest is let in at the workspaces' gateway, which is another origin than
the pages.

    1. the gateway gives a browser that it does not know a random cookie, and sends it to the platform's page `enter`
    2. the page knows the user by their session there. It makes a code for that browser, by the digest of that cookie,
       and sends the browser back with it. A code is good for one use, one workspace and a minute
    3. the gateway takes the code of the browser that has the cookie, and gives it a login: a cookie of the workspace's
       path, which no script can read

So a code that somebody else has made is of no use: who sends a link with it cannot have others open a workspace that is
not theirs, whose pages could then act on theirs, which share an origin unless MLP_WORKSPACE_URL has a `*`.

A guest has accepted the invitation before (guests.py): nobody is led into a workspace of others by a link alone.

A client of SSH has no browser: its login is a token of the owner that may do everything. Guests have no SSH.

A login ends with the session at the platform, the token or the invitation, and with it the websockets that it has
opened (launching.close_ended). Codes and logins are in Valkey; where they are lost, a browser is let in again by
itself. No token or session of the platform ever reaches a workspace.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from importlib import import_module
from types import SimpleNamespace
from typing import NamedTuple

from django.conf import settings
from django.contrib import auth
from django.core.cache import cache

from accounts import tokens

from .models import Guest, Workspace

CODE_S = 60
LOGIN_S = 24 * 3600
PLACE_S = 1.0  # how long the gateway remembers what is known of a login
CODES, LOGINS = "workspace-code:", "workspace-login:"
TOKEN, MARK = "mlp_", "token:"  # how tokens begin, and what is kept of one


class Login(NamedTuple):
    """Whom a browser was let in as: the keys of a workspace and a user, and the session at the platform."""

    workspace: int
    user: int
    session: str


def digest(secret: str) -> str:
    """Return what is kept of a secret: a code, a login, a token."""
    if secret.startswith(TOKEN):
        return MARK + tokens.mark(secret)
    return hashlib.sha256(secret.encode()).hexdigest()


def make_code(workspace: Workspace, user: int, session: str, mark: str) -> str:
    """Return a code for the browser of this user whose random cookie has the digest `mark`."""
    code = secrets.token_urlsafe(32)
    cache.set(CODES + digest(code), (*Login(workspace.pk, user, session), mark), CODE_S)
    return code


def redeem(code: str, cookie: str, workspace: Workspace) -> str:
    """Return the login that a code gives the browser with this random cookie; "" for a code that is not valid."""
    key = CODES + digest(code)
    found = cache.get(key)
    if found is None or not cookie or not cache.delete(key):  # of two that ask at once, one deletes it
        return ""
    *login, mark = found
    if login[0] != workspace.pk or not hmac.compare_digest(mark, digest(cookie)):
        return ""
    text = secrets.token_urlsafe(32)
    cache.set(LOGINS + digest(text), tuple(login), LOGIN_S)
    return text


def is_let_in(text: str, workspace: int, owner: int) -> bool:
    """Return whether a login is one of this workspace's owner or of a guest, whose session at the platform has not
    ended, or a token of the owner that may do everything.
    """
    if text.startswith(TOKEN):
        holder = tokens.user_holder(text)
        return holder is not None and holder.user_id == owner
    return bool(text) and is_valid(digest(text), workspace, owner)


def is_valid(login_digest: str, workspace: int, owner: int) -> bool:
    """Return the same of the digest of a login."""
    if login_digest.startswith(MARK):
        return tokens.holds(login_digest.removeprefix(MARK), owner)
    found = cache.get(LOGINS + login_digest)
    if found is None:
        return False
    login = Login(*found)
    if login.workspace != workspace or not _may_enter(workspace, login.user, owner):
        return False
    store = import_module(settings.SESSION_ENGINE).SessionStore(login.session)
    user = auth.get_user(SimpleNamespace(session=store))  # anonymous after a log-out or a change of password
    return user.is_authenticated and user.is_active and user.pk == login.user


def _may_enter(workspace: int, user: int, owner: int) -> bool:
    return user == owner or Guest.objects.filter(workspace=workspace, user=user).let_in().exists()

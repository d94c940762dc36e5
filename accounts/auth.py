"""Who is calling: Bearer tokens, HTTP Basic with the password (for the token call alone), the browser's session.

Named in settings as strings, so that the kernel needs no accounts. `/api/v1/auth` is answered here. An `Entry` records
what a websocket or a followed log was opened by; it is judged again while the connection lasts.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from django.contrib.auth import authenticate
from django.contrib.sessions.models import Session
from django.db import close_old_connections
from django.db.utils import DatabaseError
from django.http import HttpRequest
from django.utils import timezone
from rest_framework import authentication

from kernel import names
from kernel.database import AWAY
from kernel.errors import NOT_AUTHENTICATED, Refused
from kernel.messages import Message

from . import throttle, tokens
from .models import State, User

JOB_PREFIX = "mlp_j"  # begins the tokens of jobs, which jobs.auth knows
BAD_TOKEN = Message("not valid")


class BearerAuthentication(authentication.BaseAuthentication):
    """`Authorization: Bearer {token}`, for user and service tokens. Raises Refused for a dead or malformed one."""

    def authenticate(self, request):
        token = bearer(request.META.get("HTTP_AUTHORIZATION", ""))
        if token is None or token.startswith(JOB_PREFIX):
            return None
        holder = tokens.lookup(token)
        user = holder and User.objects.filter(pk=holder.user_id).first()
        if not user or not user.is_active:
            raise Refused(BAD_TOKEN, field="token")
        return user, holder

    def authenticate_header(self, request):
        return "Bearer"


class PasswordAuthentication(authentication.BaseAuthentication):
    """HTTP Basic with username and password: only the token call takes it. Failed tries slow the caller down."""

    def authenticate(self, request):
        given = basic(request.META.get("HTTP_AUTHORIZATION", ""))
        if given is None:
            return None
        return login(request, *given), None


class SessionAuthentication(authentication.SessionAuthentication):
    """The browser's session, with Django's CSRF check."""


def login(request, username: str, password: str) -> User:
    """The active user with that password. Raises Refused: wrong, not active, or too many failures."""
    try:
        names.name(username, "username")
    except Refused:
        raise Refused(
            "wrong username or password", field="username"
        )  # nobody is called that, and the database need not see it
    address = throttle.client_address(request)
    throttle.check_login(username, address)
    user = authenticate(request, username=username, password=password)
    if user is None:
        throttle.login_failed(username, address)
        held = User.objects.filter(username=username).first()
        if held is not None and not held.is_active and held.check_password(password):
            raise Refused("this account is not active; an administrator can activate it", field="username")
        raise Refused("wrong username or password", field="username")
    throttle.login_succeeded(username, address)
    return user


def bearer(header: str) -> str | None:
    """The token of an Authorization header, or None when it is of another kind. Raises Refused when malformed."""
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer":
        return None
    token = token.strip()
    if not token or " " in token:
        raise Refused("must be Bearer {token}", field="Authorization")
    return token


def basic(header: str) -> tuple[str, str] | None:
    """(username, password) of an Authorization header, or None when it is of another kind. Raises Refused."""
    scheme, _, coded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        username, colon, password = base64.b64decode(coded.strip(), validate=True).decode().partition(":")
    except ValueError:  # no ASCII, no base64, no UTF-8
        raise Refused("must be Basic with base64 of username:password", field="Authorization")
    if not colon:
        raise Refused("must be Basic with base64 of username:password", field="Authorization")
    return username, password


def user_of_token(token: str) -> User | None:
    """The active user behind a user token, or None."""
    holder = tokens.person(token)
    user = holder and User.objects.filter(pk=holder.user_id).first()
    return user if user and user.is_active else None


def username_of_header(header: str) -> str:
    """Whose token the Authorization header carries. Raises Refused. The gateway asks this before every byte."""
    token = bearer(header)
    if token is None:
        raise Refused(NOT_AUTHENTICATED)
    holder = tokens.person(token)
    if holder is None:
        raise Refused(BAD_TOKEN, field="token")
    return holder.username


@dataclass(frozen=True)
class Entry:
    """What a lasting connection was let in by: a user token, or a session and what it proves of the password."""

    user_id: int
    token: str = field(default="", repr=False)
    session_key: str = field(default="", repr=False)
    session_hash: str = field(default="", repr=False)


def entry_by_session(user: User, session_key: str) -> Entry:
    """For a user whom that session has just told."""
    return Entry(user.pk, session_key=session_key, session_hash=user.get_session_auth_hash())


def user_and_entry_of_session(scope: dict) -> tuple[User, Entry] | tuple[None, None]:
    """Return the user and the entry of a websocket's session, (None, None) for nobody.

    A page of another origin gets nothing by the session either: browsers send the cookie along whichever page asks.
    """
    user = scope.get("user")
    if user is None or not user.is_authenticated or not _same_origin(scope):
        return None, None
    return user, entry_by_session(user, scope["session"].session_key)


def _same_origin(scope: dict) -> bool:
    headers = dict(scope["headers"])
    origin, host = headers.get(b"origin", b"").decode("latin-1"), headers.get(b"host", b"").decode("latin-1")
    return bool(host) and urlsplit(origin).netloc == host


def living(entries: Collection[Entry]) -> dict[Entry, User]:
    """Those that would be let in now, each with its user as the database has them: three queries for any number.

    An entry is missing once its user is not active, its token was rotated, or its session has ended, by a log-out, by
    its age or by a new password. What the user may see is the caller's to ask, of the user that is given.
    """
    ids = {entry.user_id for entry in entries}
    users = {user.pk: user for user in User.objects.filter(pk__in=ids, state=State.ACTIVED)}
    hashes = {user.pk: user.get_session_auth_hash() for user in users.values()}
    given = {entry.token for entry in entries if entry.token}
    tokens_alive = tokens.alive(given)
    keys = {entry.session_key for entry in entries if entry.session_key}
    sessions = Session.objects.filter(session_key__in=keys, expire_date__gt=timezone.now())
    sessions_alive = set(sessions.values_list("session_key", flat=True))

    def stands(entry: Entry) -> bool:
        if entry.token:
            return entry.token in tokens_alive
        return entry.session_key in sessions_alive and entry.session_hash == hashes[entry.user_id]

    return {entry: users[entry.user_id] for entry in entries if entry.user_id in users and stands(entry)}


def still_let_in(request: HttpRequest, owner_id: int) -> Callable[[], bool]:
    """For an answer that lasts: whether its caller would be let in to what is the owner's now, whenever it is asked.

    A job's own token reads that one job's, and the answer ends with the job.
    """
    token = bearer(request.META.get("HTTP_AUTHORIZATION", "")) or ""
    if token.startswith(JOB_PREFIX):
        return lambda: True
    user = request.user
    entry = Entry(user.pk, token=token) if token else entry_by_session(user, request.session.session_key)

    def still() -> bool:
        now = living([entry]).get(entry)
        return now is not None and (now.pk == owner_id or now.is_staff)

    return still


def auth(environ: dict, start_response: Callable) -> list[bytes]:
    """Answer `GET /api/v1/auth` with whose token it is, as a WSGI application: the gateway asks it all the time."""
    try:
        status, body = "200 OK", username_of_header(environ.get("HTTP_AUTHORIZATION", ""))
    except Refused as refused:
        status, body = "403 Forbidden", {"msg": refused.msg}
    except DatabaseError:
        close_old_connections()
        status, body = "503 Service Unavailable", {"msg": AWAY}
    data = json.dumps(body).encode()
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(data)))])
    return [data]

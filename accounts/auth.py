"""Authentication: Bearer tokens, HTTP Basic with the password (for the token call only), the browser's session.

Settings name the classes as strings, so that the kernel does not depend on accounts. `/api/v1/auth` is answered here.
An `Entry` records the credentials that opened a websocket or a followed log; they are checked again while the
connection is open.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.models import Session
from django.db import close_old_connections
from django.db.utils import DatabaseError, InterfaceError
from django.http import HttpRequest
from django.utils import timezone
from rest_framework import authentication

from kernel.database import AWAY, by_key
from kernel.errors import NOT_AUTHENTICATED, Fault, Refused
from kernel.messages import Message

from . import logins, scopes, throttle, tokens
from .models import Scope, State, User

LINKS = "links"  # in the session: the keys of the shares whose links it has opened
NOBODY = 0  # no user has this key
JOB_PREFIX = "mlp_j"  # the prefix of jobs' tokens, which jobs.auth verifies
BAD_TOKEN = Message("not valid")


class BearerAuthentication(authentication.BaseAuthentication):
    """`Authorization: Bearer {token}`, for user and service tokens. Raises Refused for an invalid one."""

    def authenticate(self, request):
        token = bearer(request.META.get("HTTP_AUTHORIZATION", ""))
        if token is None or token.startswith(JOB_PREFIX):
            return None
        holder = tokens.lookup(token, narrow=True, address=throttle.client_address(request))
        user = holder and by_key(User, holder.user_id)
        if not user or not user.is_active:
            raise Refused(BAD_TOKEN, field="token")
        _require_scope(holder, request)
        return user, holder

    def authenticate_header(self, request):
        return "Bearer"


class PasswordAuthentication(authentication.BaseAuthentication):
    """HTTP Basic with username and password, accepted by the token call only. Failed attempts are throttled."""

    def authenticate(self, request):
        credentials = basic(request.META.get("HTTP_AUTHORIZATION", ""))
        if credentials is None:
            return None
        return logins.check(request, *credentials), None


class SessionAuthentication(authentication.SessionAuthentication):
    """The browser's session, with Django's CSRF check."""


def _require_scope(holder: tokens.Holder, request) -> None:
    """Check the token's scope against what the call declares (kernel.views.Call). Raises Refused."""
    context = request.parser_context
    calls, named = getattr(context["view"], "calls", {}), context["kwargs"]
    call = calls.get("GET" if request.method == "HEAD" else request.method)
    effect, for_dataset = (call.effect, call.for_dataset) if call else (None, False)
    scopes.require(holder, effect, named.get("user", ""), named["name"] if for_dataset else "")


def bearer(header: str) -> str | None:
    """Return the token of a Bearer header, None for another scheme. Raises Refused when malformed."""
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer":
        return None
    token = token.strip()
    if not token or " " in token:
        raise Refused("must be Bearer {token}", field="Authorization")
    return token


def basic(header: str) -> tuple[str, str] | None:
    """Return (username, password) of a Basic header, None for another scheme. Raises Refused when malformed."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        username, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError:  # not ASCII, not base64 or not UTF-8
        raise Refused("must be Basic with base64 of username:password", field="Authorization")
    if not colon:
        raise Refused("must be Basic with base64 of username:password", field="Authorization")
    return username, password


def user_of_token(token: str, *also: Scope) -> User | None:
    """Return the active user whom a user token belongs to, or None. Of tokens that may not do everything only those of
    these scopes count.
    """
    holder = tokens.user_holder(token, narrow=True)
    if holder is None or holder.scope not in (Scope.FULL, *also):
        return None
    user = holder and by_key(User, holder.user_id)
    return user if user and user.is_active else None


def username_of_header(header: str) -> str:
    """Return the owner of the token in an Authorization header. Raises Refused.

    Called by the gateway before each transfer.
    """
    token = bearer(header)
    if token is None:
        raise Refused(NOT_AUTHENTICATED)
    holder = tokens.user_holder(token)
    if holder is None:
        raise Refused(BAD_TOKEN, field="token")
    return holder.username


@dataclass(frozen=True)
class Credentials:
    """The credentials that opened a connection: a user token, or a session with its hash of the password.

    Without a user it is a session that has opened links only: see accounts.sharing.
    """

    user_id: int
    token: str = field(default="", repr=False)
    session_key: str = field(default="", repr=False)
    session_hash: str = field(default="", repr=False)
    links: tuple[int, ...] = ()  # the keys of the shares whose links the session has opened

    @property
    def slot_key(self) -> int:
        """Return the key by which its connections are counted: the user, else the link."""
        return self.user_id or -min(self.links, default=0)


def links_of(session) -> tuple[int, ...]:
    """Return the keys of the shares whose links the session has opened."""
    links = session.get(LINKS, ()) if session is not None else ()
    return tuple(key for key in links if isinstance(key, int))


def has_all_rights(user: User | AnonymousUser) -> bool:
    """Return whether the visitor, who may have no account, is an administrator: see `User.is_administrator`."""
    return user.is_authenticated and user.is_administrator


def credentials_of_session(user: User | AnonymousUser, session_key: str, links: tuple[int, ...] = ()) -> Credentials:
    """Return the entry of a visitor with that session: an authenticated user, or a visitor with links only."""
    if not user.is_authenticated:
        return Credentials(NOBODY, session_key=session_key, links=links)
    return Credentials(user.pk, session_key=session_key, session_hash=user.get_session_auth_hash(), links=links)


def user_and_credentials_of_session(scope: dict) -> tuple[User | AnonymousUser, Credentials] | tuple[None, None]:
    """Return the user and the entry of a websocket's session, (None, None) when there is none.

    A visitor with a link but without an account is an AnonymousUser.

    A page of another origin gets (None, None) as well: browsers send the cookie along with its handshake, too.
    """
    user = scope.get("user")
    if user is None or not _same_origin(scope):
        return None, None
    links = links_of(scope.get("session"))
    if not (user.is_authenticated or links):
        return None, None
    return user, credentials_of_session(user, scope["session"].session_key, links)


def _same_origin(scope: dict) -> bool:
    headers = dict(scope["headers"])
    origin, host = headers.get(b"origin", b"").decode("latin-1"), headers.get(b"host", b"").decode("latin-1")
    return bool(host) and urlsplit(origin).netloc == host


def valid_credentials(entries: Collection[Credentials]) -> dict[Credentials, User | AnonymousUser]:
    """Return the entries that are still valid, each with its user; three queries for any number of entries.

    An entry is left out once its user is not active, its token was rotated, or its session has ended: by a log-out, by
    expiry or by a new password. The caller checks what the returned user may see.
    """
    ids = {entry.user_id for entry in entries}
    users = {user.pk: user for user in User.objects.filter(pk__in=ids, state=State.ACTIVED)}
    hashes = {user.pk: user.get_session_auth_hash() for user in users.values()}
    valid_tokens = tokens.valid_of({entry.token for entry in entries if entry.token})
    keys = {entry.session_key for entry in entries if entry.session_key}
    sessions = Session.objects.filter(session_key__in=keys, expire_date__gt=timezone.now())
    valid_sessions = set(sessions.values_list("session_key", flat=True))

    def is_valid(entry: Credentials) -> bool:
        if entry.token:
            return entry.token in valid_tokens
        return entry.session_key in valid_sessions and entry.session_hash == hashes[entry.user_id]

    users[NOBODY], hashes[NOBODY] = AnonymousUser(), ""
    return {entry: users[entry.user_id] for entry in entries if entry.user_id in users and is_valid(entry)}


def credentials_of(request: HttpRequest) -> Credentials:
    """Return the entry of a request that is answered for a long time."""
    token = bearer(request.META.get("HTTP_AUTHORIZATION", "")) or ""
    if token:
        return Credentials(request.user.pk, token=token)
    return credentials_of_session(
        request.user or AnonymousUser(), request.session.session_key, links_of(request.session)
    )


def access_check(
    request: HttpRequest, owner_id: int, shared: Callable[[User | AnonymousUser, Credentials], bool] | None = None
) -> Callable[[], bool]:
    """Return a function that tells whether a streaming response's caller may still read the owner's object.

    `shared` decides for another visitor. It is always true for a job's own token: that reads only its own job, and the
    response ends with the job.
    """
    if (bearer(request.META.get("HTTP_AUTHORIZATION", "")) or "").startswith(JOB_PREFIX):
        return lambda: True
    entry = credentials_of(request)

    def may_still_read() -> bool:
        current = valid_credentials([entry]).get(entry)
        if current is None:
            return False
        return current.pk == owner_id or has_all_rights(current) or (shared is not None and shared(current, entry))

    return may_still_read


def auth(environ: dict, start_response: Callable) -> list[bytes]:
    """Answer `GET /api/v1/auth` with the token's owner: a WSGI application, since the gateway calls it very often."""
    try:
        status, body = "200 OK", username_of_header(environ.get("HTTP_AUTHORIZATION", ""))
    except Refused as refused:
        status, body = "403 Forbidden", {"msg": refused.msg}
    except (DatabaseError, InterfaceError):
        close_old_connections()
        status, body = "503 Service Unavailable", {"msg": AWAY}
    data = json.dumps(body).encode()
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(data)))])
    return [data]


OWN_TOKEN = re.compile(r"/api/v1/users/([a-z]{1,50})/token")


def shows_own_token(environ: dict) -> bool:
    """Return whether this is a user's GET of the token that it is sent with: the answer is that text. Anything else,
    also what is refused, is Django's.
    """
    match = OWN_TOKEN.fullmatch(environ["PATH_INFO"])
    if match is None or environ["REQUEST_METHOD"] != "GET" or environ.get("QUERY_STRING"):
        return False
    if environ.get("CONTENT_LENGTH") not in (None, "", "0") or "HTTP_TRANSFER_ENCODING" in environ:
        return False
    try:
        holder = tokens.user_holder(bearer(environ.get("HTTP_AUTHORIZATION", "")) or "")
    except Refused:
        return False
    except (DatabaseError, InterfaceError, Fault):  # Django's answer says what is wrong
        close_old_connections()
        return False
    return holder is not None and not holder.named and holder.username == match[1]


def own_token(environ: dict, start_response: Callable) -> list[bytes]:
    """Answer `GET /api/v1/users/{user}/token` to a user's own token: a WSGI application."""
    data = json.dumps(bearer(environ["HTTP_AUTHORIZATION"])).encode()
    kept = ("Cache-Control", "no-store")
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(data))), kept])
    return [data]

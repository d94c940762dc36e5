"""A program logs in for a user who confirms it in a browser, as OAuth's device flow does (RFC 8628).

The program gets a secret and a short code, which it prints. The user, logged in, types the code on a page, sees what
asks from where, and allows it: a named token is made, which the program fetches with its secret. The code is typed and
is in no link, so that nobody confirms another's program by following one. After LASTS_S all of it is forgotten, but for
the token; it is in the cache only.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from django.core.cache import cache
from redis import RedisError

from kernel.errors import Fault, Refused

from . import named_tokens, throttle, tokens
from .models import Scope, Token, User

LASTS_S, POLL_S = 600, 2
ALPHABET, LENGTH = "BCDFGHJKLMNPQRSTVWXZ", 8  # no vowels: no words (RFC 8628, 6.1)
PROGRAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
SCOPES = (Scope.FULL, Scope.SUBMIT, Scope.READ)
WAITING, ALLOWED, DENIED = "waiting", "allowed", "denied"
KEY = "program-login:{code}"
UNKNOWN = "is not valid, or has expired"


@dataclass
class ProgramLogin:
    """What a program has asked for. `digest` is of its secret, `token` the row that it may fetch."""

    code: str
    program: str
    address: str
    at: float
    digest: str
    state: str = WAITING
    token: int = 0

    @property
    def shown_code(self) -> str:
        return f"{self.code[:4]}-{self.code[4:]}"


def begin(program: str, address: str) -> tuple[ProgramLogin, str]:
    """Return a login that waits to be confirmed, and its secret. Raises Refused, TooMany, Fault."""
    if not PROGRAM.fullmatch(program):
        raise Refused("must be 1 to 40 letters, digits and . _ -, beginning with a letter or digit", field="program")
    throttle.count_program_login(address)
    secret = secrets.token_urlsafe(32)
    code = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
    login = ProgramLogin(code, program, address, time.time(), _digest(secret))
    _write(login)
    return login, secret


def waiting(typed: str) -> ProgramLogin:
    """Return the login of a code as a user types it: case, spaces and the dash do not count. Raises Refused, Fault."""
    login = _read(re.sub(r"[\s-]", "", typed).upper())
    if login is None or login.state != WAITING:
        raise Refused(UNKNOWN, field="code")
    return login


def allow(login: ProgramLogin, *, user: User, scope: str, days: int | None) -> Token:
    """Make the token that the program may fetch; return its row. Raises Refused, Fault."""
    if scope not in SCOPES:
        raise Refused("must be one of %(choices)s", field="scope", choices=", ".join(SCOPES))
    name = f"{login.program}-{login.code[:4].lower()}"
    row, _text = named_tokens.create(user=user, name=name, scope=scope, days=days, by=user.username)
    login.state, login.token = ALLOWED, row.pk
    _write(login)
    return row


def deny(login: ProgramLogin) -> None:
    """Tell the program that the user does not want it. Raises Fault."""
    login.state = DENIED
    _write(login)


def fetch(code: str, secret: str) -> dict:
    """Return the state for the program, with the token once it is allowed. Raises Refused, Fault."""
    login = _read(code)
    if login is None or not hmac.compare_digest(login.digest, _digest(secret)):
        raise Refused(UNKNOWN, field="code")
    if login.state == WAITING:
        return {"state": WAITING, "user": "", "token": ""}
    row = Token.objects.filter(pk=login.token).select_related("user").first()
    if login.state == DENIED or row is None:
        return {"state": DENIED, "user": "", "token": ""}
    return {"state": ALLOWED, "user": row.user.username, "token": tokens.derive(row)}


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _read(code: str) -> ProgramLogin | None:
    if len(code) != LENGTH or not set(code) <= set(ALPHABET):
        return None
    with _cached():
        kept = cache.get(KEY.format(code=code))
    return ProgramLogin(**kept) if kept else None


def _write(login: ProgramLogin) -> None:
    left = login.at + LASTS_S - time.time()
    with _cached():
        cache.set(KEY.format(code=login.code), asdict(login), max(1, left))


@contextmanager
def _cached() -> Iterator[None]:
    """Turn a lost cache into a Fault."""
    try:
        yield
    except (RedisError, OSError) as problem:
        raise Fault("log-ins of programs are not available; try again later") from problem

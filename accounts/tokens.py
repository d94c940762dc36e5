"""Tokens: derived from the server's key and a row's nonce, so that a copy of the database reveals none.

A token has the form `mlp_{kind}{row in base 36}_{HMAC}`. It is valid until its row's nonce changes (rotation), its row
is deleted, its end date is over or its user is deactivated. An endpoint that takes tokens which may not do everything
says so (`narrow`) and asks accounts.scopes what they may do; at all other endpoints they are not valid. `lookup` reads
from a cache in Valkey, and before it from that of its process, which never return a revoked token (where somebody has
deleted the file of kernel.near_cache, for its KEPT_S):

- A change first overwrites the entry with RECHECK and then ends the epoch of kernel.near_cache, inside its transaction,
  and fails when it cannot.
- A reader fills the cache only where there is no entry (SET NX), so one that read the old row before the commit cannot
  cache it: RECHECK is kept for RECHECK_S, far longer than any read takes.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from django.conf import settings
from django.dispatch import Signal
from django.utils import timezone
from redis.exceptions import RedisError

from kernel import near_cache
from kernel.broker import broker
from kernel.errors import Fault
from kernel.registering import ALL, Registry, Rights

from .models import Scope, State, Token

log = logging.getLogger(__name__)

LETTERS = {"u": "user", "s": "service", "n": "named"}
KINDS = {kind: letter for letter, kind in LETTERS.items()}
CACHE_KEY = "mlp:token-rights:{pk}"  # under another name, entries of earlier releases had other fields
CACHE_S, CACHE_NAMED_S = 600, 60
LOADED = ("nonce", "kind", "scope", "target", "registry", "registry_models", "expires", "user_id")
RECHECK = b"recheck"
RECHECK_S = 120


changed = Signal()  # sent with the keys of rows, in the transaction that renews or deletes them


@dataclass(frozen=True)
class Holder:
    """The user whom a token belongs to. A named token is one of the user's, so its kind is `user`.

    `scope` and `target` say what a named token may do (accounts.scopes), `rights` what of the registry it may change.
    """

    user_id: int
    username: str
    is_administrator: bool
    kind: str
    named: bool = False
    scope: str = Scope.FULL
    target: str = ""
    rights: Rights = ALL


def signature(purpose: str, *parts: object) -> str:
    """Return 43 characters of HMAC-SHA256 over the parts; `purpose` separates the kinds of signatures."""
    key, message = _key_of(purpose, settings.SECRET_KEY), "\0".join(map(str, parts)).encode()
    digest = hmac.digest(key, message, hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


@cache
def _key_of(purpose: str, secret: str) -> bytes:
    return hashlib.sha256(f"mlp.{purpose}:{secret}".encode()).digest()


def derive(token: Token) -> str:
    return _compose(token.kind, token.pk, token.nonce)


def _compose(kind: str, pk: int, nonce: str) -> str:
    return f"mlp_{KINDS[kind]}{base36(pk)}_{signature('token', kind, pk, nonce)}"


def lookup(text: str, *, narrow: bool = False, address: str = "") -> Holder | None:
    """Return the holder of a valid token, else None. At most one round trip to Valkey when the token is cached.

    With `narrow` also of one that may not do everything: the caller asks accounts.scopes. `address` is the client's.
    """
    pk = _pk_of(text)
    if pk is None:
        return None
    row, anew = row_of(
        CACHE_KEY.format(pk=pk), lambda: _load(pk), lambda row: _compose(row["kind"], pk, row["nonce"]), text,
        lambda row: CACHE_NAMED_S if row["kind"] == Token.Kind.NAMED else CACHE_S,
    )  # fmt: skip
    if row is None:
        return None
    named, scope = row["kind"] == Token.Kind.NAMED, row.get("scope", Scope.FULL)
    if (row.get("expires") or float("inf")) <= time.time() or (scope != Scope.FULL and not narrow):
        return None
    if anew:
        Token.objects.filter(pk=pk).update(used=timezone.now(), **({"address": address} if address else {}))
    kind = Token.Kind.USER if named else row["kind"]
    rights = ALL
    if scope != Scope.FULL:
        rights = Rights(row.get("registry", Registry.READ), tuple(row.get("registry_models", ())))
    target, all_rights = row.get("target", ""), row["is_administrator"]
    return Holder(row["user_id"], row["username"], all_rights, kind, named, scope, target, rights)


def user_holder(text: str, *, narrow: bool = False, address: str = "") -> Holder | None:
    """Return the holder of a valid user token, else None; service tokens do not authenticate a user."""
    holder = lookup(text, narrow=narrow, address=address)
    return holder if holder is not None and holder.kind == Token.Kind.USER else None


def valid_of(texts: set[str]) -> set[str]:
    """Return those of the tokens that are valid, by one query; for checking many open connections at once."""
    pks = {_pk_of(text) for text in texts} - {None}
    rows = Token.objects.filter(pk__in=pks, user__state=State.ACTIVED).exclude(expires__lte=timezone.now())
    return texts & {derive(row) for row in rows}


def mark(text: str) -> str:
    """Return what a token is recognized by without revealing it: see `holds`."""
    return f"{_pk_of(text)}:{signature('mark', text)}"


def holds(marked: str, user_id: int | None = None) -> bool:
    """Return whether the token with this mark is valid now, and that user's where one is named."""
    pk, _, digest = marked.partition(":")
    if not pk.isdecimal() or len(pk) > 18:
        return False
    row = Token.objects.filter(pk=int(pk), user__state=State.ACTIVED).exclude(expires__lte=timezone.now()).first()
    if row is None or user_id not in (None, row.user_id):
        return False
    return hmac.compare_digest(signature("mark", derive(row)).encode(), digest.encode())


def forget(pks: list[int]) -> None:
    """Invalidate the cache of these rows, and tell who keeps connections of theirs; see `recheck`. Raises Fault."""
    recheck([CACHE_KEY.format(pk=pk) for pk in pks])
    changed.send(sender=Token, pks=pks)


def recheck(keys: list[str]) -> None:
    """Invalidate entries of the cache; call it inside the transaction that changes their rows.

    Raises Fault when Valkey does not respond: otherwise a revoked token could stay valid.
    """
    try:
        for key in keys:
            broker().client.set(key, RECHECK, ex=RECHECK_S)
        near_cache.drop()
    except (RedisError, OSError) as problem:
        log.error("a token could not be revoked, since its caches were not reached: %s", problem)
        raise Fault("the token cache is not available; try again later") from problem


def base36(number: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[rest] + digits
    return digits or "0"


def _pk_of(text: str) -> int | None:
    if not text.isascii() or len(text) > 100:
        return None
    prefix, _, rest = text.partition("_")
    head, _, mac = rest.partition("_")
    if prefix != "mlp" or len(head) < 2 or head[0] not in LETTERS or len(mac) != 43 or len(head) > 13:
        return None
    try:
        pk = int(head[1:], 36)
    except ValueError:
        return None
    return pk if 0 < pk < 2**63 else None


def _load(pk: int) -> dict | None:
    rows = Token.objects.filter(pk=pk, user__state=State.ACTIVED)
    row = rows.values(*LOADED, "user__username", "user__is_staff", "user__is_superuser").first()
    if row is None:
        return None
    staff, superuser = row.pop("user__is_staff"), row.pop("user__is_superuser")
    row["is_administrator"] = staff and superuser  # as User.is_administrator
    if row["kind"] == Token.Kind.SERVICE and not row["is_administrator"]:
        return None
    row["expires"] = row["expires"] and row["expires"].timestamp()
    row["username"] = row.pop("user__username")
    return row


def row_of(
    key: str,
    load: Callable[[], dict | None],
    compose: Callable[[dict], str],
    text: str,
    seconds: Callable[[dict], int],
) -> tuple[dict | None, bool]:
    """Return the row of a token or key by its entry in the cache, or by `load` from the database, and whether it is in
    the cache anew, for so many `seconds`. None where there is no row, or `compose` makes another text of it.
    """
    epoch, row = near_cache.epoch(), near_cache.get(key)
    if row is not None and _equal(compose(row), text):
        return row, False
    entry = _cached(key)
    if entry not in (None, RECHECK):
        row = json.loads(entry)
        near_cache.keep(key, row, epoch)
    else:
        row = load()
        if row is not None and entry is None:
            fill(key, row, seconds(row))
    return (row if row is not None and _equal(compose(row), text) else None), entry is None


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _cached(key: str) -> bytes | None:
    """Return an entry of the cache: JSON, None where there is none, RECHECK where the database is to be read."""
    try:
        return broker().client.get(key)
    except RedisError:
        log.warning("token cache does not respond; reading from the database")
        return RECHECK


def fill(key: str, row: dict, seconds: int) -> None:
    """Store a row in the cache for so many seconds, unless there is an entry."""
    try:
        broker().client.set(key, json.dumps(row), ex=seconds, nx=True)
    except RedisError:
        log.warning("token cache does not respond; nothing cached")

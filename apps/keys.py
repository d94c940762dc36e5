"""Keys of applications: each opens one application at the application gateway, and nothing else.

A key is `mlp_a{row in base 36}_{HMAC}`, derived like a token (accounts.tokens) and cached in the same way, so that a
revoked one is refused from the commit on by every process of the gateway. It is no token: no other part of the platform
accepts it. Its requests are counted in Valkey; `collect` moves the counts to the database. The tokens of language
models are counted by key_tokens.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import NamedTuple

from django.db import IntegrityError, transaction
from django.db.models import F, Q, Sum
from django.db.models.functions import Greatest
from django.utils import timezone
from django.utils.crypto import salted_hmac
from redis.exceptions import RedisError

from accounts import notices, tokens
from accounts.auth import bearer
from accounts.named_tokens import MAX_DAYS, NAME, SOON, WARNED_AT_ONCE
from kernel import after_commit, clock, trash
from kernel.broker import broker
from kernel.database import violated
from kernel.errors import Refused
from kernel.locking import DELETING, Missing, WrongState, lock_row, locked
from kernel.messages import Message, word

from . import request_limits
from .models import AppKey, AppKeyUse, Application

log = logging.getLogger(__name__)

PREFIX = "mlp_a"
ID_HEADER = "X-App-Key"  # of requests to an application: an `opaque_id`
MAX = 100  # of one application
CACHE_KEY, CACHE_S = "mlp:app-key:{pk}", 60
COUNTS = "mlp:app-key-uses"  # a hash in Valkey: `{row}:{day}` > requests
KEPT = timedelta(days=90)  # of the counts of days
SHOWN_DAYS = 30
LOADED = ("nonce", "app_id", "expires", "rate", "day_tokens")
MAX_DAY_TOKENS = 10**12


@dataclass(frozen=True)
class Caller:
    """A valid key, by its row, the row of the application that it opens, its requests a minute and its tokens a day
    (None: any).
    """

    pk: int
    app_id: int
    rate: int | None = None
    day_tokens: int | None = None


class Day(NamedTuple):
    """The use of a key on one day (UTC)."""

    day: date
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


def derive(row: AppKey) -> str:
    """Return the key's text."""
    return _compose(row.pk, row.nonce)


def opaque_id(pk: int) -> str:
    """Return the opaque identifier of a key that its application's process gets; the key cannot be made from it."""
    # The salt is that of the first release with identifiers, since counts are stored by them.
    return salted_hmac("apps.keys.mark", str(pk), algorithm="sha256").hexdigest()[:24]


def _compose(pk: int, nonce: str) -> str:
    return f"{PREFIX}{tokens.base36(pk)}_{tokens.signature('app key', pk, nonce)}"


# --- verbs ---------------------------------------------------------------------------------------------------------
def require_room(app: Application) -> None:
    """Raise Refused for an application that has as many keys as are allowed."""
    if app.keys.count() >= MAX:
        raise Refused("the application has %(limit)s keys, the most that are allowed", limit=MAX)


def create(
    *,
    app: Application,
    name: str,
    days: int | None = None,
    rate: int | None = None,
    day_tokens: int | None = None,
    by: str,
) -> tuple[AppKey, str]:
    """Return a new key's row and its text, which cannot be shown again. It ends after `days`, None for never, and is
    good for `rate` requests a minute and `day_tokens` tokens a day, None for any number.

    Raises Refused; WrongState while the application is in the trash or being deleted; Missing.
    """
    if not NAME.fullmatch(name):
        raise Refused("must be 1 to 50 letters, digits and . _ -, beginning with a letter or digit", field="name")
    values = _values(days=days, rate=rate, day_tokens=day_tokens)
    try:
        with locked(Application, pk=app.pk) as row:
            trash.require_kept(row)
            if row.state == DELETING:
                raise WrongState("the %(kind)s is already being deleted", kind=word("application"))
            require_room(row)
            key = AppKey.objects.create(app=row, name=name, by=by, **values)
            _tell(row, Message("%(by)s made the key %(name)s of the application %(app)s.",
                               by=notices.name_of(by), name=name, app=row.name))  # fmt: skip
    except IntegrityError as problem:
        if violated(problem) == "app_key_name_once":
            raise Refused("the application already has a key named %(name)s", field="name", name=name)
        raise
    return key, derive(key)


def _values(**given: int | None) -> dict:
    """Return what is stored for the given ones of `days`, `rate` and `day_tokens`. Raises Refused."""
    for field, last in (("days", MAX_DAYS), ("rate", request_limits.MAX), ("day_tokens", MAX_DAY_TOKENS)):
        number = given.get(field)
        if number is not None and not 1 <= number <= last:
            raise Refused("must be from 1 to %(last)s", field=field, last=last)
    values = {field: given[field] for field in ("rate", "day_tokens") if field in given}
    if "days" in given:
        values["expires"] = None if given["days"] is None else timezone.now() + timedelta(days=given["days"])
    return values


def change(*, app: Application, name: str, by: str, **given: int | None) -> AppKey:
    """Change the end or a limit of a key, which stays the same: `days` from now on, None for never, `rate`, None for
    any number of requests a minute, and `day_tokens`, None for any number of tokens a day. What is not given stays as
    it is. Return the row. Raises Missing, Refused.
    """
    values = _values(**given)
    if "expires" in values:
        values["warned"] = False
    with transaction.atomic():
        row = lock_row(AppKey, app=app, name=name)
        if row is None:
            raise Missing("key")
        for field, value in values.items():
            setattr(row, field, value)
        if values:
            row.save(update_fields=list(values))
            _forget([row.pk])
            _tell(app, Message("%(by)s changed the key %(name)s of the application %(app)s.",
                               by=notices.name_of(by), name=name, app=app.name))  # fmt: skip
    return row


def warn(now: datetime) -> None:
    """Notify owners once of keys that expire soon. Called by reconcile."""
    soon = AppKey.objects.filter(warned=False, expires__gt=now, expires__lt=now + SOON)
    for pk in list(soon.order_by("expires").values_list("pk", flat=True)[:WARNED_AT_ONCE]):
        with transaction.atomic():
            row = lock_row(AppKey, pk=pk, warned=False)
            if row is not None:
                row.warned = True
                row.save(update_fields=["warned"])
                notices.tell(row.app.user, Message("The key %(name)s of the application %(app)s expires on %(day)s.",
                                                   name=row.name, app=row.app.name,
                                                   day=f"{row.expires:%Y-%m-%d}"))  # fmt: skip


def revoke(*, app: Application, name: str, by: str) -> None:
    """Delete a key; requests with it are refused from the commit on. Raises Missing, Fault."""
    with transaction.atomic():
        row = lock_row(AppKey, app=app, name=name)
        if row is None:
            raise Missing("key")
        _forget([row.pk])
        row.delete()
        _tell(app, Message("%(by)s revoked the key %(name)s of the application %(app)s.",
                           by=notices.name_of(by), name=name, app=app.name))  # fmt: skip


def hold(app: Application) -> list[int]:
    """Lock the keys of an application and return their rows: before the counts of their days, as `collect` does."""
    return list(app.keys.select_for_update().order_by("pk").values_list("pk", flat=True))


def _forget(rows: list[int]) -> None:
    tokens.recheck([CACHE_KEY.format(pk=pk) for pk in rows])


def _tell(app: Application, what: Message) -> None:
    after_commit.changed(app.user.username, "application", app.name)
    notices.tell(app.user, what)


def keys_of(app: Application):
    """Return the application's keys, the newest first; `requests`, `prompt_tokens` and `completion_tokens` of each are
    those of the last SHOWN_DAYS days.
    """
    return app.keys.order_by("-pk").annotate(**{field: recent(field) for field in Day._fields[1:]})


def recent(field: str = "requests") -> Sum:
    """Return the expression of a key's requests, or another count of AppKeyUse, of the last SHOWN_DAYS days."""
    since = timezone.now().date() - timedelta(days=SHOWN_DAYS - 1)
    return Sum(f"uses__{field}", filter=Q(uses__day__gte=since), default=0)


def days_of(rows: list[AppKey]) -> dict[int, list[Day]]:
    """Return for each row the use of each of the last SHOWN_DAYS days, oldest first."""
    today = timezone.now().date()
    days = [today - timedelta(days=ago) for ago in reversed(range(SHOWN_DAYS))]
    uses = AppKeyUse.objects.filter(key__in=rows, day__gte=days[0]).values_list("key_id", *Day._fields)
    used = {(key, counts[0]): Day(*counts) for key, *counts in uses}
    return {row.pk: [used.get((row.pk, day), Day(day)) for day in days] for row in rows}


# --- callers -------------------------------------------------------------------------------------------------------
def presented(meta: Mapping[str, str]) -> str:
    """Return the key that a request is sent with, in X-Api-Key or as a Bearer token; empty without one.

    An X-Api-Key without the prefix of our keys is ignored: it is meant for the application itself.
    """
    given = meta.get("HTTP_X_API_KEY", "").strip()
    if given.startswith(PREFIX):
        return given
    try:
        token = bearer(meta.get("HTTP_AUTHORIZATION", "")) or ""
    except Refused:
        return ""
    return token if token.startswith(PREFIX) else ""


def lookup(text: str, address: str = "") -> Caller | None:
    """Return whom a valid key identifies, else None. At most one round trip to Valkey when it is cached. `address` is
    the client's.
    """
    pk = _pk_of(text)
    if pk is None:
        return None
    row, anew = tokens.row_of(
        CACHE_KEY.format(pk=pk), lambda: _load(pk), lambda row: _compose(pk, row["nonce"]), text, lambda _row: CACHE_S
    )
    if row is None:
        return None
    if (row["expires"] or float("inf")) <= time.time():
        return None
    if anew:
        AppKey.objects.filter(pk=pk).update(used=timezone.now(), **({"address": address} if address else {}))
    # one that was cached before an upgrade has no limit of tokens
    return Caller(pk, row["app_id"], row["rate"], row.get("day_tokens"))


def _load(pk: int) -> dict | None:
    row = AppKey.objects.filter(pk=pk).values(*LOADED).first()
    if row is not None:
        row["expires"] = row["expires"] and row["expires"].timestamp()
    return row


def _pk_of(text: str) -> int | None:
    if not text.isascii() or len(text) > 100 or not text.startswith(PREFIX):
        return None
    number, _, mac = text.removeprefix(PREFIX).partition("_")
    if len(mac) != 43 or not 1 <= len(number) <= 12 or not number.isalnum():
        return None
    pk = int(number, 36)
    return pk if 0 < pk < 2**63 else None


# --- use -----------------------------------------------------------------------------------------------------------
def count(pk: int, times: int) -> None:
    """Count requests that were made with a key, or with `times` below 0 do not count refused ones after all. While
    Valkey does not respond they are not counted.
    """
    try:
        broker().client.hincrby(COUNTS, f"{pk}:{timezone.now().date()}", times)
    except RedisError:
        log.warning("the requests of keys are not counted: Valkey does not respond")


def collect() -> None:
    """Move the counts to the database, and delete those of days that are over for long. Called by reconcile."""
    with broker().client.pipeline(transaction=True) as together:
        counted, _deleted = together.hgetall(COUNTS).delete(COUNTS).execute()
    if not counted:
        return
    try:
        _store({field.decode(): int(number) for field, number in counted.items()})
    except Exception:
        for field, number in counted.items():
            broker().client.hincrby(COUNTS, field, int(number))
        raise


@transaction.atomic
def _store(counted: dict[str, int]) -> None:
    numbers: Counter[tuple[int, date]] = Counter()
    for field, number in counted.items():
        pk, _, day = field.partition(":")
        numbers[int(pk), date.fromisoformat(day)] += number
    there = AppKey.objects.filter(pk__in={pk for pk, _day in numbers}).order_by("pk").select_for_update(no_key=True)
    rows = set(there.values_list("pk", flat=True))
    for (pk, day), number in sorted(numbers.items()):
        counted = Greatest(F("requests") + number, 0)
        if pk in rows and not AppKeyUse.objects.filter(key=pk, day=day).update(requests=counted) and number > 0:
            AppKeyUse.objects.create(key_id=pk, day=day, requests=number)
    AppKeyUse.objects.filter(day__lt=(clock.settled(timezone.now()) - KEPT).date()).delete()

"""Sends copies of an application's requests to its shadow, and counts how the answers differ. Called in a worker.

The processes of the application keep copies in memory (serving/copies.py); a worker fetches some of them, sends them to
the shadow's run, compares, and stores what came of it in one transaction. A copy is sent once or never: what a worker
has fetched when it is killed is lost. Nothing here is waited for by a caller, and one worker at a time does it for a
shadow (`busy_until`), as long as there are copies.

What a process says is its model's word about itself, which may write anything: sizes are limited, and a copy that
cannot be read is counted as unfit.
"""

from __future__ import annotations

import base64
import hmac
import http.client
import json
import logging
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import quote

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from kernel import after_commit, clock, outbound, sanitize, sockets, stored
from kernel.messages import Message

from .. import proof
from ..models import Application, Replica, Rollout, Shadow, ShadowPair, State
from ..records import plan
from ..serving import masking
from . import comparing, latencies
from .comparing import Answer

log = logging.getLogger(__name__)

HEADER, TAKE = "X-App-Copies", "/-copies"  # apps/serving/copies.py
TAKE_S, MOST = 5.0, 8 << 20  # of one fetch, with its bodies in base64
ANSWER_S = 30  # after which an answer counts as none, or earlier where the application has a limit
SENDERS, MAX_FETCHED = 8, 64
MANY, PAUSE_S = 32, 0.25  # copies of one fetch, after which there may be more; else the next one has time
ROUND_S, CLAIM_S = 5.0, 180  # of one look; after that another worker may go on where this one was killed
MAX_PAIRS, PAIRS_AT_ONCE, PAIRS_KEPT = 50, 5, timedelta(days=30)
MAX_HOURS = 31 * 24
# What is raised for a copy or an answer of another form; OverflowError for a number that is none of bytes or of time.
WRONG = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
AT_ONCE = threading.BoundedSemaphore(2)  # shadows of one worker process, which has other tasks, too
OLD = Message("a run of the application is of an earlier release and copies nothing; restart the application")


@dataclass
class Copy:
    """A request that an application has answered, with its answer."""

    id: str
    path: str
    headers: dict[str, str]
    body: bytes
    base: Answer


@dataclass
class Batch:
    """What came of the copies of one fetch."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(Shadow.COUNTS, 0))
    latencies: list[tuple[float, float]] = field(default_factory=list)  # of both, in ms
    pairs: list[ShadowPair] = field(default_factory=list)
    problem: Message | str = ""


def look(pk: int) -> None:
    """Send what is copied for a shadow now, for a few seconds at most."""
    if not AT_ONCE.acquire(blocking=False):
        return  # the next round of reconcile asks again
    try:
        now = timezone.now()
        free = Shadow.objects.filter(Q(busy_until=None) | Q(busy_until__lt=now), pk=pk)
        if not free.update(busy_until=now + timedelta(seconds=CLAIM_S)):
            return
        try:
            _work(pk)
        finally:
            Shadow.objects.filter(pk=pk).update(busy_until=None)
    finally:
        AT_ONCE.release()


def _work(pk: int) -> None:
    end = time.monotonic() + ROUND_S
    with ThreadPoolExecutor(SENDERS, thread_name_prefix="shadow") as pool:
        while time.monotonic() < end:
            rows = Rollout.objects.select_related("app__user", "app__tenant", "shadow", "model")
            rollout = rows.filter(shadow=pk, phase=Rollout.Phase.SHADOW).first()
            if rollout is None or rollout.app.state != State.READY:
                return
            most = 0
            for run in _runs(rollout.app):
                batch = _compare(rollout, run, pool, end) if time.monotonic() < end else Batch()
                _store(rollout, batch)
                most = max(most, sum(batch.counts.values()))
            if not most:
                return
            if most < MANY:  # a fetch for each request would cost the application, and the machine, more than they do
                time.sleep(PAUSE_S)


def _runs(app: Application) -> list[tuple[str, str]]:
    """Return the names and addresses of the runs that answer callers, in any order: there may not be time for all."""
    replicas = Replica.objects.filter(app=app, phase=Replica.Phase.READY).order_by("pk")
    own = [(app.run_name, app.address)] if app.address and not app.asleep else []
    runs = own + list(replicas.values_list("run_name", "address"))
    return random.sample(runs, len(runs))


def token_of(run_name: str) -> str:
    """Return what proves the platform to a run; no request of a caller has it."""
    return hmac.new(proof.secret(run_name).encode(), b"copies", "sha256").hexdigest()


def _ask(run_name: str, address: str, method: str, path: str, body=None, headers=None, *, limit_s: float):
    """Return the status and the body of a run's answer to the platform. Raises OSError, HTTPException, ValueError."""
    more = {**proof.headers(run_name), HEADER: token_of(run_name)}
    return outbound.exchange(
        sockets.parse(address), method, path, body, {**(headers or {}), **more}, limit_s=limit_s, most=MOST
    )


def _compare(rollout: Rollout, run: tuple[str, str], pool: ThreadPoolExecutor, end: float) -> Batch:
    """Fetch copies from a run, send them to the shadow, and return what came of it. What is not sent at `end` is
    dropped: the shadows of others wait for this one.
    """
    batch = Batch()
    copies = _fetch(run, batch)
    shadow, app = rollout.shadow, rollout.app
    rule = comparing.Rule(shadow.tolerance, frozenset(shadow.ignore))
    limit_s = min(app.answer_s or settings.APP_ANSWER_S, settings.APP_ANSWER_S, ANSWER_S)

    def send(copy: Copy) -> tuple[bool, Answer | None]:
        if time.monotonic() >= end:
            return False, None
        return True, _send(copy, rollout.run_name, rollout.address, limit_s)

    mask, most = _shown_of(app)
    for copy, (sent, answer) in zip(copies, pool.map(send, copies), strict=True):
        if not sent:
            batch.counts["dropped"] += 1
            continue
        kind, where = comparing.compare(copy.base, answer, rule)
        batch.counts[kind] += 1
        if answer is not None:
            batch.latencies.append((copy.base.ms, answer.ms))
        if kind in ShadowPair.Kind.values and most and len(batch.pairs) < PAIRS_AT_ONCE:
            batch.pairs.append(_pair(rollout, copy, answer, kind, where, mask, most))
    return batch


def _fetch(run: tuple[str, str], batch: Batch) -> list[Copy]:
    try:
        status, data = _ask(*run, "GET", TAKE, limit_s=TAKE_S)
    except (OSError, ValueError, http.client.HTTPException):
        return []  # it has ended, or is busy
    if status != 200:
        batch.problem = OLD
        return []
    copies, lines = [], data.split(b"\n")
    for line in lines:
        try:
            found = json.loads(line) if line else {}
            if "dropped" in found:
                for name in ("dropped", "unfit"):
                    batch.counts[name] += min(max(int(found[name]), 0), 10**9)
            elif found:
                copies.append(_copy_of(found))
        except WRONG:
            batch.counts["unfit"] += 1
    return copies[:MAX_FETCHED]


def _copy_of(found: dict) -> Copy:
    """Return a copy of a line. Raises one of WRONG for one of another form."""
    path = quote(found["path"], safe="/:@!$&'()*+,;=-._~")
    if not path.startswith("/") or path.startswith("/-"):
        raise ValueError("no path of a model")
    query = quote(found["query"], safe="/:@!$&'()*+,;=-._~?%")
    headers: dict[str, str] = {}
    for name, value in found["headers"]:  # of a name that is there twice all values count
        headers[str(name)] = f"{headers[str(name)]}, {value}" if str(name) in headers else str(value)
    request_id = sanitize.text(str(found["id"]))[:64]
    body = base64.b64decode(found["body"], validate=True)
    return Copy(request_id, path + (f"?{query}" if query else ""), headers, body, _answer_of(found["answer"]))


def _answer_of(found: dict) -> Answer:
    """Return an answer as a process reports it. Raises one of WRONG for one of another form."""
    status, ms = int(found["status"]), float(found["ms"])
    if not (100 <= status <= 999 and 0 <= ms < 1e12):
        raise ValueError("no answer")
    data = base64.b64decode(found["data"], validate=True)
    return Answer(status, ms, str(found["type"])[:100], found["whole"] is True, data)


def _send(copy: Copy, run_name: str, address: str, limit_s: float) -> Answer | None:
    """Return what the shadow answers to a copy; None where it gives no answer."""
    try:
        status, data = _ask(run_name, address, "POST", copy.path, copy.body, copy.headers, limit_s=limit_s)
        return _answer_of(json.loads(data)) if status == 200 else None
    except (OSError, http.client.HTTPException, *WRONG):
        return None


# --- what is kept ---------------------------------------------------------------------------------------------------
def _shown_of(app: Application) -> tuple[tuple[str, ...], int]:
    """Return what is masked in pairs, and how many bytes are kept of a body, as in records; 0: pairs are not kept."""
    if app.tenant.record_days == 0:
        return (), 0
    recording = plan.of(app)
    return tuple(recording.mask), recording.record_kib << 10


def _pair(
    rollout: Rollout, copy: Copy, answer: Answer | None, kind: str, where: comparing.Steps | None, mask, most: int
) -> ShadowPair:  # fmt: skip
    """Return a pair to be kept. As in records, what follows the path of the address is left out."""
    base = copy.base
    if mask and where is not None and answer is not None:
        where = comparing.uncovered(where, *(shown(each.data, True, mask, MOST) for each in (base, answer)))
    packed = any(name.lower() == "content-encoding" for name in copy.headers)
    return ShadowPair(
        shadow_id=rollout.shadow_id, user_id=rollout.app.user_id, request_id=copy.id,
        path=sanitize.text(copy.path.partition("?")[0])[:200], kind=kind,
        at_path=sanitize.text(comparing.written(where)),
        base_status=base.status, base_ms=base.ms,
        shadow_status=answer.status if answer else None, shadow_ms=answer.ms if answer else None,
        input="" if packed else shown(copy.body, True, mask, most),
        base_output=shown(base.data, base.whole, mask, most, says_why=base.status >= 400),
        shadow_output=shown(answer.data, answer.whole, mask, most, says_why=answer.status >= 400) if answer else "",
    )  # fmt: skip


def shown(data: bytes, whole: bool, mask: tuple[str, ...], most: int, says_why: bool = False) -> str:
    """Return the text of a body, masked and cut to `most` bytes. What cannot be masked is left out: what is no JSON, or
    not whole, and the reasons of refusals, which may repeat a value; so is what is no text.
    """
    try:
        text = data.decode(errors="strict" if whole else "ignore")
        if mask:
            text = "" if says_why or not whole else masking.masked(text, mask)
    except (ValueError, RecursionError):
        return ""
    return "" if "\x00" in text else sanitize.text(text).encode(errors="replace")[:most].decode(errors="ignore")


@transaction.atomic
def _store(rollout: Rollout, batch: Batch) -> None:
    """Add what came of a batch to the shadow's counts, and keep some of the pairs that differ."""
    shadow = Shadow.objects.select_for_update(no_key=True).filter(pk=rollout.shadow_id).first()
    if shadow is None or (shadow.reason == batch.problem and not sum(batch.counts.values())):
        return
    hour = shadow.hours.setdefault(timezone.now().strftime("%Y-%m-%dT%H:00Z"), dict.fromkeys(Shadow.COUNTS, 0))
    for name, number in batch.counts.items():
        setattr(shadow, name, getattr(shadow, name) + number)
        hour[name] = hour.get(name, 0) + number
    shadow.hours = dict(sorted(shadow.hours.items())[-MAX_HOURS:])
    for base_ms, shadow_ms in batch.latencies:
        latencies.add(shadow.base_ms, base_ms)
        latencies.add(shadow.shadow_ms, shadow_ms)
    shadow.reason = batch.problem if shadow.ended is None else shadow.reason
    shadow.save(update_fields=[*Shadow.COUNTS, "hours", "base_ms", "shadow_ms", "reason"])
    if batch.pairs:
        try:
            stored.require(rollout.app.user_id)
            ShadowPair.objects.bulk_create(batch.pairs)
        except stored.TooMuch:  # what is counted says it all, without examples
            pass
        older = ShadowPair.objects.filter(shadow=shadow).order_by("-pk").values_list("pk", flat=True)[MAX_PAIRS:]
        ShadowPair.objects.filter(pk__in=list(older)).delete()
    after_commit.changed(rollout.app.user.username, "application", rollout.app.name, moving=True)


def expire() -> None:
    """Delete pairs that are older than records may be. Called by reconcile."""
    now = clock.settled(timezone.now())
    ShadowPair.objects.filter(at__lt=now - PAIRS_KEPT).delete()
    limited = ShadowPair.objects.filter(shadow__app__tenant__record_days__isnull=False)
    for days in limited.values_list("shadow__app__tenant__record_days", flat=True).distinct():
        limited.filter(shadow__app__tenant__record_days=days, at__lt=now - timedelta(days=days)).delete()

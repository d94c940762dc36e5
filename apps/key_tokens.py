"""The tokens of language models, counted for the keys of their callers by day.

The gateway sends the process an opaque identifier of the caller's key (keys.opaque_id), and the process writes how many
tokens it has read and made for each to a file of its run (serving/token_counter.py). `collect` moves what has been
added to the days of the keys. The counts are the application's word about itself: identifiers of keys that are not its
own are ignored, so it can say nothing of others.
"""

from __future__ import annotations

import json
import re
from datetime import date, timedelta

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from kernel import healing, storage

from . import keys, launching, slots, token_limits
from .models import AppKey, AppKeyUse, AppRun

OPAQUE_ID = re.compile(r"[0-9a-f]{24}")
MAX_BYTES = 32 << 10  # of a file
MOST = 10**12  # of one count, so that sums of them stay numbers of the database
LEAVING = timedelta(minutes=1)  # a run that has ended for the gateway may still answer what it has
Counts = dict[str, list[int]]  # opaque identifier > [prompt tokens, completion tokens]


def collect() -> None:
    """Move what the processes have counted to the days of the keys. Called by reconcile."""
    runs = AppRun.objects.filter(tokens__isnull=False).select_related("app__user")
    healing.each(_collect, list(runs.order_by("pk")))


def _collect(run: AppRun) -> None:
    over = run.ended is not None and run.ended < timezone.now() - LEAVING
    counts, day = _read(run), timezone.now().date()
    if counts != run.tokens:
        token_limits.publish(_store(run, counts, day), day)
    if over:
        (launching.folder(run.app) / slots.tokens_name(run.name)).unlink(missing_ok=True)
        AppRun.objects.filter(pk=run.pk).update(tokens=None)


def _read(run: AppRun) -> Counts:
    """Return the counts of a run; what was known where the file is missing or invalid. The application may write
    anything: links are not followed, and only numbers are accepted.
    """
    file = storage.open_file(launching.folder(run.app), slots.tokens_name(run.name))
    if file is None:
        return run.tokens
    with file:
        data = file.read(MAX_BYTES + 1)
    try:
        found = json.loads(data).items()
        return {_identifier(text): [_count(prompt), _count(completion)] for text, (prompt, completion) in found}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return run.tokens


def _identifier(text: str) -> str:
    if not OPAQUE_ID.fullmatch(text):
        raise ValueError("not an identifier")
    return text


def _count(number) -> int:
    if type(number) is not int or number < 0:
        raise ValueError("not a count")
    return min(number, MOST)


@transaction.atomic
def _store(run: AppRun, counts: Counts, day: date) -> dict[int, int]:
    """Add what is new to a day of the application's keys; return the tokens of that day of those that have changed. The
    keys are locked before the run, as when the application is deleted.
    """
    rows = AppKey.objects.filter(app=run.app_id).order_by("pk").select_for_update(no_key=True)
    by_id = {keys.opaque_id(pk): pk for pk in rows.values_list("pk", flat=True)}
    row = AppRun.objects.filter(pk=run.pk, tokens__isnull=False).select_for_update(no_key=True).first()
    if row is None:
        return {}
    totals = {}
    for text, numbers in sorted(counts.items()):
        added = _added(row.tokens.get(text, [0, 0]), numbers)
        if text in by_id and any(added):
            totals[by_id[text]] = _add(by_id[text], day, *added)
    AppRun.objects.filter(pk=row.pk).update(tokens=counts)
    return totals


def _added(before: list[int], now: list[int]) -> list[int]:
    """Return what was added to the counts. A process that has forgotten a key counts it from 0 again."""
    if any(new < old for old, new in zip(before, now, strict=True)):
        return now
    return [new - old for old, new in zip(before, now, strict=True)]


def _add(pk: int, day: date, prompt: int, completion: int) -> int:
    """Add tokens to a day of a key and return all of that day."""
    more = {"prompt_tokens": F("prompt_tokens") + prompt, "completion_tokens": F("completion_tokens") + completion}
    if not AppKeyUse.objects.filter(key=pk, day=day).update(**more):
        AppKeyUse.objects.create(key_id=pk, day=day, requests=0, prompt_tokens=prompt, completion_tokens=completion)
    return token_limits.stored(pk, day)

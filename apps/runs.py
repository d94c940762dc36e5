"""The record of an application's runs: what each served, how long it was up, and how it ended.

Written under the application's lock by apps.lifecycle and apps.rollouts; read by pages and REST. A record does not
decide anything: a missing one costs a line on a page.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from models_app.models import Model

from .models import Application, AppRun, Recording, Replica

Outcome = AppRun.Outcome
KEPT = 200  # of each application
WINDOW = timedelta(days=1)


@dataclass(frozen=True)
class Uptime:
    """How long the application was up in the last day, of the seconds in which it should have been."""

    wanted_s: float
    up_s: float
    failures: int

    @property
    def share(self) -> float | None:
        """Return the share of the time, 0 to 1; None where it should not have been up at all."""
        return min(self.up_s / self.wanted_s, 1.0) if self.wanted_s > 0 else None

    @property
    def percent(self) -> str:
        """Return the share for a page. 100 % means that it was never down."""
        share = self.share
        if share is None:
            return ""
        return f"{share * 100:.0f}" if share in (0.0, 1.0) else f"{min(share * 100, 99.99):.2f}"


def begin(app: Application, run_name: str, model: Model) -> None:
    """Record that a run was ordered."""
    values: dict = {"model_name": model.name, "ordered": timezone.now()}
    values |= {"tokens": {} if model.is_language_model else None}
    values |= {"records": {} if Recording.objects.filter(app=app, on=True).exists() else None}
    AppRun.objects.get_or_create(app=app, name=run_name, defaults=values)
    oldest = AppRun.objects.filter(app=app).order_by("-id").values_list("id", flat=True)[KEPT : KEPT + 1].first()
    if oldest is not None:  # but those that are there stay: others may come and go beside them
        there = [app.run_name, *Replica.objects.filter(app=app).values_list("run_name", flat=True)]
        rows = AppRun.objects.filter(app=app, id__lte=oldest, records__isnull=True)  # others have records to be stored
        rows.exclude(name__in=there, ended=None).delete()


def come_up(app: Application, run_name: str) -> None:
    """Record that a run is up."""
    AppRun.objects.filter(app=app, name=run_name, ready=None, ended=None).update(ready=timezone.now())


def end(app: Application, run_name: str, outcome: Outcome, reason: str = "") -> None:
    """Record how a run has ended; the first answer stays."""
    if run_name:
        AppRun.objects.filter(app=app, name=run_name, ended=None).update(
            ended=timezone.now(), outcome=outcome, reason=reason
        )


def go_on(app: Application, run_name: str) -> None:
    """Record that a run which was no longer needed has not ended, since it is again."""
    AppRun.objects.filter(app=app, name=run_name, outcome=Outcome.SCALED_IN).update(ended=None, outcome="", reason="")


def hold(app: Application) -> None:
    """Lock the runs of a locked application that is to be deleted, before what is counted by them."""
    list(AppRun.objects.filter(app=app).order_by("pk").select_for_update().values_list("pk"))


def latest(app: Application) -> list[AppRun]:
    """Return the runs that are kept, newest first."""
    rows = AppRun.objects.filter(app=app).order_by("-id")
    newest = list(rows[:KEPT])
    return newest + list(rows.filter(ended=None, id__lt=newest[-1].pk)) if newest else []


def uptime(rows: list[AppRun], now: datetime | None = None) -> Uptime:
    """Return how long an application was up in the last day by its `latest` runs. Its first start does not count, nor
    does the time from a stop, or from when it fell asleep, to the next run.
    """
    now = now or timezone.now()
    first = rows[-1].ready or rows[-1].ordered if rows else now
    since = max(now - WINDOW, first)
    up = _merged((row.ready, row.ended or now) for row in rows if row.ready)
    wanted = _without(_stops(rows, now), since, now)
    failures = sum(row.outcome == Outcome.FAILED and row.ended > since for row in rows if row.ended)
    return Uptime(_seconds(wanted), _seconds(_both(up, wanted)), failures)


def _stops(rows: list[AppRun], now: datetime) -> list[tuple[datetime, datetime]]:
    """Return the spans in which it was stopped or asleep, oldest first."""
    ends = [row.ended for row in rows if row.ended and (row.outcome == Outcome.STOPPED or _is_last(row, rows))]
    spans = [(end_at, min((row.ordered for row in rows if row.ordered >= end_at), default=now)) for end_at in ends]
    return sorted(span for span in spans if span[0] < span[1])


def _is_last(row: AppRun, rows: list[AppRun]) -> bool:
    """Return whether an application has fallen asleep with the end of this run: it was not needed, and no other was
    there.
    """
    if row.outcome != Outcome.SCALED_IN:
        return False
    others = (other for other in rows if other is not row and other.ordered < row.ended)
    return all(other.ended is not None and other.ended <= row.ended for other in others)


def _merged(spans: Iterable[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """Return the spans without overlaps, oldest first."""
    merged: list[tuple[datetime, datetime]] = []
    for begin_at, end_at in sorted(spans):
        if merged and begin_at <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end_at))
        else:
            merged.append((begin_at, end_at))
    return merged


def _without(gaps: list, since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    """Return the span from `since` to `until` without the gaps, which are in order."""
    left, begin_at = [], since
    for gap_begin, gap_end in gaps:
        if gap_begin > begin_at:
            left.append((begin_at, min(gap_begin, until)))
        begin_at = max(begin_at, gap_end)
    return [*left, (begin_at, until)] if begin_at < until else left


def _both(ones: list, others: list) -> list[tuple[datetime, datetime]]:
    """Return what is in a span of both."""
    pairs = [(max(one[0], other[0]), min(one[1], other[1])) for one in ones for other in others]
    return [(begin_at, end_at) for begin_at, end_at in pairs if begin_at < end_at]


def _seconds(spans: list) -> float:
    return sum((end_at - begin_at).total_seconds() for begin_at, end_at in spans)

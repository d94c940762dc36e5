"""Compares the windows of an application with its reference. Called by a worker; each step may be repeated.

A window is stored in one transaction with how far the check has come, an alert with the mark that it was sent, both
under the row's lock: a task that is killed is repeated, and two at once have the effect of one.
"""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime

from django.db import transaction
from django.db.models import Max
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_noop

from accounts import notices
from datasets import sources
from kernel import after_commit, disk, stored
from kernel.errors import Refused
from kernel.locking import lock_row
from kernel.messages import Message
from kernel.models import record_change

from ..models import DriftCheck, DriftWindow, Record
from . import plan, reading
from .columns import columns_of, profile_of
from .comparing import Rule, compare
from .features import Row
from .reading import Sample

AT_ONCE, MOST_S = 24, 120.0  # windows that one task compares, and after which time it begins with none
ENDED = gettext_noop("ended")
NAMED = 5  # features that an alert names
Verdict = DriftWindow.Verdict


def look(pk: int) -> None:
    """Read the reference if need be, and compare what has ended since the last time; then say when to look again."""
    row = DriftCheck.objects.select_related("app__user", "app__model").filter(pk=pk, on=True).first()
    if row is None or row.app.trashed is not None or disk.is_low():
        return  # it is sent again after its lease
    try:
        stored.require(row.user_id)
    except Refused as refused:
        _put_off(row, refused.problem)
        return
    end = time.monotonic() + MOST_S
    if row.profile is None and not _read_reference(row):
        return
    for _window in range(AT_ONCE):
        if time.monotonic() > end:
            break
        if not _next_window(row):
            _alert(row)
            return _look_again(row, _end_of(row, timezone.now()) + plan.LATER)
    plan.look(row)


def _look_again(row: DriftCheck, at: datetime) -> None:
    DriftCheck.objects.filter(pk=row.pk, changes=row.changes, on=True).update(next_look=at)


def _end_of(row: DriftCheck, at: datetime) -> datetime:
    """Return the end of the window that a time is in. Hours and days are those of UTC."""
    begin = at.replace(minute=0, second=0, microsecond=0)
    begin = begin.replace(hour=0) if row.window == DriftCheck.Window.DAY else begin
    return begin + row.length


# --- the reference ------------------------------------------------------------------------------------------------
def _read_reference(row: DriftCheck) -> bool:
    """Read the reference and store its profile; return whether there is one now."""
    try:
        profile = _profile(row)
    except Refused as refused:
        return _put_off(row, refused.problem)
    with transaction.atomic():
        current = lock_row(DriftCheck, pk=row.pk)
        if current is None or current.changes != row.changes:
            return False
        current.profile, current.profiled, current.problem = profile, timezone.now(), ""
        current.save(update_fields=["profile", "profiled", "problem"])
        after_commit.changed(row.app.user.username, "application", row.app.name)
    row.profile = profile
    return True


def _put_off(row: DriftCheck, problem: Message) -> bool:
    """Record why nothing can be compared; it is tried again a window later."""
    DriftCheck.objects.filter(pk=row.pk, changes=row.changes).update(problem=problem)
    _look_again(row, timezone.now() + row.length)
    after_commit.changed(row.app.user.username, "application", row.app.name)
    return False


def _profile(row: DriftCheck) -> list[dict]:
    """Return the profile of the reference. Raises Refused."""
    fixed = reading.fixed_of(row.app)
    if row.dataset:
        if sources.missing(row.app.user, [row.dataset]):
            raise Refused("you have no ready dataset %(name)s", field="dataset", name=row.dataset)
        if sources.external(row.app.user, [row.dataset]):
            raise Refused(
                "the files of the dataset %(name)s are in a bucket; only jobs read them", field="dataset",
                name=row.dataset,
            )  # fmt: skip
        _name, folder = sources.folder(row.app.user, row.dataset)
        sample = reading.of_dataset(folder, row.target, fixed)
    else:
        sample = reading.of_records(row.app, row.since, row.until, fixed)
        if sample.count < row.least:
            raise Refused("the reference has %(count)s records; at least %(least)s are needed",
                          field="since", count=sample.count, least=row.least)  # fmt: skip
        if (why := reading.of_unread(sample)) is not None:
            raise Refused(why, field="since")
    kinds = {side: {name.removeprefix(f"{side}."): kind for name, kind in row.kinds.items()
                    if name.startswith(f"{side}.")} for side in ("input", "output")}  # fmt: skip
    return profile_of(sample.inputs, kinds["input"], "input") + profile_of(sample.outputs, kinds["output"], "output")


# --- windows ------------------------------------------------------------------------------------------------------
def _next_window(row: DriftCheck) -> bool:
    """Compare the next window that has ended and has records; return whether there was one."""
    last_end = _end_of(row, timezone.now() - plan.LATER) - row.length
    first = _set_back(row, last_end) or last_end - plan.BACK
    found = Record.objects.filter(app=row.app_id, at__gte=first, at__lt=last_end).order_by("at", "pk")
    at = found.values_list("at", flat=True).first()
    if at is None:
        if row.compared_to != last_end and last_end > first:
            DriftCheck.objects.filter(pk=row.pk, changes=row.changes).update(compared_to=last_end)
        return False
    end = _end_of(row, at)
    begin = end - row.length
    sample = reading.of_records(row.app, begin, end, reading.fixed_of(row.app), row.profile)
    return _settle(row, _compared(row, begin, end, sample))


def _set_back(row: DriftCheck, last_end: datetime) -> datetime | None:
    """Return how far the check has come; what a clock that was ahead has compared of the future is compared again."""
    if row.compared_to is not None and row.compared_to > last_end + row.length:
        windows = DriftWindow.objects.filter(app=row.app_id)
        with transaction.atomic():
            current = lock_row(DriftCheck, pk=row.pk)
            if current is not None and current.changes == row.changes and current.compared_to == row.compared_to:
                windows.filter(end__gt=last_end).delete()
                current.compared_to = windows.aggregate(end=Max("end"))["end"]
                current.save(update_fields=["compared_to"])
                row.compared_to = current.compared_to
    return row.compared_to


def _compared(row: DriftCheck, begin: datetime, end: datetime, sample: Sample) -> DriftWindow:
    """Return what a window shows; the row is not stored."""
    window = DriftWindow(app=row.app, user_id=row.user_id, begin=begin, end=end, count=sample.count)
    if sample.count < row.least:
        window.verdict = Verdict.FEW
        return window
    if reading.of_unread(sample) is not None:
        window.verdict = Verdict.UNREAD
        return window
    rule, found, before = Rule(row.alpha, row.distance), [], _compared_before(row, begin)
    for side, rows in (("input", sample.inputs), ("output", sample.outputs)):
        profile = _matched([each for each in row.profile if each["side"] == side], rows)
        columns = columns_of(rows, [each["name"] for each in profile])
        found += compare(profile, columns, rule, bool(row.dataset), before[side])
    window.features = sorted(found, key=lambda each: (not each["drifted"], each.get("q", 2.0)))
    window.compared = sum("p" in each for each in found)
    window.drifted = sum(each["drifted"] for each in found)
    is_enough = window.drifted and window.drifted >= row.share * window.compared
    window.verdict = Verdict.DRIFT if is_enough else Verdict.STEADY if window.compared else Verdict.UNREAD
    return window


def _compared_before(row: DriftCheck, begin: datetime) -> dict[str, set[str]]:
    """Return the features of each side that the last window before had: these are missed when no request has them."""
    earlier = DriftWindow.objects.filter(app=row.app_id, begin__lt=begin, compared__gt=0).order_by("-begin")
    features = earlier.values_list("features", flat=True).first() or []
    return {side: {each["name"] for each in features if each["side"] == side and "p" in each}
            for side in ("input", "output")}  # fmt: skip


def _matched(profile: list[dict], rows: list[Row]) -> list[dict]:
    """Return the features of the reference with the names that they have in the rows. The answer's column of a dataset
    has none of its own, and where a request has a tensor in place of a table, its values are in the order of the
    columns.
    """
    here = list(Counter(map(tuple, rows)).most_common(1)[0][0]) if rows else []
    own = {each["name"] for each in profile}
    if (own == {""} and here) or (len(here) == len(profile) and not own & set(here)):
        return [{**each, "name": name} for each, name in zip(profile, here, strict=False)]
    return profile


@transaction.atomic
def _settle(row: DriftCheck, window: DriftWindow) -> bool:
    """Store a window, which may begin or end an episode; return False where the check has been changed meanwhile."""
    current = lock_row(DriftCheck, pk=row.pk)
    if current is None or not current.on or current.changes != row.changes:
        return False
    if current.compared_to is not None and current.compared_to >= window.end:
        row.compared_to = current.compared_to
        return True
    window.save()
    row.compared_to = current.compared_to = window.end
    if window.verdict == Verdict.DRIFT:
        current.drifting_since = current.drifting_since or window.begin
    elif window.verdict == Verdict.STEADY:
        current.drifting_since = None
    current.save(update_fields=["compared_to", "drifting_since"])
    after_commit.changed(row.app.user.username, "application", row.app.name, moving=True)
    return True


@transaction.atomic
def _alert(row: DriftCheck) -> None:
    """Notify the owner of the begin or the end of an episode, once all windows that are over are compared: what has
    begun and ended meanwhile is seen on the page.
    """
    current = lock_row(DriftCheck, pk=row.pk)
    if current is None or not current.on or current.changes != row.changes:
        return
    drifts = current.drifting_since is not None
    if drifts == current.alerted:
        return
    current.alerted = drifts
    current.save(update_fields=["alerted"])
    reason = Message("what it is asked and answers no longer differs from the reference")
    if drifts:
        found = DriftWindow.objects.filter(app=row.app_id, verdict=Verdict.DRIFT)
        reason = _words(found.latest("begin"))
    app = row.app
    notices.notify(user=app.user, kind="alert", name=app.name, event="alert" if drifts else ENDED, reason=reason,
                   link=reverse("application_drift", args=[app.name]), title=app.title)  # fmt: skip
    record_change(app, transition="drift", source=app.state, target=app.state, by="reconcile", reason=reason)


def _words(window: DriftWindow) -> Message:
    names = [each["name"] for each in window.features if each["drifted"]]
    more = len(names) - NAMED
    listed = ", ".join(names[:NAMED]) + (f" (+{more})" if more > 0 else "")
    return Message("drift: %(drifted)s of %(compared)s features differ from the reference: %(names)s",
                   drifted=window.drifted, compared=window.compared, names=listed)  # fmt: skip

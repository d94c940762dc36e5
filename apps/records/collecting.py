"""Stores what the processes of applications have recorded: from the files of their runs to the database.

A process appends to `records-{run}-{number}.ndjson` in the application's folder (serving/recorder.py). How far these
are stored is in the run's row (`AppRun.records`), which changes in the transaction of the records: whatever is killed,
each line is stored once. A file is removed when it is stored and a later one is there, the last one after the run.

The files are the application's word about itself, and its model may write anything there: links are not followed, only
lines of the known form are stored, and names of keys are the platform's own.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db import transaction
from django.utils import timezone

from kernel import after_commit, disk, healing, sanitize, storage, stored
from kernel.messages import Message

from .. import keys, launching, slots
from ..models import AppKey, AppRun, Record, Recording, State
from . import plan

log = logging.getLogger(__name__)

ROUND_BYTES, ROUND_LINES = 8 << 20, 10_000  # of one run that are read at once
ROUND_S = 5.0  # after which a round begins with no further run
MAX_TEXT = plan.MAX_KIB << 10
ROW = 300  # bytes of a record beside its bodies
LEAVING = timedelta(minutes=1)  # a run that has ended for the gateway may still answer what it has
AHEAD = 10  # files among which the next one is looked for when one is missing
BATCH = 500
ARMS = ("canary", "base")
BUSY = Message("more requests came than could be recorded")
ODD = Message("the application wrote records that cannot be read")


@dataclass
class Read:
    """What one look at a run's files has found: its lines, how far it has read, whether it has come to another file."""

    lines: list[bytes] = field(default_factory=list)
    state: dict = field(default_factory=dict)
    went_on: bool = False


def name_of(run_name: str, number: int) -> str:
    """Return the name of one of a run's files."""
    return f"{slots.records_name(run_name)}-{number}.ndjson"


def collect() -> None:
    """Store what is new of all runs, in any order: what a round has no time for, one of the next ones has. Called by
    reconcile.
    """
    end = time.monotonic() + ROUND_S
    for run in _recording().order_by("?"):
        healing.attempt(collect_run, run)
        if time.monotonic() > end:
            return


def collect_app(app_id: int) -> None:
    """Store what is new of one application's runs: feedback has come for a request that is not stored yet."""
    for run in _recording().filter(app=app_id).order_by("pk"):
        collect_run(run)


def _recording():
    runs = AppRun.objects.filter(records__isnull=False).exclude(app__state=State.DELETING)
    return runs.select_related("app__user", "app__tenant")


def collect_run(run: AppRun) -> None:
    """Store what is new of a run, as much as a round reads, and forget it once it has ended and all is stored."""
    if disk.is_low():
        return  # they wait in their files, which are bounded
    over = run.ended is not None and run.ended < timezone.now() - LEAVING
    found = _read(run)
    if found.state != run.records and not _store(run, found):
        return  # another process has
    _remove(run, found.state.get("file", 1) - 1)
    if over and not found.lines and not found.went_on:
        last = found.state.get("file", 1)
        for number in range(last, last + AHEAD):
            _unlink(run, number)
        AppRun.objects.filter(pk=run.pk, records=found.state).update(records=None)


def _read(run: AppRun) -> Read:
    """Read on from where the row says, up to the last whole line of the last file."""
    found, room = Read(), ROUND_BYTES
    number, offset = int(run.records.get("file", 1)), int(run.records.get("at", 0))
    while True:
        first, number = number, _first(run, number)
        offset = offset if number == first else 0
        is_final = _exists(run, number + 1)  # asked before it is read: its process writes only to the last one
        data = _data(run, number, offset, room)
        # A file of empty lines takes a thousand times as long as one of records with as many bytes.
        *lines, rest = data.split(b"\n", ROUND_LINES - len(found.lines))
        end = len(data) - len(rest)
        if not end and len(data) == ROUND_BYTES:  # no line is that long
            lines, end = [data], len(data)
        found.lines += lines
        at_end = len(data) < room and len(found.lines) < ROUND_LINES
        offset, room = offset + end, room - end
        if not at_end or not is_final:
            break
        number, offset, found.went_on = number + 1, 0, True  # what is left was torn when its process was killed
    found.state = {"file": number, "at": offset}
    return found


def _first(run: AppRun, number: int) -> int:
    """Return the first number from this one on that has a file; this one where none of the next has."""
    return next((each for each in range(number, number + AHEAD) if _exists(run, each)), number)


def _data(run: AppRun, number: int, offset: int, most: int) -> bytes:
    file = storage.open_file(launching.folder(run.app), name_of(run.name, number))
    if file is None:
        return b""
    with file:
        file.seek(offset)
        return file.read(most)


def _exists(run: AppRun, number: int) -> bool:
    return os.path.lexists(launching.folder(run.app) / name_of(run.name, number))


def _remove(run: AppRun, last: int) -> None:
    """Remove the stored files, the last of which has this number; also those that a killed process has left."""
    while last > 0 and _unlink(run, last):
        last -= 1


def _unlink(run: AppRun, number: int) -> bool:
    with contextlib.suppress(OSError):  # the application may have put a folder there
        (launching.folder(run.app) / name_of(run.name, number)).unlink()
        return True
    return False


@transaction.atomic
def _store(run: AppRun, found: Read) -> bool:
    """Store the records and how far they go; return False where another process has stored meanwhile."""
    row = AppRun.objects.select_for_update(no_key=True).filter(pk=run.pk, records=run.records).first()
    if row is None:
        return False
    rows, dropped, odd = _records(run, found.lines)
    problem: Message | str = BUSY if dropped else ODD if odd else ""
    lost = dropped + odd
    if rows and run.app.tenant.record_days == 0:
        rows = []
    try:
        if rows:
            stored.require(run.app.user_id)
    except stored.TooMuch as full:
        rows, lost, problem = [], lost + len(rows), full.problem
    Record.objects.bulk_create(rows, batch_size=BATCH)
    row.records = found.state
    row.save(update_fields=["records"])
    recording = Recording.objects.select_for_update(no_key=True).filter(app=run.app_id).first()
    if recording is not None and (rows or lost):
        recording.stored += sum(each.size for each in rows)
        recording.dropped += lost
        recording.problem = problem or recording.problem
        recording.save(update_fields=["stored", "dropped", "problem"])
    if rows or lost:
        after_commit.changed(run.app.user.username, "application", run.app.name, moving=True)
    return True


def _records(run: AppRun, lines: list[bytes]) -> tuple[list[Record], int, int]:
    """Return the rows, how many the process has dropped, and how many lines are none of its own."""
    names = {keys.opaque_id(pk): name for pk, name in AppKey.objects.filter(app=run.app_id).values_list("pk", "name")}
    rows: list[Record] = []
    dropped = odd = 0
    for line in lines:
        try:
            found = sanitize.read_json(line)
            if "dropped" in found:
                dropped += _whole(found["dropped"], 10**9)
            else:
                rows.append(_record(run, found, names))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            odd += 1
    return rows, dropped, odd


def _record(run: AppRun, found: dict, names: dict[str, str]) -> Record:
    """Return the row of a line. Raises ValueError, TypeError, KeyError, AttributeError for one of another form."""
    bodies: dict = {}
    for side in ("input", "output"):
        body = found[side]
        text = sanitize.text(body["text"]).encode(errors="replace")[:MAX_TEXT]
        bodies |= {
            side: text.decode(errors="ignore"),
            f"{side}_kept": Record.Kept(body["kept"]),
            f"{side}_type": sanitize.text(body["type"])[:100],
            f"{side}_size": _whole(body["size"], 2**62),
        }
    at = datetime.fromtimestamp(_number(found["at"], 4e9), UTC)
    size = ROW + sum(len(bodies[side].encode()) for side in ("input", "output"))
    return Record(
        app_id=run.app_id, user_id=run.app.user_id, request_id=_text(found["id"], 64), at=min(at, timezone.now()),
        run_name=run.name, model_name=run.model_name, arm=found["arm"] if found["arm"] in ARMS else "",
        caller=names.get(found["key"], ""), path=_text(found["path"], 200), status=_whole(found["status"], 999),
        whole=found["whole"] is True, ms=_number(found["ms"], 1e12), size=size, **bodies,
    )  # fmt: skip


def _text(value, most: int) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("no text")
    return sanitize.text(value)[:most]


def _whole(value, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("no count")
    return value


def _number(value, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("no number")
    return min(max(float(value), 0.0), most)

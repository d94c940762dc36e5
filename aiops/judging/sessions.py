"""Sessions of the watched workloads: reads their lines, ties them together by the key that the serving model version
has learned (opnilog.learned_sessions), and keeps the sessions that are unlike all normal ones. `Judge.advance` is
called by the service of the sessions, of which one replica is active.

Lines are read from the store in the order of their own time, half a minute after it, so a session ends in the time of
the log. Open sessions are in memory, and a row says from when on their lines have to be read again, which a restarted
replica does. What was read and what was found are written in one transaction, so nothing is found twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime
from itertools import islice

from django.db import transaction

from aiops import logstore
from aiops.logstore.base import Names
from aiops.models import SessionAnomaly, SessionClock, Suppression
from aiops.wire import folders
from kernel.database import reachable
from kernel.errors import Fault
from kernel.locking import lock_row
from opnilog import learned_sessions
from opnilog.learned_sessions import MAX_EVENTS, Learned, Session
from opnilog.masking import mask
from opnilog.session_keys import ATTRIBUTE
from opnilog.store import Versions

from . import own_models, suppressions, watching
from .session_shapes import Normal, shape_of

log = logging.getLogger(__name__)

Reason = SessionAnomaly.Reason
FIELDS = ("cluster_id", "namespace_name.keyword", "deployment.keyword")
SETTLED_MS = 30_000  # after which lines are stored
SLICE_MS = 60_000  # of the log, that is read at once
HOUR_MS, LOOK_MS = 3_600_000, 60_000  # hours are read again if lines have come late; how often that is looked for
DAY_MS = 86_400_000  # whose lines are read of a workload that is new here; the longest session
LINES_A_ROUND = 50_000  # of a workload
END_MS = 5_000  # after an event that always ends a session
MAX_WORKLOADS = 1000
MAX_OPEN = 20_000  # sessions of a workload; beyond these the one without lines for longest is dropped
MAX_OPEN_EVENTS = 200_000  # of them together
CONFIRMED = 100  # odd sessions of a round whose lines are read again
MAX_STEPS = 10  # back in time, to where a session began
LEAST_KEPT, KEPT_DAYS = 1000, 30  # odd sessions of a workload; days
MAX_REASONS = 10
SHOWN = 500  # characters of a template


class Judge:
    """The sessions of all workloads, in the memory of one replica."""

    def __init__(self) -> None:
        self.versions: dict[int, str] = {}  # of each model
        self.by_model: dict[int, dict[str, Learned]] = {}
        self.learned: dict[str, Learned] = {}
        self.readers: dict[int, Reader] = {}

    def advance(self, now: datetime) -> None:
        """Read what has arrived, and write the odd ones of the sessions that have ended. Raises Fault."""
        self._follow_models()
        until = int(now.timestamp() * 1000) - SETTLED_MS
        watched = sorted(watching.triples())[:MAX_WORKLOADS]
        with reachable():
            known = own_models.owners()
        self.learned = {}
        for names in watched:
            name, model = "/".join(names), own_models.model_of(*names[:2], known)
            if name in self.by_model.get(model, {}):
                self.learned[name] = self.by_model[model][name]
        with reachable():
            clocks = _clocks(watched, {names for names in watched if "/".join(names) in self.learned}, until)
            marked = suppressions.of_sessions()
        self.readers = {pk: reader for pk, reader in self.readers.items() if any(clock.pk == pk for clock in clocks)}
        for clock in clocks:
            try:
                with reachable():
                    self._advance(clock, until, marked.get(names_of(clock), frozenset()))
            except Fault as problem:
                self.readers.pop(clock.pk, None)
                log.warning("the sessions of %s could not be read: %s", clock, problem)

    def forget(self) -> None:
        """Forget the open sessions: another replica reads on."""
        self.readers = {}

    def _follow_models(self) -> None:
        """Take what the serving version of each model has learned. A version without sessions judges none."""
        versions = Versions(folders.models())
        serving = versions.pointers()
        for model in self.versions.keys() | serving.keys():
            if serving.get(model) == self.versions.get(model):
                continue
            self.by_model.pop(model, None)
            try:
                if model in serving:
                    self.by_model[model] = learned_sessions.load(versions.folder_of(serving[model]))
            except (OSError, ValueError) as problem:
                log.error("the sessions of model version %s cannot be read: %s", serving[model], problem)
        self.versions = serving

    def _advance(self, clock: SessionClock, until: int, marked: frozenset[int]) -> None:
        reader = self.readers.get(clock.pk)
        other = reader is not None and reader.learned is not self.learned[str(clock)]  # another version, or model
        if reader is None or other or reader.judged != clock.until:  # the other replica has read on
            reader = self.readers[clock.pk] = Reader(clock, self.learned[str(clock)])
        else:
            reader.look_back(until)
        changed = reader.follow(marked)
        ended = reader.read(until)
        odd = reader.odd(ended)
        with transaction.atomic():
            row = lock_row(SessionClock, pk=clock.pk)
            if row is None or row.until != reader.judged:
                del self.readers[clock.pk]
                return
            row.until, row.since = max(row.until, reader.position), reader.since()
            row.save(update_fields=["until", "since"])
            _write(row, reader.learned, odd)
            if changed:
                _cover(row, reader.normal)
        reader.judged = row.until


def names_of(clock: SessionClock) -> Names:
    return clock.cluster, clock.namespace, clock.deployment


def forget(names: Names) -> None:
    """Forget the sessions of a workload whose lines are removed."""
    cluster, namespace, deployment = names
    SessionClock.objects.filter(cluster=cluster, namespace=namespace, deployment=deployment).delete()


def _clocks(watched: Iterable[Names], learned: set[Names], until: int) -> list[SessionClock]:
    """Return the rows of the workloads whose sessions are judged. Those of workloads that are not watched are deleted;
    of one that nobody has read for a day, the lines of the last day are read.
    """
    known = {(row.cluster, row.namespace, row.deployment): row for row in SessionClock.objects.all()}
    wanted = set(watched)
    SessionClock.objects.filter(pk__in=[row.pk for names, row in known.items() if names not in wanted]).delete()
    begin = until - DAY_MS
    made = [
        SessionClock(cluster=cluster, namespace=namespace, deployment=deployment, since=begin, until=begin)
        for cluster, namespace, deployment in sorted(learned - known.keys())
    ]
    SessionClock.objects.bulk_create(made)
    rows = [*(row for names, row in sorted(known.items()) if names in learned), *made]
    for row in rows:
        if row.until < begin or row.until > until + DAY_MS:  # or the machine's clock was set back
            SessionClock.objects.filter(pk=row.pk).update(since=begin, until=begin)
            row.since = row.until = begin
    SessionAnomaly.objects.filter(last__lt=until - KEPT_DAYS * DAY_MS).delete()
    return rows


def _cover(row: SessionClock, normal: Normal) -> None:
    """Link the sessions that were found before to the suppressions of their shapes."""
    for number, shape in list(row.anomalies.filter(suppression=None).values_list("pk", "shape")):
        covering = normal.find_shape(shape)
        if covering is not None and lock_row(Suppression, pk=covering) is not None:
            SessionAnomaly.objects.filter(pk=number).update(suppression_id=covering)


def _write(row: SessionClock, learned: Learned, odd: list[Session]) -> None:
    """Write odd sessions, each once: one that was found before and has got more lines since is changed."""
    attribute = learned.key.pattern if learned.key.where == ATTRIBUTE else ""
    for session in odd:
        fields = {
            "attribute": attribute, "since": session.first, "last": session.last, "lines": len(session.events),
            "reasons": reasons(learned, session.events), "shape": shape_of(learned, session.events),
            "suppression": None,
        }  # fmt: skip
        before = row.anomalies.filter(value=session.value, since__lte=session.last, last__gte=session.first)
        known = list(before.order_by("pk").values_list("pk", flat=True))
        SessionAnomaly.objects.filter(pk__in=known[1:]).delete()
        if known:
            SessionAnomaly.objects.filter(pk=known[0]).update(**fields)
        else:
            SessionAnomaly.objects.create(clock=row, value=session.value, **fields)
    if odd:
        newest = row.anomalies.order_by("-since", "-id").values("pk")[:LEAST_KEPT]
        row.anomalies.exclude(pk__in=list(newest.values_list("pk", flat=True))).delete()


def reasons(learned: Learned, events: list) -> list[list]:
    """Return why a session is odd, as in SessionAnomaly.reasons."""

    def text(event) -> str:
        return learned.template(event)[:SHOWN]

    found: list[list] = [
        [Reason.ORDER, text(first), text(second)] for first, second in learned.sessions.misplaced(events)
    ]
    found = found[:3]
    for event, here, usual in learned.sessions.reasons(events):
        kind = Reason.EXTRA if not usual else Reason.OFTEN if here > usual else Reason.FEW if here else Reason.MISSING
        found.append([kind, text(event), here, usual])
    return found[:MAX_REASONS]


class Reader:
    """The open sessions of one workload.

    `position`: up to which time its lines are in memory, `judged`: up to which time they were read before; of sessions
    that ended before `judge_from` nothing is found.
    """

    def __init__(self, clock: SessionClock, learned: Learned):
        self.names = names_of(clock)
        self.learned = learned
        self.normal: Normal | None = None
        self.position, self.judged = clock.since, clock.until
        self.judge_from = clock.until
        self.looked = 0
        self.lines: dict[int, int] = {}  # of each hour, when it was read
        self.seen: dict[int, int] = {}  # of each hour, at the last look
        self.open: dict[str, Session] = {}
        self.ended: list[Session] = []

    def follow(self, marked: frozenset[int]) -> bool:
        """Take the shapes that people have marked as normal; return whether there are others than before."""
        if self.normal is not None and self.normal.numbers == marked:
            return False
        self.normal = Normal(self.learned, suppressions.shapes(marked))
        return True

    def since(self) -> int:
        """Return from when on the open sessions have lines."""
        return min((session.first for session in self.open.values()), default=self.position)

    def read(self, until: int) -> list[Session]:
        """Read on, LINES_A_ROUND or somewhat more; return the sessions that have ended. Raises Fault."""
        lines, width = 0, SLICE_MS
        while self.position < until and lines < LINES_A_ROUND:
            end = min(until, self.position + width)
            query = self._query(self.position, end)
            if width > SLICE_MS and logstore.get().count_up_to(query, 1)[0]:
                width = max(SLICE_MS, width // 4)  # an hour of a busy log would not fit into the memory
                continue
            rows = [] if width > SLICE_MS else list(logstore.get().scan(query))
            width = SLICE_MS if rows else min(2 * width, HOUR_MS)  # of a day without lines no minute is read
            rows.sort(key=lambda row: row["time"])
            for row in rows:
                self._add(row)
            lines += len(rows)
            self.position = end
            self._end()
        ended, self.ended = self.ended, []
        return ended

    def look_back(self, until: int) -> None:
        """Return to the first hour of the last day whose lines have become more, once they become no more: lines that
        come late, a log that is sent again. Raises Fault.
        """
        if self.position < self.judged or until - self.looked < LOOK_MS:
            return
        self.looked, end = until, self.position // HOUR_MS * HOUR_MS
        begin = end - DAY_MS
        bars = logstore.get().histogram(self._query(begin, end), begin, HOUR_MS, DAY_MS // HOUR_MS)
        now = {begin + place * HOUR_MS: sum(bar.values()) for place, bar in enumerate(bars)}
        late = [hour for hour, lines in now.items() if self.lines.get(hour, lines) < lines == self.seen.get(hour)]
        read = {hour: min(lines, self.lines.get(hour, lines)) for hour, lines in now.items()}
        self.lines, self.seen = {**read, **{hour: now[hour] for hour in late}}, now
        if late:
            self.position = self.judge_from = min(*late, self.since())
            self.open = {}

    def odd(self, ended: list[Session]) -> list[Session]:
        """Return the odd ones of ended sessions. Their lines are read again first, since some may have come late."""
        odd = [session for session in ended if self._is_odd(session)]
        found = []
        for number, session in enumerate(odd):
            again = self._whole(session) if number < CONFIRMED else session
            if again is not None and self._is_odd(again):
                found.append(again)
        return found

    def _is_odd(self, session: Session) -> bool:
        """Return whether a session is unlike normal ones, and unlike those that people have marked."""
        marked = self.normal is not None and self.normal.find(session.events) is not None
        return self.learned.sessions.is_odd(session.events) and not marked

    def _add(self, row: dict) -> None:
        at, text = row["time"], row["log"]
        values = self.learned.key.values(text, row.get("attributes"))
        if not values:
            return
        event = self.learned.event(row.get("masked_log") or mask(text))
        for value in values:
            session = self.open.get(value)
            if session is not None and at > self._ends_at(session):
                self._close(value)
                session = None
            if session is None:
                session = self.open[value] = Session(value, at, at)
            session.add(at, event)

    def _ends_at(self, session: Session) -> int:
        ended = bool(session.events) and session.events[-1] in self.learned.ends
        return session.last + (min(END_MS, self.learned.quiet_ms) if ended else self.learned.quiet_ms)

    def _end(self) -> None:
        """Take out what has ended, and what there is no room for."""
        for value in [value for value, session in self.open.items() if self._ends_at(session) < self.position]:
            self._close(value)
        for value in [value for value, session in self.open.items() if self.position - session.first > DAY_MS]:
            del self.open[value]
        events = sum(len(session.events) for session in self.open.values())
        if len(self.open) > MAX_OPEN or events > MAX_OPEN_EVENTS:
            for value in sorted(self.open, key=lambda value: self.open[value].last):
                if len(self.open) <= MAX_OPEN and events <= MAX_OPEN_EVENTS:
                    break
                events -= len(self.open.pop(value).events)

    def _close(self, value: str) -> None:
        session = self.open.pop(value)
        if self._ends_at(session) >= self.judge_from:
            self.ended.append(session)

    def _whole(self, session: Session) -> Session | None:
        """Return the session from all of its stored lines; None while it goes on, or if these are removed."""
        value, key = session.value, self.learned.key
        if key.where == ATTRIBUTE:
            asked = {"term": {f"attributes.{key.pattern}": value}}
        else:
            asked = {"query_string": {"query": f'"{value}"', "fields": ["log"], "default_operator": "AND"}}
        whole = None
        for row in self._lines(session, asked):
            if whole is None or row["time"] > self._ends_at(whole):
                if whole is not None and whole.last >= session.first:
                    break
                whole = Session(value, row["time"], row["time"])
            whole.add(row["time"], self.learned.event(row.get("masked_log") or mask(row["log"])))
        if whole is None or whole.last < session.first:
            return None
        if self._ends_at(whole) >= self.position:
            self.open[value] = whole
            return None
        return whole

    def _lines(self, session: Session, asked: dict) -> list[dict]:
        """Return the stored lines of a session and of what was before it without a pause, in order."""
        quiet, value, key = self.learned.quiet_ms, session.value, self.learned.key
        begin, rows = session.first, []
        for _ in range(MAX_STEPS):
            span = begin - quiet, session.last + quiet + 1
            found = islice(logstore.get().scan(self._query(*span, asked)), 10 * MAX_EVENTS)
            rows = [row for row in found if value in key.values(row["log"], row.get("attributes"))]
            first = min((row["time"] for row in rows), default=begin)
            if first >= begin:
                break
            begin = first
        return sorted(rows, key=lambda row: row["time"])

    def _query(self, since: int, until: int, *conditions: dict) -> dict:
        own = [{"term": {field: name}} for field, name in zip(FIELDS, self.names, strict=True)]
        span = {"range": {"time": {"gte": since, "lt": until}}}
        return {"query": {"bool": {"filter": [*own, span, *conditions]}}}

"""The live tail: sends lines and verdicts to open pages. Fed by intake and write-back, read by mlp.visitors.live.

For display only: limited to what a reader can follow, anomalies first. A lost message is harmless, since a page queries
the store when it opens. Users get the lines of their own namespace, operators all lines.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from django.core.exceptions import SuspiciousOperation
from django.http import QueryDict

from aiops import logstore
from aiops.judging import log_search, watching
from aiops.logstore import query, query_tree
from kernel.after_commit import send_to_group
from kernel.errors import Fault, Refused

EVERYBODY = "aiops.tail"
FILTERS = ("level", "q", "cluster", "namespace", "deployment", "template")
MAX_LINES = 50  # of each message
MESSAGES_A_S, AT_ONCE = 8, 4
TEXT = 500  # characters of each line
USER = re.compile(r"[a-z]{1,50}")  # a namespace that may be a user's
SENT = (
    "log_type",
    "_id",
    "time",
    "log",
    "cluster_id",
    "namespace_name",
    "deployment",
    "anomaly_level",
    "template_cluster_id",
)


class Pace:
    """A limit of so many calls a second, shared by all threads of the process."""

    def __init__(self, a_second: float, clock: Callable[[], float] = time.monotonic):
        self.pause, self.next, self.lock, self.clock = 1 / a_second, 0.0, threading.Lock(), clock

    def __call__(self) -> bool:
        with self.lock:
            now = self.clock()
            if now < self.next - AT_ONCE * self.pause:
                return False
            self.next = max(now, self.next) + self.pause
            return True


may_send_lines, may_send_verdicts = Pace(MESSAGES_A_S), Pace(MESSAGES_A_S)


def send(documents: Sequence[dict], may: Callable[[], bool] = may_send_lines) -> None:
    """Send lines that were stored, once that is committed."""
    if not documents or not may():
        return
    some = sorted(documents, key=lambda line: (line.get("anomaly_level") == "Anomaly", line["time"]))[-MAX_LINES:]
    rows = [{name: line[name] for name in SENT if line.get(name) is not None} for line in some]
    for row in rows:
        row["log"] = str(row.get("log") or "")[:TEXT]
    send_to_group(EVERYBODY, {"type": "lines", "rows": rows})
    for user in {row.get("namespace_name", "") for row in rows}:
        if USER.fullmatch(user):
            own = [row for row in rows if row.get("namespace_name") == user]
            send_to_group(group_of(user), {"type": "lines", "rows": own})


def send_verdicts(verdicts: Iterable[tuple[str, str]]) -> None:
    """Send lines that were judged, given as (id, level): they are read again for their current fields."""
    if not may_send_verdicts():
        return
    ids = [id for id, _level in sorted(verdicts, key=lambda verdict: verdict[1] == "Anomaly")][-MAX_LINES:]
    try:
        rows, _more = logstore.get().search({"query": {"ids": {"values": ids}}}, MAX_LINES)
    except Fault:
        return
    send(rows, lambda: True)


def group_of(username: str) -> str:
    """Return the channel layer's group of a user's live tail."""
    return f"{EVERYBODY}.{username}"


class Reader:
    """The live tail of one page: its group, and its filters. Raises Refused for wrong filters."""

    def __init__(self, user, address: str):
        try:
            given = QueryDict(address)
        except SuspiciousOperation as problem:
            raise Refused("must have fewer fields", field="query") from problem
        self.body = log_search.body(user, **{name: given[name] for name in FILTERS if given.get(name)})
        self.wanted = query.parse(self.body)
        self.group = EVERYBODY if user.is_administrator else group_of(user.username)
        self.watched = watching.known()

    def pick(self, rows: Sequence[dict]) -> list[dict]:
        """Return the lines that match the page's filters."""
        return [self._shown(row) for row in rows if query_tree.matches(self.wanted, row)]

    def _shown(self, row: dict) -> dict:
        return (
            row if row.get("anomaly_level") else {**row, "anomaly_level": watching.without_verdict(row, self.watched)}
        )

    def newest(self) -> list[dict]:
        """Return the newest lines: those stored before the websocket opened, or while it was disconnected."""
        try:
            rows = logstore.get().search(self.body, MAX_LINES)[0]
        except Fault:
            return []
        return [self._shown(row) for row in rows]

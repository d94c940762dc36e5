"""The interface of a log store, and the store of this platform (MLP_AIOPS_LOGSTORE). Used by intake, services,
trainings.

Documents are dicts with Opni's field names: `_id, time, log, masked_log, cluster_id, namespace_name, deployment,
service, pod_name, log_type, anomaly_level, template_matched, template_cluster_id, inference_model, opnilog_confidence`.
`body` is an OpenSearch query, {"query": …}; a store refuses (ValueError) what it does not know instead of ignoring it.
The query of a training is in training_data.query: a range on `time` in milliseconds, match, and query_string with OR,
quoted phrases, `default_field`, and `field:"value" AND …` on `cluster_id`, `namespace_name.keyword`,
`deployment.keyword`. Every call may raise Fault while the store is unavailable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from typing import NamedTuple

from django.conf import settings

from kernel import sanitize
from kernel.errors import Fault
from kernel.messages import Message
from opnilog.scripts import words_of

ADAPTERS = {
    "database": "aiops.logstore.database.DatabaseStore",
    "opensearch": "aiops.logstore.opensearch.OpenSearchStore",
}
REJUDGE_WORDS = 30  # to search lines by, before whole texts are compared
REJUDGE_AT_ONCE = 200  # texts
REJUDGE_BATCH = 2000
WORKLOADS_SHOWN = 3  # of each template
OWN_TEMPLATES = 10**9  # the templates of a tenant's own model are numbered from this times its number on
MINUTE_MS = 60_000
MAX_MINUTES = 100_000  # counts of a template in a minute
AHEAD_MS = 600_000  # a time further in the future is not believed: the line is stored with the present
SENT_TIME = "sent_time"  # the attribute that keeps what was sent
UNAVAILABLE = Message("the log store is not available; try again later")


Names = tuple[str, str, str]  # cluster, namespace, deployment


class Share(NamedTuple):
    """The bytes of a user's lines, and how many were removed because there were more."""

    size: int
    removed: int = 0


class LogStore(ABC):
    @abstractmethod
    def append(self, lines: Sequence[dict]) -> list[str]:
        """Store lines, durably when it returns; one whose `_id` is known is stored once. Return the ids of the new
        ones.

        A line may have its verdict already (`masked_log`, `anomaly_level`, …), which then needs no update.
        """

    @abstractmethod
    def all_or_nothing(self) -> AbstractContextManager[None]:
        """Return a context: what is appended within it, by this thread, is stored as a whole when it ends. An exception
        that leaves it leaves nothing stored.
        """

    @abstractmethod
    def update_many(self, changes: Sequence[tuple[str, dict]]) -> None:
        """Write verdicts to the lines with those ids. Idempotent.

        A change that names a `cluster_id` and a `namespace_name` applies to a line of theirs only: senders choose the
        ids of their lines, and two may choose the same.
        """

    @abstractmethod
    def search(self, body: dict, size: int, after=None) -> tuple[list[dict], object]:
        """Return the newest matching documents, and the cursor of the next page (None: there is none).

        A search that would take too long ends early: with fewer documents and a cursor, whose first element is the time
        (ms) down to which was searched.
        """

    @abstractmethod
    def scan(self, body: dict) -> Iterator[dict]:
        """Yield all matching documents, in no particular order, a few at a time in memory."""

    @abstractmethod
    def count(self, body: dict) -> int:
        """Return the number of matching documents."""

    def count_up_to(self, body: dict, most: int) -> tuple[int, bool]:
        """Return the number of matching documents and whether these are all: it may stop counting at `most`."""
        lines = self.count(body)
        return min(lines, most), lines <= most

    @abstractmethod
    def aggregate_workloads(self) -> list[tuple[str, str, str, int]]:
        """Return (cluster, namespace, deployment, lines) of every workload with a namespace and a deployment."""

    @abstractmethod
    def silent_workloads(self, names: Names, begin_ms: int, since_ms: int, until_ms: int) -> list[Names]:
        """Return workloads of those names ("" is any) with a line in [begin, since) and none in [since, until), sorted.

        Called for all workloads every few seconds: the number of queries does not grow with the number of workloads.
        """

    @abstractmethod
    def histogram(self, body: dict, begin_ms: int, width_ms: int, count: int) -> list[dict[str, int]]:
        """Return matching lines by verdict ("" for none) in each of `count` intervals of `width_ms`, the first from
        `begin_ms`. An attribute `estimated` of the list that is True says that they are estimates.
        """

    @abstractmethod
    def by_workload(self, body: dict, size: int) -> list[tuple[str, str, str, int]]:
        """Return (cluster, namespace, deployment, matching lines) of the workloads with the most of them, at most
        `size`.
        """

    @abstractmethod
    def templates(self, body: dict, size: int) -> list[dict]:
        """Return the templates with the most matching lines, at most `size`; counts and times are of the matching
        lines.

        Each: `template_cluster_id`, `lines`, `anomalies`, `first` and `last` (ms), `newest` (the document of the newest
        line) and `workloads`, (cluster, namespace, deployment) of the WORKLOADS_SHOWN most frequent.
        """

    @abstractmethod
    def template_minutes(self, names: Names, since_ms: int, until_ms: int) -> list[tuple[int | None, int, int]]:
        """Return (template's number, minute since 1970, lines) of the workload's lines in [since, until), which are
        whole minutes; of lines without a template the number is None. At most MAX_MINUTES, those with the most lines.
        """

    def rejudge(self, words: Mapping[str, str]) -> int:
        """Write verdicts to all stored lines with exactly these masked texts; return how many had another, or none."""
        changed, batch = 0, []
        for line in self.with_texts(list(words)):
            level = words.get(line.get("masked_log", ""))
            if level is not None and line.get("anomaly_level") != level:
                batch.append((line["_id"], {"anomaly_level": level}))
            if len(batch) >= REJUDGE_BATCH:
                self.update_many(batch)
                changed, batch = changed + len(batch), []
        self.update_many(batch)
        return changed + len(batch)

    def with_texts(self, masked: Sequence[str]) -> Iterator[dict]:
        """Yield all lines with these masked texts; others may be among them."""
        for start in range(0, len(masked), REJUDGE_AT_ONCE):
            phrases = [" ".join(words_of(text)[:REJUDGE_WORDS]) for text in masked[start : start + REJUDGE_AT_ONCE]]
            alike = [
                {"match_phrase": {"masked_log": phrase}} if phrase else {"exists": {"field": "masked_log"}}
                for phrase in phrases
            ]
            yield from self.scan({"query": {"bool": {"should": alike, "minimum_should_match": 1}}})

    @abstractmethod
    def forget(self, names: Names) -> int:
        """Remove all lines of one workload; return how many. Idempotent."""

    @abstractmethod
    def retain(self, days: int, megabytes: int) -> int:
        """Remove lines older than the days, and the oldest above the size limit; return how many lines. It may leave
        some to the next call.
        """

    def retain_shares(self, megabytes: int) -> dict[str, Share]:
        """Remove the oldest lines of each user who has more than so many MiB; return what each has then.

        A store that does not know it limits nobody.
        """
        return {}

    def is_upkeep_due(self) -> bool:
        """Return whether `upkeep` has anything to do. Asked every few seconds."""
        return False

    def upkeep(self) -> None:
        """Do what keeps the store fast. May take minutes; called while it is due, never twice at a time."""
        return None

    @abstractmethod
    def put_templates(self, templates: Sequence[dict]) -> None:
        """Write templates by their `_id`, replacing the whole document."""

    @abstractmethod
    def forget_templates(self, model: int) -> None:
        """Remove the templates of a tenant's own model, those numbered from `model * OWN_TEMPLATES` on. Idempotent."""


def placed(line: dict, now_ms: int) -> dict:
    """Return the line with a time that it can have: for one in the future the present, so that it does not stay on top
    of all others; the attribute SENT_TIME then has what was sent.
    """
    if line["time"] <= now_ms + AHEAD_MS:
        return line
    try:
        sent = datetime.fromtimestamp(line["time"] / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        sent = str(line["time"])
    return {**line, "time": now_ms, "attributes": {**(line.get("attributes") or {}), SENT_TIME: sent}}


def clean(value) -> str:
    """Return text that every store accepts: without null characters and lone surrogates."""
    return sanitize.text(str(value or ""))


@cache
def _adapter(kind: str) -> LogStore:
    module, _, name = ADAPTERS[kind].rpartition(".")
    try:
        return getattr(import_module(module), name)()
    except ModuleNotFoundError as problem:
        raise Fault("the log store %(kind)s is not installed", kind=kind) from problem


def get() -> LogStore:
    """Return this platform's store. Raises Fault when it is not installed."""
    return _adapter(settings.AIOPS_LOGSTORE)

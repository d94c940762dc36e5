"""Intake of log lines: stored and committed first, then forwarded to be judged. Used by REST, the endpoints for log
shippers and the follower.

What is acknowledged is stored. If forwarding fails after that, or the process ends before it, the sweep
(services/housekeeping.py) finds the lines without a verdict and forwards them again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

from django.conf import settings

from aiops import logstore
from aiops.judging import log_search
from aiops.wire import payloads, subjects
from kernel import after_commit, bus, disk, names
from kernel.errors import Fault, Refused
from kernel.lenient import text_of
from kernel.telemetry import meters

from . import known, tail

log = logging.getLogger(__name__)

LOCAL = log_search.LOCAL
PLATFORM = names.PLATFORM  # the namespace of the platform's components
MAX_CHARACTERS = 32 << 10  # of a line; the rest is cut off
CUT = " …"
MAX_NAME = 253
MAX_ATTRIBUTES, MAX_KEY, MAX_VALUE = 64, 128, 1024
MAX_ID, HASHED = 100, 40
EARLIEST, LATEST = 0, log_search.LATEST  # ms: the years 1970 to 3000


def line(
    text: str,
    *,
    cluster: str = LOCAL,
    namespace: str = "",
    deployment: str = "",
    pod: str = "",
    service: str = "",
    kind: str = subjects.WORKLOAD,
    at_ms: int | None = None,
    id: str = "",
    attributes: Mapping[str, object] | None = None,
) -> dict:
    """Return a document for the log store, with names, text and attributes cut to what is kept."""
    text = text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - len(CUT)] + CUT
    now = int(time.time() * 1000)
    return {
        "_id": logstore.clean(id) or os.urandom(16).hex(),
        "time": at_ms if at_ms is not None and EARLIEST <= at_ms <= LATEST else now,
        "cluster_id": logstore.clean(cluster)[:MAX_NAME] or LOCAL,
        "namespace_name": logstore.clean(namespace)[:MAX_NAME],
        "deployment": logstore.clean(deployment)[:MAX_NAME],
        "service": logstore.clean(service)[:MAX_NAME],
        "pod_name": logstore.clean(pod)[:MAX_NAME],
        "log_type": logstore.clean(kind)[:40] or subjects.WORKLOAD,
        "log": logstore.clean(text),
        **({"attributes": kept_of(attributes)} if attributes else {}),
    }


def kept_of(attributes: Mapping[str, object]) -> dict[str, str]:
    """Return the attributes as texts: at most MAX_ATTRIBUTES, the first ones."""
    some = islice(attributes.items(), MAX_ATTRIBUTES)
    return {
        logstore.clean(name)[:MAX_KEY].replace("=", "_"): logstore.clean(text_of(value)[:MAX_VALUE])
        for name, value in some
    }


class Ids:
    """The ids of the lines of one request, the same when it is sent again: of what the line is, and its number among
    equal ones. So a line that a shipper repeats is stored once, and two equal lines are two.
    """

    def __init__(self) -> None:
        self._seen: Counter[bytes] = Counter()

    def of(self, *parts: object) -> str:
        """Return the id of a line with these parts, which name its owner too."""
        text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
        digest = hashlib.blake2b(text.encode(), digest_size=20)
        number = self._seen[digest.digest()]
        self._seen[digest.digest()] += 1
        return f"{digest.hexdigest()}-{number}" if number else digest.hexdigest()


def store(lines: Sequence[dict]) -> int:
    """Store lines and return how many were new; forward those to be judged.

    Within a transaction they are forwarded once it is committed, never when it is rolled back. Raises Fault, with
    nothing acknowledged, when the log store or the message bus is unavailable.
    """
    if not lines:
        return 0
    bus.check()
    fresh = append(lines)
    # A line that was stored before was forwarded then, or the sweep does it: with the stored text, not with this one.
    after_commit.run(f"forward {len(fresh)} log lines", lambda: forward(fresh))
    tail.send(fresh)
    return len(fresh)


def append(lines: Sequence[dict]) -> list[dict]:
    """Store lines and return the new ones, in order; nothing is forwarded. Lines whose text was judged before are
    stored with their verdict. Raises Fault.
    """
    disk.require()
    now = int(time.time() * 1000)
    # As they are stored: the live tail gets them, too.
    lines = known.judged([logstore.placed(line, now) for line in lines])
    new = set(logstore.get().append(lines))
    first = {line["_id"]: line for line in reversed(lines) if line["_id"] in new}
    fresh = list(reversed(first.values()))
    workload = sum(line["log_type"] == subjects.WORKLOAD for line in fresh)
    meters.LOG_LINES.labels(subjects.WORKLOAD).inc(workload)
    meters.LOG_LINES.labels("other").inc(len(fresh) - workload)
    known.count(fresh)
    return fresh


def id_of(username: str, given: str) -> str:
    """Return the id that a user's line is stored by, so that no user's ids collide with another's."""
    whole = f"{username}:{given}"
    if len(whole) <= MAX_ID:
        return whole
    return f"{username}:{hashlib.sha256(given.encode('utf-8', 'replace')).hexdigest()[:HASHED]}"


def foreign_ids(lines: Sequence[dict]) -> dict[int, Refused]:
    """Return the places of lines whose ids are those of other namespaces' lines, with what to answer. For operators,
    who may send any line and choose its id. Raises Fault while the log store is unavailable.
    """
    stored, _more = logstore.get().search({"query": {"ids": {"values": [line["_id"] for line in lines]}}}, len(lines))
    owners = {line["_id"]: owner(line) for line in stored}
    return {
        place: Refused("%(id)s is a line of another namespace", field="_id", id=line["_id"])
        for place, line in enumerate(lines)
        if owners.setdefault(line["_id"], owner(line)) != owner(line)
    }


def owner(document: dict) -> tuple[str, str]:
    """Return the cluster and the namespace of a line."""
    return document.get("cluster_id") or LOCAL, document.get("namespace_name") or ""


def forward(lines: Sequence[dict]) -> None:
    """Forward stored lines without a verdict to preprocessing, on MLP_AIOPS_SUBJECT. When the bus is unavailable this
    is logged, and the sweep does it later.
    """
    items = [payload(line) for line in lines if not line.get("anomaly_level")]
    if not items:
        return
    subject = settings.AIOPS_SUBJECT
    bodies = payloads.singles(items) if subject == subjects.RAW_LOGS else payloads.batches(items)
    try:
        bus.send([(subject, data) for data in bodies])
    except Fault as problem:
        log.warning("%s lines are stored and will be forwarded later: %s", len(items), problem.msg)


def payload(document: dict) -> payloads.Payload:
    """Return a stored line as the services know it."""
    fields = ("_id", "cluster_id", "log", "log_type", "pod_name", "namespace_name", "deployment", "service")
    return payloads.Payload(**{name: str(document.get(name) or "") for name in fields})


def document(item: payloads.Payload) -> dict:
    """Return the document of a line that arrived as a Payload."""
    return line(
        item.log,
        id=item._id[:MAX_ID],
        cluster=item.cluster_id,
        namespace=item.namespace_name,
        deployment=item.deployment,
        pod=item.pod_name,
        service=item.service,
        kind=item.log_type,
    )

"""Searches in the database's log store: `python bench/aiops_store.py [--lines 10000000] [--database EMPTY_ONE]`.

Fills the store through its own function with lines of the last week, spread over 20 workloads, closes and indexes
partitions as the housekeeping does, and searches them as REST and the page do: rare, frequent and unknown words, a
phrase, a field, a window of time. The bar is one second for each answer, in the median of three.

The lines are those of real logs with other digits (the *.log and *.log.gz below MLP_BENCH_DATA) or, without that,
generated. PostgreSQL is the platform's embedded one with the platform's configuration. Processor time is that of the
database's process and of this one.
"""

from __future__ import annotations

import argparse
import gzip
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiops_model
import bars
import instance
import memory

BATCH, EVERY = 1000, 50_000  # lines of one call; after how many the housekeeping's turn comes
WEEK_MS = 7 * 86_400_000
WORKLOADS = 20
RARE_EACH = 200_000  # lines
BAR_S = 1.0
SIZES = """
SELECT kind, sum(bytes)::bigint FROM (
    SELECT 'lines' AS kind, pg_relation_size(relid) AS bytes FROM pg_partition_tree('aiops_log')
    UNION ALL SELECT 'index ' || regexp_replace(relname, '^aiops_log_(first|[0-9]+)_', ''),
        pg_relation_size(pg_class.oid) FROM pg_class JOIN pg_index ON indexrelid = pg_class.oid
        WHERE indrelid IN (SELECT relid FROM pg_partition_tree('aiops_log'))
    UNION ALL SELECT 'ids, with their index', pg_total_relation_size('aiops_log_key')
    UNION ALL SELECT 'counts of minutes', pg_total_relation_size('aiops_log_minute')
) AS sizes GROUP BY 1 HAVING sum(bytes) > 0 ORDER BY 2 DESC
"""


def source(folder: str | None) -> tuple[str, list[str]]:
    paths = sorted(path for path in Path(folder or "/nowhere").rglob("*") if path.name.endswith((".log", ".log.gz")))
    lines: list[str] = []
    for path in paths:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", errors="replace") as file:
            lines += [line for line in file.read().splitlines()[:20_000] if line]
    return (f"{len(paths)} real logs", lines) if lines else ("a generated service log", aiops_model.generated(20_000))


class Clock:
    """The time of this process, which passes with the lines: a week in the minutes in which they are stored."""

    def __init__(self) -> None:
        self.ms = self.begin = int(time.time() * 1000)
        time.time = lambda: self.ms / 1000


def documents(lines: list[str], count: int, clock: Clock) -> Iterator[dict]:
    """Yield lines of a week in the order of their times; one in RARE_EACH has a word of its own."""
    chance = random.Random(7)
    for number, text in enumerate(aiops_model.fresh(lines, count)):
        clock.ms = clock.begin + WEEK_MS * number // count
        extra = f" needle{number // RARE_EACH} declined by 10.9.8.{number // RARE_EACH % 250}"
        yield {
            "_id": f"bench:{number:x}:{chance.getrandbits(96):x}",
            "time": clock.ms,
            "cluster_id": "local",
            "namespace_name": f"user{number % 4}",
            "deployment": f"shop{number % WORKLOADS}",
            "log": text + extra if number % RARE_EACH == RARE_EACH // 2 else text,
        }


def fill(store, lines: list[str], count: int) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        backend = Path(f"/proc/{cursor.fetchone()[0]}")
    took, spent, ours, kept, batch, stored = 0.0, 0.0, 0.0, [0.0, 0.0], [], 0

    def put() -> None:
        nonlocal took, spent, ours
        before, begin, own = memory.cpu_of(backend), time.perf_counter(), time.process_time()
        store.append(batch)
        took, spent = took + time.perf_counter() - begin, spent + memory.cpu_of(backend) - before
        ours += time.process_time() - own

    for document in documents(lines, count, Clock()):
        batch.append(document)
        if len(batch) == BATCH:
            put()
            stored, batch[:] = stored + BATCH, []
            if stored % EVERY == 0:
                before, begin = memory.cpu_of(backend), time.perf_counter()
                store.upkeep()
                kept = [kept[0] + time.perf_counter() - begin, kept[1] + memory.cpu_of(backend) - before]
            if stored % 1_000_000 == 0:
                print(f"  {stored:,} lines", flush=True)
    rate = count / took
    theirs, mine, closing = (1e6 * seconds / count for seconds in (spent, ours, kept[1]))
    print(f"  stored {rate:,.0f} lines/s; per 1,000 lines {theirs:.1f} ms of the database's processor time,")
    print(f"  {mine:.1f} ms of this process's; closing and indexing {closing:.1f} ms", flush=True)
    bars.note("lines stored", rate, "lines/s")
    bars.note("processor time to store 1,000 lines", (spent + ours) / count * 1e6, "ms")


def sizes(count: int) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE aiops_log, aiops_log_key, aiops_log_minute")
        cursor.execute(SIZES)
        rows = cursor.fetchall()
    whole = sum(size for _kind, size in rows) / count
    print(f"  {whole:,.0f} bytes a line: " + ", ".join(f"{kind} {size / count:.0f}" for kind, size in rows), flush=True)
    bars.note("bytes of a line with its indexes", whole, "bytes")


def searches(count: int) -> list[tuple[str, dict]]:
    now = int(time.time() * 1000)
    middle = count // RARE_EACH // 2
    window = {"since": str(now - WEEK_MS // 2), "until": str(now - WEEK_MS // 2 + 3_600_000)}
    return [
        ("no filter", {}),
        ("rare word", {"q": f"needle{middle}"}),
        ("rare word, one in 200,000", {"q": "declined"}),
        ("frequent word", {"q": "error"}),
        ("address", {"q": f"10.9.8.{middle % 250}"}),
        ("phrase", {"q": f'"needle{middle} declined by"'}),
        ("two frequent words", {"q": "error failed"}),
        ("two words, one rare", {"q": "error declined"}),
        ("one of two rare words", {"q": "needle1 OR needle3"}),
        ("no hit", {"q": "nosuchword"}),
        ("without a word", {"q": "NOT error"}),
        ("field and word", {"q": "deployment:shop3 AND declined"}),
        ("word in a workload", {"q": "error", "deployment": "shop7"}),
        ("word in an hour of Tuesday", {"q": "error", **window}),
        ("rare word in a namespace", {"q": "declined", "namespace": "user1"}),
    ]


def search(count: int) -> bool:
    """Measure each search as REST and the page answer it; return whether all reach the bar."""
    from django.contrib.messages.storage.cookie import CookieStorage
    from django.contrib.sessions.backends.signed_cookies import SessionStore
    from django.test import RequestFactory
    from rest_framework.test import APIRequestFactory, force_authenticate

    from accounts.models import User
    from aiops.web import logs_api, pages
    from resources.models import Tenant

    tenant = Tenant.objects.create(name="bench", cpu=1, gpu=0, ram=1, rom=1)
    admin = User.objects.create(username="bench", is_staff=True, is_superuser=True, state="Actived", tenant=tenant)
    view, good = logs_api.Logs.as_view(), True

    def rest(given: dict):
        request = APIRequestFactory().get("/api/v1/aiops/logs", given)
        force_authenticate(request, admin)
        return view(request).render()

    def page(given: dict):
        request = RequestFactory().get("/aiops", {**given, "hours": "168"})
        request.user, request.session = admin, SessionStore()
        request._messages = CookieStorage(request)
        return pages.insights(request)

    print(f"  {'search':<30} {'REST':>8} {'page':>8}   lines found")
    for name, given in searches(count):
        times = {}
        for kind, ask in (("REST", rest), ("page", page)):
            took = []
            for _ in range(3):
                begin = time.perf_counter()
                answer = ask(given)
                took.append(time.perf_counter() - begin)
                if answer.status_code != 200:
                    raise SystemExit(f"{name}: {answer.status_code} {answer.content[:300]!r}")
            times[kind] = statistics.median(took)
            if kind == "REST":
                total = answer["X-Total-Count"] + ("+" if "X-Total-Count-At-Least" in answer else "")
                total += ", ended early" if "X-Searched-Since" in answer else ""
        print(f"  {name:<30} {times['REST']:>7.3f}s {times['page']:>7.3f}s   {total}", flush=True)
        for kind, took in times.items():
            good &= bars.note(f"{name}, {kind}", took, "s", most=BAR_S)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--database", help="the URL of an empty database to use")
    parser.add_argument("--data", default=os.environ.get("MLP_BENCH_DATA"))
    given = parser.parse_args()
    with instance.database(given.database):
        from aiops import logstore

        name, lines = source(given.data)
        print(f"{given.lines:,} lines of {name}, {sum(map(len, lines)) / len(lines):.0f} characters on average; load"
              f" {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", flush=True)  # fmt: skip
        fill(logstore.get(), lines, given.lines)
        sizes(given.lines)
        good = search(given.lines)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())

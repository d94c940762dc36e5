"""Complete try and confirm cycles per second with 1, 8 and 32 client processes, compared with the same plain SQL.

`tcc` is a call as REST makes it, `within` one inside the transaction of an object, as jobs and datasets make it. All
clients reserve from one tenant, so they queue for one row, which is the worst case. PostgreSQL is the platform's
embedded one with the platform's configuration (every commit is written to disk), or the one that DATABASE_URL names.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import statistics
import sys
import time

import bars
import instance

SECONDS = float(os.environ.get("MLP_BENCH_S", "3"))
ROUNDS = 3
CLIENTS = (1, 8, 32)
TENANT = "bench"
ENOUGH = 10**12
GOAL = 0.5

TRY = """
INSERT INTO resource_request
    (id, applier, request_type, tenant_id, owner, state, cpu, gpu, ram, rom, created, settled, released)
SELECT %(id)s, 'jm', 'request', id, '', 'tried', 0.1, 0, 100, 0, now(), NULL, NULL FROM tenant WHERE name = %(tenant)s
ON CONFLICT (id) DO NOTHING
"""
TAKE = """
UPDATE tenant SET cpu_inuse = cpu_inuse + 0.1, ram_inuse = ram_inuse + 100
WHERE name = %(tenant)s AND cpu_inuse <= cpu - 0.1 AND ram_inuse <= ram - 100
"""
LOOK = "SELECT state, applier FROM resource_request WHERE id = %(id)s FOR UPDATE"
CONFIRM = "UPDATE resource_request SET state = 'confirmed', settled = now() WHERE id = %(id)s AND state = 'tried'"


def cycle_of(kind: str, who: str):
    """Return one client's cycle: a function of a number that is never repeated."""
    from django.db import connection

    if kind != "bare":
        from django.db import transaction

        from resources import tcc

        connection.ensure_connection()
        # `tcc` is a call as REST makes it, `within` one inside the transaction of an object.
        around = transaction.atomic if kind == "within" else contextlib.nullcontext
        given = {"applier": "jm", "request_type": "request", "tenant": TENANT, "cpu": 0.1, "ram": 100}

        def cycle(number: int) -> None:
            id = f"job:{os.getpid()}{number:09}" if kind == "within" else f"{who}.{number}"
            with around():
                tcc.try_(id=id, owner="bench" if kind == "within" else "", **given)
            with around():
                tcc.confirm(id=id, applier="jm")

        return cycle

    import psycopg

    known = ("dbname", "user", "password", "host", "port", "options")
    link = psycopg.connect(**{key: value for key, value in connection.get_connection_params().items() if key in known})

    def bare(number: int) -> None:
        values = {"id": f"{who}.{number}", "tenant": TENANT}
        with link.transaction():
            assert link.execute(TRY, values).rowcount == 1
            assert link.execute(TAKE, values).rowcount == 1
        with link.transaction():
            assert link.execute(LOOK, values).fetchone() == ("tried", "jm")
            assert link.execute(CONFIRM, values).rowcount == 1

    link.autocommit = True
    return bare


def client(kind: str, who: str, barrier, results) -> None:
    cycle, number = cycle_of(kind, who), 0
    for number in range(20):
        cycle(number)
    barrier.wait()
    done, end = 0, time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        number, done = number + 1, done + 1
        cycle(number)
    results.put(done / SECONDS)


def rate(kind: str, clients: int, label: str) -> float:
    """Return the cycles per second of all clients together."""
    fork = multiprocessing.get_context("fork")
    barrier, results = fork.Barrier(clients), fork.Queue()
    workers = [
        fork.Process(target=client, args=(kind, f"{label}.{number}", barrier, results)) for number in range(clients)
    ]
    for worker in workers:
        worker.start()
    total = sum(results.get(timeout=SECONDS + 60) for _ in workers)
    for worker in workers:
        worker.join()
    return total


def is_consistent() -> bool:
    """Return whether the tenant's recorded use equals the sum of its requests."""
    from django.db import connection

    from resources import tcc
    from resources.models import KINDS, Tenant

    tenant = Tenant.objects.get(name=TENANT)
    consistent = tcc.allocated(tenant) == {kind: getattr(tenant, f"{kind}_inuse") for kind in KINDS}
    connection.close()
    return consistent


def main() -> int:
    worst = 10.0
    with instance.database(os.environ.get("DATABASE_URL")):
        from django.db import connection

        from resources.models import Tenant

        Tenant.objects.update_or_create(name=TENANT, defaults={"cpu": 10**7, "ram": ENOUGH})
        connection.close()  # the clients are forked, and each makes its own
        print(f"try+confirm cycles per second, {SECONDS:g} s each, median of {ROUNDS}, one tenant")
        for clients in CLIENTS:
            measured: dict[str, list[float]] = {"bare": [], "tcc": [], "within": []}
            for turn in range(ROUNDS):
                for kind in measured:
                    measured[kind].append(rate(kind, clients, f"{kind}{turn}of{clients}"))
            bare, ours, within = (statistics.median(rates) for rates in measured.values())
            worst = min(worst, ours / bare)
            ratios = f"ratio {ours / bare:.2f}   within {within:6.0f}   ratio {within / bare:.2f}"
            print(f"{clients:3} clients   bare SQL {bare:6.0f}   tcc {ours:6.0f}   {ratios}", flush=True)
        consistent = is_consistent()
    print("the resource accounting is consistent" if consistent else "THE RESOURCE ACCOUNTING IS INCONSISTENT")
    bars.note("the resource accounting is consistent", float(consistent), least=1)
    bars.note("try+confirm beside bare SQL, the worst", worst, "times", least=GOAL)
    print(f"worst ratio {worst:.2f}, goal {GOAL}")
    return 0 if consistent and worst >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())

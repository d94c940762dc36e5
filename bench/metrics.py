"""Metric points, accepted and stored: this platform and an MLflow tracking server on one machine, each on PostgreSQL.

Four clients send batches of 1000 points for some seconds; then the benchmark waits until all are stored (MLflow stores
before it answers). Then single reports: the time to the response.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import time
from collections.abc import Callable

import bars
import instance
import mlflow_server
import psycopg

CLIENTS = 4
BATCH = 1000
SECONDS = 8
SINGLES = 200
STAY = "import time\nwhile True: time.sleep(1)"


def measure(name: str, database: str, table: str, send: Callable[[str, int, int], None]) -> None:
    """Measure `send(key, first step, count)`, which reports points of one metric; they are rows of the table."""

    def stored() -> int:
        with psycopg.connect(database) as link:
            return link.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()[0]

    before, began = stored(), time.perf_counter()

    def client(number: int) -> int:
        for count in itertools.count():
            if time.perf_counter() - began > SECONDS:
                return count
            send(f"c{number}", count * BATCH, BATCH)
        return 0

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        sent = BATCH * sum(pool.map(client, range(CLIENTS)))
    taken = time.perf_counter() - began
    instance.wait(f"not all of {sent} points were stored", lambda: stored() - before >= sent, 300)
    rates = {"accepted": sent / taken, "stored": sent / (time.perf_counter() - began)}
    for what, rate in rates.items():
        bars.note(f"{name}: {what}", rate, "points/s")
    steps = itertools.count()
    singles = instance.times(lambda: send("single", next(steps), 1), SINGLES)
    print(f"  {name + ':':<9} {'   '.join(f'{rate:8.0f} points/s {what}' for what, rate in rates.items())}", flush=True)
    print(f"  {name + ':':<9} one report, acknowledged {instance.spread(singles)}", flush=True)


def ours(platform: instance.Instance) -> None:
    def send(key: str, first: int, count: int) -> None:
        rows = [{"step": first + n, "values": {key: n / BATCH}} for n in range(count)]
        platform.call("POST", "/users/bench/jobs/run/values", rows)

    measure("platform", mlflow_server.database_url(platform), "metric_value", send)


def mlflow(platform: instance.Instance) -> None:
    with mlflow_server.server(platform) as other:
        experiment = other.call("experiments/create", {"name": "bench"})["experiment_id"]
        run = other.call("runs/create", {"experiment_id": experiment, "start_time": 0})["run"]["info"]["run_id"]

        def send(key: str, first: int, count: int) -> None:
            at = int(time.time() * 1000)
            points = [{"key": key, "value": n / BATCH, "timestamp": at, "step": first + n} for n in range(count)]
            other.call("runs/log-batch", {"run_id": run, "metrics": points})

        measure("MLflow", other.database, "metrics", send)


def main() -> None:
    with instance.running() as platform:
        platform.submit("run", STAY, "running")
        ours(platform)
        platform.call("PUT", "/users/bench/jobs/run:cancel")
        mlflow(platform)


if __name__ == "__main__":
    main()

"""Metric points, accepted and stored: this platform and an MLflow tracking server on one machine, each on PostgreSQL.

Four clients send batches of 1000 points for some seconds; then the benchmark waits until all are stored (MLflow stores
before it answers). Then single reports: the time to the response, and for this platform the time until a websocket
client has them; MLflow does not push.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable

import bars
import instance
import psycopg
import sockets

import tracking
from tracking import database_url

CLIENTS = 4
BATCH = 1000
SECONDS = 8
SINGLES = 200
SCRIPT = "import time\nwhile True: time.sleep(1)"


def flood(send: Callable[[int, int], None], stored: Callable[[], int]) -> tuple[float, float]:
    """Return (points accepted per second, points stored per second) of `send(client, batch number)`."""
    before = stored()
    end = time.perf_counter() + SECONDS

    def client(number: int) -> int:
        count = 0
        while time.perf_counter() < end:
            send(number, count)
            count += 1
        return count

    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        sent = BATCH * sum(pool.map(client, range(CLIENTS)))
    taken = time.perf_counter() - began
    while stored() - before < sent:
        if time.perf_counter() - began > 300:
            raise SystemExit(f"only {stored() - before} of {sent} points were stored")
        time.sleep(0.05)
    return sent / taken, sent / (time.perf_counter() - began)


def ours(platform: instance.Instance) -> None:
    def send(client: int, number: int) -> None:
        rows = [{"step": number * BATCH + n, "values": {f"c{client}": n / BATCH}} for n in range(BATCH)]
        platform.call("POST", "/users/bench/jobs/run/values", rows)

    def stored() -> int:
        with psycopg.connect(database_url(platform)) as link:
            return link.execute("SELECT count(*) FROM metric_value").fetchone()[0]

    report("platform", *flood(send, stored))
    answers, pushes = asyncio.run(singles(platform))
    print(f"  platform: one report, acknowledged {instance.spread(answers)}", flush=True)
    print(f"  platform: one report, at websocket {instance.spread(pushes)}", flush=True)


async def singles(platform: instance.Instance) -> tuple[list[float], list[float]]:
    sent: dict[int, float] = {}
    pushes: list[float] = []
    answers: list[float] = []
    path = "/api/v1/users/bench/job_metrics/run"

    def took(row: dict, at: float) -> None:
        pushes.append(at - sent[row["epoch"]])

    client = sockets.Client(instance.HOST, platform.port, path, platform.token, took)
    await client.open()
    reader = asyncio.create_task(client.read())
    for epoch in range(SINGLES):
        row = {"epoch": epoch, "accuracy": 0.5, "loss": 0.5, "progress": 1}
        began = sent[epoch] = time.time()
        await asyncio.to_thread(platform.call, "POST", "/users/bench/job_metrics/run", row)
        answers.append(time.time() - began)
        await asyncio.sleep(0.02)
    end = time.monotonic() + 30
    while len(pushes) < SINGLES and time.monotonic() < end:
        await asyncio.sleep(0.05)
    reader.cancel()
    client.close()
    return answers, pushes


def mlflow(platform: instance.Instance) -> None:
    with tracking.server(platform) as other:
        call = other.call
        experiment = call("experiments/create", {"name": "bench"})["experiment_id"]
        run = call("runs/create", {"experiment_id": experiment, "start_time": 0})["run"]["info"]["run_id"]

        def send(client: int, number: int) -> None:
            at = int(time.time() * 1000)
            points = [
                {"key": f"c{client}", "value": n / BATCH, "timestamp": at, "step": number * BATCH + n}
                for n in range(BATCH)
            ]
            call("runs/log-batch", {"run_id": run, "metrics": points})

        def stored() -> int:
            with psycopg.connect(other.database) as link:
                return link.execute("SELECT count(*) FROM metrics").fetchone()[0]

        report("MLflow", *flood(send, stored))
        times = []
        for step in range(SINGLES):
            point = {"run_id": run, "key": "loss", "value": 0.5, "timestamp": int(time.time() * 1000), "step": step}
            began = time.time()
            call("runs/log-metric", point)
            times.append(time.time() - began)
        print(f"  MLflow:   one report, acknowledged {instance.spread(times)}", flush=True)


def report(name: str, taken: float, stored: float) -> None:
    bars.note(f"{name}: accepted", taken, "points/s")
    bars.note(f"{name}: stored", stored, "points/s")
    print(f"  {name + ':':<9} {taken:8.0f} points/s accepted   {stored:8.0f} points/s stored", flush=True)


def main() -> None:
    with instance.running() as platform:
        platform.script("train.py", SCRIPT)
        platform.call("POST", "/users/bench/jobs", {"name": "run", "entry": "train.py", "ram": 100, "cpu": 0.1})
        platform.wait_job("run", "running")
        ours(platform)
        platform.call("PUT", "/users/bench/jobs/run:cancel")
        mlflow(platform)


if __name__ == "__main__":
    main()

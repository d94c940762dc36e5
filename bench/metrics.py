"""Metric points, accepted and stored: this platform and an MLflow tracking server on one machine, each on PostgreSQL.

Four clients send batches of 1000 points for some seconds; then the benchmark waits until all are stored (MLflow stores
before it answers). Then single reports: the time to the response, and for this platform the time until a websocket
client has them; MLflow does not push.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from urllib.parse import quote

import instance
import peers
import psycopg
import sockets

CLIENTS = 4
BATCH = 1000
SECONDS = 8
SINGLES = 200
MLFLOW = "mlflow==3.17.2"
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
    with mlflow_server(platform) as (call, url):
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
            with psycopg.connect(url) as link:
                return link.execute("SELECT count(*) FROM metrics").fetchone()[0]

        report("MLflow", *flood(send, stored))
        times = []
        for step in range(SINGLES):
            point = {"run_id": run, "key": "loss", "value": 0.5, "timestamp": int(time.time() * 1000), "step": step}
            began = time.time()
            call("runs/log-metric", point)
            times.append(time.time() - began)
        print(f"  MLflow:   one report, acknowledged {instance.spread(times)}", flush=True)


@contextlib.contextmanager
def mlflow_server(platform: instance.Instance) -> Iterator[tuple[Callable, str]]:
    binaries = peers.peer("mlflow", MLFLOW, "psycopg[binary]")
    url = database_url(platform)
    with psycopg.connect(url, autocommit=True) as link:
        link.execute("CREATE DATABASE mlflow")
    url = url.rpartition("/")[0] + "/mlflow"
    port = platform.base + 50
    command = [str(binaries / "mlflow"), "server", "--backend-store-uri", url, "--host", instance.HOST]
    command += ["--port", str(port), "--workers", "2", "--default-artifact-root", str(platform.root / "mlflow")]
    environment = {**platform.environment, "PATH": f"{binaries}:/usr/bin:/bin"}
    log = (platform.root / "mlflow.log").open("w+")
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def call(path: str, body: dict) -> dict:
        request = urllib.request.Request(
            f"http://{instance.HOST}:{port}/api/2.0/mlflow/{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read() or b"{}")

    try:
        end = time.monotonic() + 180
        while True:
            try:
                urllib.request.urlopen(f"http://{instance.HOST}:{port}/health", timeout=2).read()
                break
            except OSError:
                if time.monotonic() > end or process.poll() is not None:
                    log.seek(0)
                    raise SystemExit("MLflow did not start: no comparison\n" + log.read()[-3000:])
                time.sleep(0.3)
        yield call, url
    finally:
        process.terminate()
        process.wait(30)


def database_url(platform: instance.Instance) -> str:
    password = (platform.root / "database-password").read_text().strip()
    folder = quote(str(platform.root / "run" / "sockets"), safe="")
    return f"postgresql://platform:{password}@{folder}:{platform.base + 11}/mlp"


def report(name: str, taken: float, stored: float) -> None:
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

"""Log lines through all of AIOps, compared with Opni's masker and drain3: `python bench/aiops_intake.py`.

A new platform gets 64,000 lines over REST and trains on them. Then further lines of the same log, with other
digits, are sent in batches of 1000 and one per request, by one sender and by eight, and, with `--push`, as Loki's push
in batches of 1000 by eight. It measures the time until they are acknowledged (stored), until the last one has its
verdict in the store, and the processor time of each part of the platform. For comparison, the same lines in one process
without intake, store or model: Opni's masker (its rules, byte for byte) and drain3's tree with Opni's settings, as Opni
does before it asks a model.

The log is a real one (HDFS, from the folder MLP_BENCH_DATA) or, without that, generated. The rate of the model alone
is in aiops_model.py.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiops_model
import instance
import memory
import mlflow_server
import peers
import psycopg

LEARNED = 64_000
BATCH = 1000
SENDERS = 8
TRAINING_S = 900
REST, LOKI = "/api/v1/aiops/logs", "/loki/api/v1/push"
NAMES = {"deployment": "shop"}
DRAIN3 = "drain3==0.9.11"
PEER = """
import sys, time
from drain3 import TemplateMiner
from drain3.template_miner_config import TemplateMinerConfig
from opnilog.masking import mask_plain
config = TemplateMinerConfig()
config.drain_sim_th, config.drain_depth, config.drain_max_children = 0.4, 8, 512
miner = TemplateMiner(config=config)
lines = open(sys.argv[1], encoding="utf-8").read().split("\\n")
begin = time.perf_counter()
for line in lines:
    miner.add_log_message(mask_plain(line))
print(len(lines) / (time.perf_counter() - begin))
"""


def source(data: str | None) -> tuple[str, list[str]]:
    path = Path(data or "") / aiops_model.LABELLED[0]
    if data and path.is_file():
        with aiops_model.gzip.open(path, "rt", errors="replace") as file:
            return "HDFS", file.read().splitlines()
    return "a generated service log", aiops_model.generated(20_000)


def body(lines: list[str]) -> bytes:
    return "\n".join(json.dumps({"log": line, **NAMES}) for line in lines).encode()


def push(lines: list[str]) -> bytes:
    """Return a body of Loki's push. Its lines need times of their own: equal ones of one time are one line."""
    begin = time.time_ns()
    values = [[str(begin + number), line] for number, line in enumerate(lines)]
    return json.dumps({"streams": [{"stream": {"app": NAMES["deployment"]}, "values": values}]}).encode()


class Shipper:
    """A persistent connection that sends log lines, as a log shipper does."""

    def __init__(self, platform: instance.Instance, path: str = REST):
        self.link = http.client.HTTPConnection(instance.HOST, platform.port, timeout=120)
        kind = "application/x-ndjson" if path == REST else "application/json"
        self.path, self.headers = path, {"Authorization": f"Bearer {platform.token}", "Content-Type": kind}

    def send(self, data: bytes) -> None:
        self.link.request("POST", self.path, data, self.headers)
        answer = self.link.getresponse()
        text = answer.read()
        if answer.status not in {200, 204}:
            raise SystemExit(f"{answer.status}: {text[:200]!r}")


def batches(lines: list[str]) -> list[list[str]]:
    return [lines[at : at + BATCH] for at in range(0, len(lines), BATCH)]


def judged(link: psycopg.Connection, after: int) -> int:
    asked = "SELECT count(*) FROM aiops_log WHERE id > %s AND deployment = 'shop' AND level <> ''"
    return link.execute(asked, [after]).fetchone()[0]


def through(
    name: str, link: psycopg.Connection, platform: instance.Instance, bodies: list[bytes], count: int, senders: int = 1,
    path: str = REST,
) -> float:  # fmt: skip
    """Return lines per second until the last of the `count` lines in the bodies has its verdict."""
    after = link.execute("SELECT coalesce(max(id), 0) FROM aiops_log").fetchone()[0]
    shippers = [Shipper(platform, path) for _ in range(senders)]

    def ship(number: int) -> None:
        for data in bodies[number::senders]:
            shippers[number].send(data)

    before, begin = memory.cpu(platform.root), time.perf_counter()
    with ThreadPoolExecutor(senders) as threads:
        list(threads.map(ship, range(senders)))
    stored = time.perf_counter() - begin
    instance.wait(f"not all of {count} lines were judged", lambda: judged(link, after) >= count, 600)
    whole = time.perf_counter() - begin
    used = sorted((part, seconds - before[part]) for part, seconds in memory.cpu(platform.root).items())
    costs = "  ".join(f"{part} {1000 * seconds / count:.3f}" for part, seconds in used if seconds > 0.05)
    print(f"  {name:<34} stored {count / stored:>9,.0f} lines/s   judged {count / whole:>9,.0f} lines/s", flush=True)
    print(f"  {'':<34} processor ms/line: {costs}", flush=True)
    return count / whole


def train(platform: instance.Instance) -> None:
    """Wait from the training request to the active model."""
    admin, begin = platform.as_user("admin"), time.perf_counter()
    workload = {"clusterId": "local", "namespace": platform.user, "deployment": NAMES["deployment"]}
    admin.call("POST", "/aiops/model/train", {"items": [workload]})
    while True:
        rows = admin.call("GET", "/aiops/trainings")
        if rows and rows[0]["state"] == "completed":
            break
        if (rows and rows[0]["state"] == "error") or time.perf_counter() - begin > TRAINING_S:
            raise SystemExit(f"the training failed: {rows and rows[0]['reason']}")
        time.sleep(0.2)
    took, alone = time.perf_counter() - begin, rows[0]["elapsed"]
    print(f"  trained on {LEARNED:,} lines in {took:.0f} s, {alone} s of them in the trainer", flush=True)


def opni_and_drain3(lines: list[str]) -> float:
    python = peers.peer("drain3", DRAIN3) / "python"
    with tempfile.NamedTemporaryFile("w", suffix=".log", encoding="utf-8") as file:
        file.write("\n".join(line.replace("\n", " ") for line in lines))
        file.flush()
        environment = {**os.environ, "PYTHONPATH": str(instance.MANAGE.parent)}
        done = subprocess.run(
            [str(python), "-c", PEER, file.name], env=environment, capture_output=True, text=True, check=True
        )
    rate = float(done.stdout.split()[-1])
    print(f"  {'Opni masker + drain3, one process':<34} {rate:>9,.0f} lines/s, not stored, not judged", flush=True)
    return rate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("MLP_BENCH_DATA"), help="the folder of logs")
    parser.add_argument("--lines", type=int, default=50_000)
    parser.add_argument("--singles", type=int, default=1000)
    parser.add_argument("--push", type=int, default=0, help="lines to send by Loki's push, in batches, by 8 senders")
    asked = parser.parse_args()
    name, lines = source(asked.data)
    print(f"Log: {name}", flush=True)
    with instance.running() as platform, psycopg.connect(mlflow_server.database_url(platform), autocommit=True) as link:
        shipper = Shipper(platform)
        learned = aiops_model.fresh(lines, LEARNED)
        for part in batches(learned):
            shipper.send(body(part))
        train(platform)
        new = aiops_model.fresh(lines, asked.lines, seed=8)
        through("(warming up)", link, platform, [body(learned[:BATCH])], BATCH)
        parts, ones = [body(part) for part in batches(new)], [body([line]) for line in new[: asked.singles]]
        rates = {}
        for senders in (1, SENDERS):
            whose = f"{senders} sender{'s' * (senders > 1)}"
            for what, sent, count in ((f"batches of {BATCH}", parts, len(new)), ("one per request", ones, len(ones))):
                rates[f"{what}, {whose}"] = through(f"{what}, {whose}", link, platform, sent, count, senders)
        if asked.push:
            more = aiops_model.fresh(lines, asked.push, seed=9)
            pushed = [push(part) for part in batches(more)]
            rates["push"] = through(f"Loki's push, {SENDERS} senders", link, platform, pushed, len(more), SENDERS, LOKI)
    theirs = opni_and_drain3(new)
    print(f"  relative to Opni + drain3: {', '.join(f'{k} {v / theirs:.3f}x' for k, v in rates.items())}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Log lines through all of AIOps, compared with Opni's masker and drain3: `python bench/aiops_intake.py`.

A new platform gets 64,000 lines over REST and trains on them. Then further lines of the same log, with other
digits, are sent in batches of 1000 and one per request. It measures the time until they are acknowledged (stored), and
until the last one has its verdict in the store. For comparison, the same lines in one process without intake, store or
model: Opni's masker (its rules, byte for byte) and drain3's tree with Opni's settings, as Opni does before it asks a
model.

The log is a real one (HDFS, from the folder MLP_BENCH_DATA) or, without that, generated. The rate of the model alone
is in aiops_model.py.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import aiops_model
import instance
import metrics
import peers
import psycopg

LEARNED = 64_000
BATCH = 1000
TRAINING_S = 900
NAMES = {"deployment": "shop"}
DRAIN3 = "drain3==0.9.11"
PEER = """
import sys, time
from drain3 import TemplateMiner
from drain3.template_miner_config import TemplateMinerConfig
from aiops.wire.masking import mask_plain
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
    return "a generated service log", aiops_model.made(20_000)


def body(lines: list[str]) -> bytes:
    return "\n".join(json.dumps({"log": line, **NAMES}) for line in lines).encode()


class Shipper:
    """A persistent connection that sends log lines, as a log shipper does."""

    def __init__(self, platform: instance.Instance):
        self.link = http.client.HTTPConnection(instance.HOST, platform.port, timeout=120)
        self.headers = {"Authorization": f"Bearer {platform.token}", "Content-Type": "application/x-ndjson"}

    def send(self, data: bytes) -> None:
        self.link.request("POST", "/api/v1/aiops/logs", data, self.headers)
        answer = self.link.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{answer.status}: {text[:200]!r}")


def judged(link: psycopg.Connection, after: int) -> int:
    asked = "SELECT count(*) FROM aiops_log WHERE id > %s AND deployment = 'shop' AND level <> ''"
    return link.execute(asked, [after]).fetchone()[0]


def through(name: str, link: psycopg.Connection, shipper: Shipper, parts: list[list[str]]) -> float:
    """Return lines per second until the last one has its verdict."""
    after = link.execute("SELECT coalesce(max(id), 0) FROM aiops_log").fetchone()[0]
    bodies, count = [body(part) for part in parts], sum(map(len, parts))
    begin = time.perf_counter()
    for data in bodies:
        shipper.send(data)
    stored = time.perf_counter() - begin
    while (done := judged(link, after)) < count:
        if time.perf_counter() - begin > 600:
            raise SystemExit(f"only {done} of {count} lines were judged")
        time.sleep(0.05)
    whole = time.perf_counter() - begin
    print(f"  {name:<34} stored {count / stored:>9,.0f} lines/s   judged {count / whole:>9,.0f} lines/s", flush=True)
    return count / whole


def operator(platform: instance.Instance) -> instance.Instance:
    login = base64.b64encode(f"admin:{instance.PASSWORD}".encode()).decode()
    given = platform.request("GET", "/api/v1/users/admin/token", None, {"Authorization": f"Basic {login}"})
    return instance.Instance(platform.root, platform.base, json.loads(given), "admin")


def train(platform: instance.Instance) -> None:
    """Wait from the training request to the active model."""
    admin, begin = operator(platform), time.perf_counter()
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
    asked = parser.parse_args()
    name, lines = source(asked.data)
    print(f"Log: {name}", flush=True)
    with instance.running() as platform, psycopg.connect(metrics.database_url(platform), autocommit=True) as link:
        shipper = Shipper(platform)
        learned = aiops_model.fresh(lines, LEARNED)
        for start in range(0, LEARNED, BATCH):
            shipper.send(body(learned[start : start + BATCH]))
        train(platform)
        shipper = Shipper(platform)  # an idle connection has been closed meanwhile
        through("(warming up)", link, shipper, [learned[:BATCH]])
        new = aiops_model.fresh(lines, asked.lines, seed=8)
        ours = through(f"batches of {BATCH}", link, shipper, [new[n : n + BATCH] for n in range(0, len(new), BATCH)])
        single = through("one line per request", link, shipper, [[line] for line in new[: asked.singles]])
    theirs = opni_and_drain3(new)
    print(
        f"  relative to Opni + drain3: batches {ours / theirs:.2f}x, one line per request {single / theirs:.3f}x",
        flush=True,
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

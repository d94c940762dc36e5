"""MLflow tracking servers to compare with, on the platform's PostgreSQL or on SQLite, in an environment of their own.

`many_runs` and `long_series` put into the database what bench/runs.py and bench/charts.py put into the platform's.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import instance
import peers
import psycopg

MLFLOW = "mlflow==3.17.2"
EXPERIMENT = """
INSERT INTO experiments (name, artifact_location, lifecycle_stage, creation_time, last_update_time)
VALUES (%s, '/tmp', 'active', 0, 0) RETURNING experiment_id
"""
RUN_COLUMNS = """
INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, user_id, status, start_time, end_time,
    source_version, lifecycle_stage, artifact_uri, experiment_id)
SELECT md5('%(mark)s' || n), 'run' || n, 'LOCAL', 'train.py', '', 'bench', 'FINISHED', 1700000000000 + n * 1000,
    1700000000000 + n * 1000 + n %% 700 * 1000, '', 'active', '/tmp', %(experiment)s
FROM generate_series(1, %(runs)s) AS n
"""
PARAMS = """
INSERT INTO params (key, value, run_uuid) SELECT key, CASE key WHEN 'lr' THEN power(10, -1 - n %% 5)::text
    WHEN 'batch' THEN (8 << (n %% 6))::text WHEN 'seed' THEN n::text
    ELSE (ARRAY ['adam', 'sgd', 'lion'])[1 + n %% 3] END, md5('%(mark)s' || n)
FROM generate_series(1, %(runs)s) AS n, unnest(ARRAY ['lr', 'batch', 'optimizer', 'seed']) AS key
"""
LATEST = """
INSERT INTO latest_metrics (key, value, timestamp, step, is_nan, run_uuid)
SELECT key, random(), 1700000000000, 100, false, md5('%(mark)s' || n) FROM generate_series(1, %(runs)s) AS n,
    unnest(ARRAY ['loss', 'accuracy', 'val/loss', 'val/accuracy', 'lr', 'throughput']) AS key
"""
SERIES = """
INSERT INTO metrics (key, value, timestamp, step, is_nan, run_uuid)
SELECT 'loss.train', exp(-i / 200000.0) + random() / 10, 1700000000000 + i * 10, i, false, md5('%(mark)s' || %(run)s)
FROM generate_series(0, %(points)s - 1) AS i
"""


@dataclass
class Server:
    """A running MLflow server. `database` is the address of its PostgreSQL database, or the file of SQLite."""

    uri: str
    database: str
    pid: int

    def call(self, path: str, body: dict | None = None) -> dict:
        """Return the answer to a POST, to a GET without a body; paths as MLflow's own pages call them."""
        data = None if body is None else json.dumps(body).encode()
        address = f"{self.uri}/ajax-api/2.0/mlflow/{path}"
        request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.loads(answer.read() or b"{}")


def installed() -> Path:
    """Return the `bin` folder of an environment with MLflow, the server and the client."""
    return peers.peer("mlflow", MLFLOW, "psycopg[binary]")


@contextlib.contextmanager
def server(platform: instance.Instance, place: int = 50, sqlite: bool = False) -> Iterator[Server]:
    """Start a server at that port of the platform's range, with as many processes as the platform has for the web."""
    binaries, folder = installed(), platform.root / f"mlflow{place}"
    folder.mkdir()
    if sqlite:
        url = str(folder / "mlflow.db")
        store = f"sqlite:///{url}"
    else:
        with psycopg.connect(database_url(platform), autocommit=True) as link:
            link.execute("CREATE DATABASE mlflow")
        url = database_url(platform, "mlflow")
        store = url.replace("postgresql:", "postgresql+psycopg:")
    port = platform.base + place
    command = [
        str(binaries / "mlflow"), "server", "--backend-store-uri", store, "--host", instance.HOST, "--port", str(port),
        "--workers", "2", "--artifacts-destination", str(folder / "artifacts"),
    ]  # fmt: skip
    environment = {**platform.environment, "PATH": f"{binaries}:/usr/bin:/bin", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
        try:
            _wait(process, port, folder / "log")
            yield Server(f"http://{instance.HOST}:{port}", url, process.pid)
        finally:
            process.terminate()
            process.wait(30)


def _wait(process: subprocess.Popen, port: int, log: Path) -> None:
    end = time.monotonic() + 600
    while True:
        try:
            urllib.request.urlopen(f"http://{instance.HOST}:{port}/health", timeout=2).read()
            return
        except OSError:
            if time.monotonic() > end or process.poll() is not None:
                raise SystemExit("MLflow did not start: no comparison\n" + log.read_text()[-3000:])
            time.sleep(0.3)


def many_runs(url: str, runs: int) -> str:
    """Put runs with 4 parameters and 6 metrics into the database; return the id of their experiment."""
    with psycopg.connect(url, autocommit=True) as link:
        experiment = link.execute(EXPERIMENT, ["many"]).fetchone()[0]
        for statement in (RUN_COLUMNS, PARAMS, LATEST):
            link.execute((statement % {"mark": "many", "experiment": experiment, "runs": runs}).encode())
        link.execute("VACUUM ANALYZE")
    return str(experiment)


def copy_runs(url: str, path: str, experiment: str) -> str:
    """Put the runs of `many_runs` into a database of SQLite, too; return the id of their experiment there."""
    with psycopg.connect(url) as link, contextlib.closing(sqlite3.connect(path, timeout=60)) as target:
        target.execute("PRAGMA foreign_keys = OFF")
        for table in ("experiments", "runs", "params", "latest_metrics"):
            cursor = link.execute(f"SELECT * FROM {table}".encode())
            names = [column.name for column in cursor.description]
            holes = ", ".join("?" * len(names))
            target.executemany(f"INSERT OR IGNORE INTO {table} ({', '.join(names)}) VALUES ({holes})", cursor)
        target.commit()
        target.execute("ANALYZE")
    return experiment


def long_series(url: str, runs: int, points: int) -> list[str]:
    """Put runs with one long series each into the database; return their ids."""
    with psycopg.connect(url, autocommit=True) as link:
        experiment = link.execute(EXPERIMENT, ["long"]).fetchone()[0]
        given = {"mark": "long", "experiment": experiment, "runs": runs}
        link.execute((RUN_COLUMNS % given).encode())
        for run in range(1, runs + 1):
            link.execute((SERIES % {"mark": "long", "run": run, "points": points}).encode())
        link.execute("VACUUM ANALYZE metrics")
        rows = link.execute("SELECT run_uuid FROM runs WHERE experiment_id = %s", [experiment]).fetchall()
    return [run for (run,) in rows]


def database_url(platform: instance.Instance, name: str = "mlp") -> str:
    """Return the address of a database of the platform's server, in a form that SQLAlchemy reads, too."""
    password = (platform.root / "database-password").read_text().strip()
    folder = quote(str(platform.root / "run" / "sockets"), safe="")
    return f"postgresql://platform:{password}@/{name}?host={folder}&port={platform.base + 11}"

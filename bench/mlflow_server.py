"""An MLflow tracking server to compare with, on the platform's PostgreSQL, in an environment of its own.

`many_runs` puts into its database what bench/runs.py puts into the platform's.
"""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass
class Server:
    """A running MLflow server. `database` is the address of its PostgreSQL database."""

    uri: str
    database: str

    def call(self, path: str, body: dict | None = None) -> dict:
        """Return the answer to a POST, to a GET without a body; paths as MLflow's own pages call them."""
        data = None if body is None else json.dumps(body).encode()
        address = f"{self.uri}/ajax-api/2.0/mlflow/{path}"
        request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.loads(answer.read() or b"{}")


@contextlib.contextmanager
def server(platform: instance.Instance) -> Iterator[Server]:
    """Start a server with as many processes as the platform has for the web."""
    binaries, folder = peers.peer("mlflow", MLFLOW, "psycopg[binary]"), platform.root / "mlflow"
    folder.mkdir()
    with psycopg.connect(database_url(platform), autocommit=True) as link:
        link.execute("CREATE DATABASE mlflow")
    url, uri = database_url(platform, "mlflow"), f"http://{instance.HOST}:{platform.base + 50}"
    command = [
        str(binaries / "mlflow"), "server", "--backend-store-uri", url.replace("postgresql:", "postgresql+psycopg:"),
        "--host", instance.HOST, "--port", str(platform.base + 50), "--workers", "2",
        "--artifacts-destination", str(folder / "artifacts"),
    ]  # fmt: skip
    environment = {**platform.environment, "PATH": f"{binaries}:/usr/bin:/bin", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with instance.server(command, f"{uri}/health", 600, env=environment, cwd=folder, **instance.QUIET):
        yield Server(uri, url)


def many_runs(url: str, runs: int) -> str:
    """Put runs with 4 parameters and 6 metrics into the database; return the id of their experiment."""
    with psycopg.connect(url, autocommit=True) as link:
        experiment = link.execute(EXPERIMENT, ["many"]).fetchone()[0]
        for statement in (RUN_COLUMNS, PARAMS, LATEST):
            link.execute((statement % {"mark": "many", "experiment": experiment, "runs": runs}).encode())
        link.execute("VACUUM ANALYZE")
    return str(experiment)


def database_url(platform: instance.Instance, name: str = "mlp") -> str:
    """Return the address of a database of the platform's server, in a form that SQLAlchemy reads, too."""
    password = (platform.root / "database-password").read_text().strip()
    folder = quote(str(platform.root / "run" / "sockets"), safe="")
    return f"postgresql://platform:{password}@/{name}?host={folder}&port={platform.base + 11}"

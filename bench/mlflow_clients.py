"""MLflow's own client against the platform, and against MLflow servers on PostgreSQL and on SQLite, in one run.

The same client and the same calls: batches of points by one client and by 20, single points, searches of many runs by a
metric, and an upload of 1 GiB with the memory of the servers. All servers run all the time; each measure is taken of
one after the other, several rounds, and the median counts. The clients share the cores with the servers, so the CPU
time of clients and servers is printed, too: that hardly depends on what else the machine does.

Shorter: BENCH_SECONDS=2 BENCH_ROUNDS=1 BENCH_RUNS=3000 BENCH_MIB=64, and the names of the measures as arguments.
BENCH_CLIENT is the Python of another release of the client.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median

import bars
import instance
import memory
import runs

import tracking

SECONDS, ROUNDS = float(os.environ.get("BENCH_SECONDS", "10")), int(os.environ.get("BENCH_ROUNDS", "3"))
RUNS, MIB = int(os.environ.get("BENCH_RUNS", "30000")), int(os.environ.get("BENCH_MIB", "1024"))
POINTS, RESULTS, BEST = 1000, 100, 10
FLAT_MIB = 64  # that all processes of the platform may grow by while a file is uploaded


@dataclass
class Measure:
    """What is measured: the clients' work, in what unit, and how many times MLflow's rate is the goal."""

    name: str
    title: str
    unit: str
    goal: float
    work: dict
    clients: int = 1


MEASURES = [
    Measure("batch", "log_batch of 1,000 points, 1 client", "points/s", 5, {"do": "batches", "points": POINTS}),
    Measure("batch20", "log_batch of 1,000 points, 20 clients", "points/s", 3, {"do": "batches", "points": POINTS}, 20),
    Measure("single", "log_metric, 1 client", "calls/s", 2, {"do": "singles"}),
    Measure("search", f"search_runs of {RUNS:,} by a metric, {RESULTS} runs", "calls/s", 10,
            {"do": "searches", "results": RESULTS}),
    Measure("best", f"search_runs of {RUNS:,} by a metric, the best {BEST} runs", "calls/s", 10,
            {"do": "searches", "results": BEST}),
    Measure("upload", f"log_artifact of {MIB:,} MiB", "MiB/s", 2, {"do": "uploads"}),
]  # fmt: skip


@dataclass
class Target:
    """A server that is measured, and what has been measured."""

    name: str
    uri: str
    token: str
    experiment: str
    cpu: Callable[[], float]
    memory: Callable[[], int]
    rates: list[float] = field(default_factory=list)
    costs: list[tuple[float, float]] = field(default_factory=list)  # CPU of the client and of the server, for one unit
    grown: list[float] = field(default_factory=list)


class Clients:
    """The program bench/mlflow_load.py, running."""

    def __init__(self, python: str, folder: str):
        program = str(instance.MANAGE.parent / "bench" / "mlflow_load.py")
        environment = {
            "PATH": os.environ["PATH"], "HOME": folder, "MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONSAFEPATH": "1",
            "GIT_PYTHON_REFRESH": "quiet", "MLFLOW_HTTP_REQUEST_TIMEOUT": "600",
        }  # fmt: skip
        self.process = subprocess.Popen(
            [python, program], env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if not self.process.stdout.readline():
            raise SystemExit("MLflow's client does not start")

    def do(self, target: Target, measure: Measure, **more) -> list[dict]:
        given = {"uri": target.uri, "token": target.token, "experiment": target.experiment, "seconds": SECONDS,
                 "clients": measure.clients, **measure.work, **more}  # fmt: skip
        self.process.stdin.write(json.dumps(given) + "\n")
        self.process.stdin.flush()
        found = json.loads(self.process.stdout.readline())
        wrong = next((one for one in found if "error" in one), None)
        if wrong is not None:
            raise SystemExit(f"{target.name}: {measure.title}: {wrong['error']}\n{wrong['at']}")
        return found

    def stop(self) -> None:
        self.process.stdin.close()
        self.process.wait(30)


@contextlib.contextmanager
def targets() -> Iterator[list[Target]]:
    """Start all servers, and put the same runs into each."""
    with (
        instance.running() as platform,
        tracking.server(platform, 50) as on_postgres,
        tracking.server(platform, 51, sqlite=True) as on_sqlite,
    ):
        project = runs.fill(platform, RUNS, "vision")
        experiment = tracking.many_runs(on_postgres.database, RUNS)
        tracking.copy_runs(on_postgres.database, on_sqlite.database, experiment)
        parts = memory.parts(platform.root)
        database = [parts["database"]]
        ours = list(parts.values())
        yield [
            _target("platform", f"http://{instance.HOST}:{platform.port}/mlflow", platform.token, project, ours),
            _target("MLflow on PostgreSQL", on_postgres.uri, "", experiment, [on_postgres.pid, *database],
                    [on_postgres.pid]),
            _target("MLflow on SQLite", on_sqlite.uri, "", experiment, [on_sqlite.pid]),
        ]  # fmt: skip


def _target(name: str, uri: str, token: str, experiment: str, pids: list[int], own: list[int] | None = None) -> Target:
    """Return a server with its processes. `own`: those whose memory is looked at, unless all."""
    return Target(
        name, uri, token, experiment, lambda: memory.cpu_of(pids),
        lambda: sum(memory.now({str(pid): pid for pid in own or pids}).values()),
    )  # fmt: skip


def take(clients: Clients, target: Target, measure: Measure, **more) -> None:
    """Measure one server once."""
    upload, before = measure.name == "upload", target.cpu()
    with memory.Peak(target.memory) if upload else contextlib.nullcontext() as peak:
        found = clients.do(target, measure, **more)
    used = target.cpu() - before
    size = MIB if upload else 1
    count = size * sum(one["count"] for one in found)
    # Clients end at their own times; each counts with its own rate.
    target.rates.append(size * sum(one["count"] / one["seconds"] for one in found))
    target.costs.append((sum(one["cpu"] for one in found) / count, used / count))
    if upload:
        target.grown.append(peak.growth / memory.MIB)


def show(measure: Measure, found: list[Target]) -> bool:
    """Print what was measured; return whether the goal was reached."""
    per = {"points/s": 1000, "MiB/s": 1024}.get(measure.unit, 1)
    what = {"points/s": "1,000 points", "MiB/s": "GiB"}.get(measure.unit, "call")
    mine, good = median(found[0].rates), True
    print(f"\n{measure.title} {instance.load()}", flush=True)
    for target in found:
        client, server = (1000 * per * median(side) for side in zip(*target.costs, strict=True))
        line = f"  {target.name:<21} {median(target.rates):10,.1f} {measure.unit:<8}"
        line += f"  CPU for {what}: client {client:7.1f} ms, server {server:7.1f} ms"
        if measure.name == "upload":
            line += f"  memory +{max(target.grown):.0f} MiB"
        if target is not found[0]:
            ratio = mine / median(target.rates)
            good &= bars.note(f"{measure.title}, beside {target.name}", ratio, "times", least=measure.goal)
            line += f"  platform: {ratio:.1f} times (goal {measure.goal:g})"
        elif measure.name == "upload":
            good &= bars.note(f"{measure.title}: growth of memory", max(target.grown), "MiB", most=FLAT_MIB)
        print(line, flush=True)
    return good


def main() -> int:
    wanted = [measure for measure in MEASURES if measure.name in sys.argv[1:] or not sys.argv[1:]]
    good = True
    with tempfile.TemporaryDirectory(prefix="mlp-bench-client-") as folder, targets() as found:
        clients = Clients(os.environ.get("BENCH_CLIENT") or str(tracking.installed() / "python"), folder)
        for measure in wanted:
            for target in found:
                target.rates, target.costs, target.grown = [], [], []
            more = {"file": _file(folder)} if measure.name == "upload" else {}
            for _ in range(ROUNDS):
                for target in found:
                    take(clients, target, measure, **more)
            good &= show(measure, found)
        clients.stop()
    return 0 if good else 1


def _file(folder: str) -> str:
    path = os.path.join(folder, "artifact.bin")
    with open(path, "wb") as out:
        for _ in range(MIB):
            out.write(os.urandom(1 << 20))
    return path


if __name__ == "__main__":
    sys.exit(main())

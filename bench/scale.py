"""How the platform keeps up with a large cluster: 100 nodes, 10,000 pods, 1,000 running and 10,000 queued jobs.

The API server is the suite's own (bench/scale_cluster.py), in a process of its own, with runs that do nothing. The
platform is a real one, with its workers, database and queue; reconcile runs in a process that measures itself. Reports
the round's time, the calls of the API by kind, the memory, and the time from free room to the next start.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import bars
import instance

HERE = Path(__file__).resolve().parent
RUNNING, QUEUED = int(os.environ.get("SCALE_RUNNING", "1000")), int(os.environ.get("SCALE_QUEUED", "10000"))
USERS = 20
ROUND_S, CALLS_PER_S, START_S = 2.0, 50.0, 10.0


@contextlib.contextmanager
def cluster(folder: str) -> Iterator[str]:
    command = [sys.executable, str(HERE / "scale_cluster.py"), folder]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.stdin.close()
        process.terminate()
        process.wait(30)


def without_reconcile(platform: instance.Instance) -> None:
    """Stop the platform's own loop: the measured one takes its place."""
    socket = f"unix://{platform.root}/run/supervisor.sock"
    program = [str(Path(sys.executable).with_name("supervisorctl")), "-s", socket]
    subprocess.run([*program, "stop", "reconcile"], check=True, stdout=subprocess.DEVNULL)


def measured(platform: instance.Instance, settings: dict[str, str], url: str) -> list[dict]:
    """Run the rounds; return what was measured in each phase."""
    given = {**platform.environment, **settings, "SCALE_URL": url}
    given |= {"SCALE_RUNNING": str(RUNNING), "SCALE_QUEUED": str(QUEUED)}
    command = [sys.executable, str(instance.MANAGE), "shell", "-v", "0", "-c"]
    text = (HERE / "scale_round.py").read_text()
    process = subprocess.Popen([*command, text], env=given, stdout=subprocess.PIPE, text=True)
    phases = []
    for line in process.stdout:
        print("   ", line.strip()[:1500], flush=True)
        if line.startswith("{"):
            phases.append(json.loads(line))
    if process.wait(60):
        raise SystemExit("the measurement failed")
    return phases


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="mlp-scale-") as folder, cluster(folder) as url:
        settings = {
            "MLP_RUNNER": "kubernetes", "MLP_K8S_KUBECONFIG": f"{folder}/kubeconfig", "MLP_K8S_PVC": "mlp",
            "MLP_K8S_IMAGE_PYTHON": "registry.test/python:1", "MLP_RUN_URL": "http://10.0.0.7:30001",
        }  # fmt: skip
        with instance.running(**settings) as platform:
            for number in range(USERS):
                name = f"scale{chr(97 + number)}"
                platform.call("POST", "/users", {"username": name, "password": instance.PASSWORD})
                home = platform.root / "datasets" / name / ".home"
                home.mkdir(parents=True, exist_ok=True)
                (home / "train.py").write_text("print(1)\n")
            without_reconcile(platform)
            phases = measured(platform, settings, url)
    waits = [phase["seconds"] for phase in phases if phase["phase"] == "start"]
    return report({phase["phase"]: phase for phase in phases}, waits)


def report(phases: dict[str, dict], waits: list[float | None]) -> int:
    rounds = phases["rounds"]["rounds"]
    totals = sorted(sum(wall for wall, _busy in calls.values()) for calls in rounds)
    busy = sorted(sum(used for _wall, used in calls.values()) for calls in rounds)
    idle = phases["idle"]
    per_s = sum(idle["calls"].values()) / idle["seconds"]
    lists = {kind: count for kind, count in idle["calls"].items() if kind.startswith("list")}
    print(f"{RUNNING} running, {QUEUED} queued jobs {instance.load()}")
    print(f"  round             {totals[len(totals) // 2]:.2f} s, of which {busy[len(busy) // 2]:.2f} s processor time")
    print(f"  API calls idle    {per_s:.1f} a second; lists in {idle['seconds']:.0f} s: {lists or 'none'}")
    print(f"  memory            {idle['mib']} MiB")
    print(f"  room to start     {', '.join('-' if wait is None else f'{wait:.1f} s' for wait in waits)}")
    good = all(
        [
            bars.note("scale: a round of reconcile", totals[len(totals) // 2], "s", most=ROUND_S),
            bars.note("scale: API calls when idle", per_s, "a second", most=CALLS_PER_S),
            bars.note("scale: memory of reconcile", idle["mib"], "MiB"),
            None not in waits and bars.note("scale: room to start", max(waits, default=0), "s", most=START_S),
            not any(kind.startswith("list of a run") for kind in idle["calls"]),
        ]
    )
    print("all goals are met" if good else "NOT all goals are met")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

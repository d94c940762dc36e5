"""MLflow's own client as a load: a program for the Python of an environment that has it, never imported.

It reads a command a line and answers each with a line, both JSON. The clients of a command are processes, forked from
this one, that begin together. Times and CPU are of the clients' calls alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback

from mlflow import MlflowClient
from mlflow.entities import Metric

KEYS = 10  # of a batch


def batches(client: MlflowClient, run: str, given: dict):
    """Log a batch of points each time."""
    step = 0
    while True:
        at = int(time.time() * 1000)
        size = given["points"] // KEYS
        points = [Metric(f"metric{key}", 1 / (step + place + 1), at, step + place)
                  for place in range(size) for key in range(KEYS)]  # fmt: skip
        step += size
        client.log_batch(run, metrics=points)
        yield len(points)


def singles(client: MlflowClient, run: str, _given: dict):
    step = 0
    while True:
        client.log_metric(run, "loss", 1 / (step + 1), step=step)
        step += 1
        yield 1


def searches(client: MlflowClient, _run: str, given: dict):
    place = 0
    while True:
        # Another threshold each time, so that no cache answers.
        found = client.search_runs(
            [given["experiment"]], f"metrics.loss < {0.9 + place / 10_000}", max_results=given["results"],
            order_by=["metrics.loss DESC"],
        )  # fmt: skip
        if len(found) != given["results"]:
            raise SystemExit(f"{len(found)} runs were found")
        place += 1
        yield 1


def uploads(client: MlflowClient, run: str, given: dict):
    while True:
        client.log_artifact(run, given["file"])
        yield 1


WORK = {work.__name__: work for work in (batches, singles, searches, uploads)}


def one(given: dict, ready: int, begin: int, result: int) -> None:
    """Run one client: warm up, wait for the others, work, and write the outcome."""
    try:
        client = MlflowClient(given["uri"], given["uri"])
        run = client.create_run(given.get("in", "0")).info.run_id
        work = WORK[given["do"]](client, run, given)
        if given["do"] != "uploads":
            next(work)
        os.write(ready, b"1")
        os.read(begin, 1)
        began, cpu, count, times = time.perf_counter(), time.process_time(), 0, []
        while not times or time.perf_counter() - began < given["seconds"]:
            before = time.perf_counter()
            count += next(work)
            times.append(time.perf_counter() - before)
        whole = {"count": count, "seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
        answer = {**whole, "times": times[:2000], "run": run}
    except BaseException as problem:
        os.write(ready, b"0")
        answer = {"error": f"{type(problem).__name__}: {problem}"[:1000], "at": traceback.format_exc()[-2000:]}
    with os.fdopen(result, "w") as out:
        json.dump(answer, out)
    os._exit(0)


def together(given: dict) -> list[dict]:
    """Return what came of each client."""
    os.environ["MLFLOW_TRACKING_TOKEN"] = given.get("token", "")
    if not given.get("token"):
        del os.environ["MLFLOW_TRACKING_TOKEN"]
    ready_in, ready_out = os.pipe()
    begin_in, begin_out = os.pipe()
    ends = []
    for _ in range(given["clients"]):
        result_in, result_out = os.pipe()
        if os.fork() == 0:
            one(given, ready_out, begin_in, result_out)
        os.close(result_out)
        ends.append(result_in)
    left = given["clients"]
    while left:
        left -= len(os.read(ready_in, left))
    os.write(begin_out, b"g" * given["clients"])
    found = []
    for end in ends:
        with os.fdopen(end) as lines:
            found.append(json.load(lines))
        os.wait()
    for pipe in (ready_in, ready_out, begin_in, begin_out):
        os.close(pipe)
    return found


def main() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(together(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()

"""The table of 100,000 runs of one user: the first page, sorted, filtered and grouped, and MLflow's beside it.

The goal is 200 ms for the first page, also sorted by a metric. Times are of whole requests at the gateway, so they hold
the page's HTML (or REST's JSON), too. On a busy machine they hold the waits for a CPU; so the load is
printed, and the CPU time of the web server and the database for each page, whatever else they do meanwhile. Then REST
and an MLflow server, both on the same PostgreSQL, answer the same questions: the 100 runs that its own page asks for.
"""

from __future__ import annotations

import os
import time
import urllib.parse
import urllib.request
from pathlib import Path

import bars
import instance
import memory
import mlflow_server

SQL = Path(__file__).with_name("many_runs.sql")
FILLING = """
from pathlib import Path
from django.db import connection
from accounts.models import User
from jobs.models import Project
Project.objects.default_of(User.objects.get(username="bench"))
with connection.cursor() as cursor:
    cursor.execute(Path({sql!r}).read_text().replace("(1, 100000)", "(1, {runs})"))
    cursor.execute("VACUUM ANALYZE job, run_param, run_metric")
"""
TIMES = 15
GOAL_MS = 200
RUNS = int(os.environ.get("BENCH_RUNS", "100000"))
BOTH = {
    "newest 100": ("", {"order_by": ["attributes.start_time DESC"]}),
    "by a metric": ("sort=-last:loss", {"order_by": ["metrics.`loss` DESC"]}),
    "by an argument": ("sort=param:lr", {"order_by": ["params.`lr` ASC"]}),
    "filtered": (
        "filter=loss < 0.1 and optimizer = adam",
        {"filter": "metrics.loss < 0.1 and params.optimizer = 'adam'", "order_by": ["attributes.start_time DESC"]},
    ),
}
QUERIES = {
    "newest first": "",
    "by the last value of a metric": "sort=-last:loss",
    "by the best value of a metric": "sort=best:val/loss",
    "by an argument": "sort=param:lr",
    "by duration": "sort=-duration",
    "filter: metric, argument, tag": "filter=loss < 0.1 and param.lr = 0.01 or tag = baseline",
    "filter, sorted by a metric": "filter=loss < 0.5&sort=-last:accuracy",
    "cancelled runs": "state=cancelled",
    "grouped by an argument": "by=param:optimizer",
}


def main() -> None:
    with instance.running() as platform:
        began = time.monotonic()
        platform.manage("shell", "-v0", "-c", FILLING.format(sql=str(SQL), runs=RUNS))
        print(f"{RUNS:,} runs, each of 4 arguments and 6 summaries: {time.monotonic() - began:.0f} s", flush=True)
        browser, _ = platform.browser()
        print(f"first pages {instance.load()}", flush=True)
        for name, query in QUERIES.items():
            show(name, *opened(browser, platform, "/jobs?" + quoted(query), TIMES))
        beside_mlflow(platform, browser)


def beside_mlflow(platform: instance.Instance, browser: urllib.request.OpenerDirector) -> None:
    """Ask both for the same 100 runs; a filter of MLflow has no `or`."""
    with mlflow_server.server(platform) as other:
        experiment = mlflow_server.many_runs(other.database, RUNS)
        print(f"{mlflow_server.MLFLOW} has {RUNS:,} such runs, too {instance.load()}", flush=True)
        for name, (ours, theirs) in BOTH.items():
            asked = {"experiment_ids": [experiment], "max_results": 100, "run_view_type": "ACTIVE_ONLY", **theirs}
            rest = f"/api/v1/users/{platform.user}/runs?limit=100&{quoted(ours)}"
            show(f"platform: {name}", *opened(browser, platform, rest, TIMES))
            times = instance.times(lambda asked=asked: other.call("runs/search", asked), TIMES)
            print(f"{'MLflow:   ' + name:<34} {instance.spread(times)}", flush=True)


def quoted(query: str) -> str:
    return urllib.parse.quote(query, safe="=&:-")


def opened(
    browser: urllib.request.OpenerDirector, platform: instance.Instance, path: str, count: int
) -> tuple[list[float], float]:
    """Open a page so often; return the seconds of each, and the processor time of web server and database for one."""

    def used() -> float:
        seconds = memory.cpu(platform.root)
        return seconds["web"] + seconds["database"]

    def visit() -> None:
        with browser.open(platform.url + path) as answer:
            answer.read()

    before = used()
    times = instance.times(visit, count)
    return times, (used() - before) / count


def show(name: str, times: list[float], cpu: float) -> None:
    median = 1000 * sorted(times)[len(times) // 2]
    bars.note(name, median, "ms", most=GOAL_MS)
    verdict = "" if median <= GOAL_MS else f"   over the goal of {GOAL_MS} ms"
    print(f"{name:<34} {instance.spread(times)}   CPU {1000 * cpu:4.0f} ms{verdict}", flush=True)


if __name__ == "__main__":
    main()

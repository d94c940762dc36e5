"""Charts of long series: 10 runs of 1,000,000 points drawn and zoomed in a browser; latency and traffic of a live page.

The points are inserted into the database directly; `bench/metrics.py` measures the ingestion. Goals: the comparison is
drawn within a second once the series are aggregated, and an open page of a running job transfers less than 20 kB a
minute besides its points. An MLflow server answers the same beside it. BENCH_RUNS and BENCH_POINTS: fewer.
"""

from __future__ import annotations

import os
import sys
import time

import bars
import instance
import psycopg
from metrics import SCRIPT
from playwright.sync_api import Page, sync_playwright

import tracking

sys.path.insert(0, str(instance.MANAGE.parent))
from mlp.tests.chromium import MISSING, program

RUNS, POINTS = int(os.environ.get("BENCH_RUNS", "10")), int(os.environ.get("BENCH_POINTS", "1000000"))
DRAWN_S, QUIET_BYTES = 1.0, 20_000
SINGLES, OPEN_S = 60, 60
FILL = """
INSERT INTO metric_value (job_id, name, step, value, at, attempt, msg_id)
SELECT id, 'loss.train', i, exp(-i / 200000.0) + random() / 10, started + i * interval '10 ms', 1, i
FROM job, generate_series(0, %s) AS i WHERE name = %s
"""
DRAWN = """
() => new Promise((done) => {
  const check = () => {
    const label = document.querySelector("figure[data-names] [role=img]")?.getAttribute("aria-label") ?? "";
    if (label.split(POINTS).length > RUNS) requestAnimationFrame(() => done(performance.now()));
    else setTimeout(check, 5);
  };
  check();
})
"""
SHOWN = """
(value) => new Promise((done) => {
  const check = () => {
    const found = document.querySelector("figure[data-names*=rate] b")?.textContent;
    if (found === String(value)) requestAnimationFrame(() => done(Date.now())); else setTimeout(check, 1);
  };
  check();
})
"""


def long_runs(platform: instance.Instance) -> list[str]:
    """Create finished jobs and their points; return the jobs' names."""
    names = [f"run{chr(ord('a') + number)}" for number in range(RUNS)]
    platform.script("none.py", "pass")
    for name in names:
        platform.call("POST", "/users/bench/jobs", {"name": name, "entry": "none.py", "ram": 100, "cpu": 0.1})
        platform.wait_job(name, "finished")
    began = time.perf_counter()
    with psycopg.connect(tracking.database_url(platform), autocommit=True) as link:
        for name in names:
            link.execute(FILL, [POINTS - 1, name])
        link.execute("ANALYZE metric_value")
    print(f"  {RUNS} x {POINTS:,} points inserted in {time.perf_counter() - began:.0f} s", flush=True)
    return names


def rest(platform: instance.Instance, names: list[str]) -> None:
    def ask(query: str) -> float:
        began = time.perf_counter()
        for name in names:
            platform.call("GET", f"/users/bench/jobs/{name}/points?points=800{query}")
        return (time.perf_counter() - began) / len(names)

    print(f"  points of one run, first time, summarised then {ask(''):8.3f} s", flush=True)
    for title, query in (("whole", ""), ("a tenth", "&from=300000&to=400000"), ("10,000", "&from=500000&to=510000")):
        print(f"  points of one run, {title:<24} {1000 * ask(query):8.1f} ms", flush=True)


def beside_mlflow(platform: instance.Instance, names: list[str]) -> None:
    """Ask both for one metric of all runs, 320 points of each, as MLflow's page does for a chart."""

    def ours() -> None:
        for name in names:
            platform.call("GET", f"/users/bench/jobs/{name}/points?points=320&name=loss.train")

    with tracking.server(platform) as other:
        began = time.perf_counter()
        runs = tracking.long_series(other.database, RUNS, POINTS)
        print(f"  {tracking.MLFLOW} has them after {time.perf_counter() - began:.0f} s {instance.load()}", flush=True)
        query = "&".join(f"run_ids={run}" for run in runs)

        def theirs() -> None:
            other.call(f"metrics/get-history-bulk-interval?{query}&metric_key=loss.train&max_results=320")

        for title, ask in (("platform", ours), ("MLflow", theirs)):
            times = []
            for _ in range(5):
                began = time.perf_counter()
                ask()
                times.append(time.perf_counter() - began)
            print(f"  320 points of each run, {title + ':':<12} {instance.spread(times)}", flush=True)


def log_in(page: Page, platform: instance.Instance) -> None:
    page.goto(f"http://{instance.HOST}:{platform.port}/regist_login")
    page.fill("[name=username]", platform.user)
    page.fill("[name=password]", instance.PASSWORD)
    page.click("button[value=login]")
    page.wait_for_url("**/index")


def drawn(page: Page, platform: instance.Instance, names: list[str]) -> bool:
    address = f"http://{instance.HOST}:{platform.port}/compare?" + "&".join(f"job={name}" for name in names)
    times = []
    for _ in range(5):
        page.goto(address, wait_until="commit")
        times.append(page.evaluate(DRAWN.replace("RUNS", str(RUNS)).replace("POINTS", f'"{POINTS:,}"')) / 1000)
    print(f"  {RUNS} runs drawn, from the click on: {instance.spread(times)} {instance.load()}", flush=True)
    with page.expect_response(lambda answer: "from=" in answer.url and names[-1] in answer.url) as last:
        began = time.perf_counter()
        box = page.locator("figure .u-over").first.bounding_box()
        page.mouse.move(box["x"] + 100, box["y"] + 40)
        page.mouse.down()
        page.mouse.move(box["x"] + 130, box["y"] + 40, steps=3)
        page.mouse.up()
    last.value.finished()
    print(f"  finer points after a zoom:            {time.perf_counter() - began:8.3f} s", flush=True)
    return bars.note("10 runs drawn, the best of all tries", min(times), "s", most=DRAWN_S)


def live(page: Page, platform: instance.Instance) -> bool:
    platform.script("train.py", SCRIPT)
    platform.call("POST", "/users/bench/jobs", {"name": "live", "entry": "train.py", "ram": 100, "cpu": 0.1})
    platform.wait_job("live", "running")

    def report(number: int) -> float:
        began = time.time()
        platform.call("POST", "/users/bench/jobs/live/values", {"step": number, "values": {"rate": number}})
        return began

    report(1)
    page.goto(f"http://{instance.HOST}:{platform.port}/jobs/live")
    page.evaluate(SHOWN, 1)
    times = []
    for number in range(2, SINGLES):
        began = report(number)
        times.append(page.evaluate(SHOWN, number) / 1000 - began)
    print(f"  from the report to the pixel:         {instance.spread(times)}", flush=True)
    moved = {"responses": 0, "websocket": 0}
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")

    def count(kind: str, size: float) -> None:
        moved[kind] += size

    session.on("Network.loadingFinished", lambda event: count("responses", event["encodedDataLength"]))
    session.on(
        "Network.webSocketFrameReceived", lambda event: count("websocket", len(event["response"]["payloadData"]))
    )
    end, number = time.monotonic() + OPEN_S, SINGLES
    while time.monotonic() < end:
        report(number)
        number += 1
        page.wait_for_timeout(1000)
    total = sum(moved.values()) * 60 / OPEN_S
    print(
        f"  an open page, {number - SINGLES} reports in {OPEN_S} s:  {total / 1000:.1f} kB a minute"
        f" ({moved['responses'] / 1000:.1f} in responses, {moved['websocket'] / 1000:.1f} by the websocket)",
        flush=True,
    )
    return bars.note("responses to an open page in a minute", moved["responses"], "bytes", most=QUIET_BYTES)


def main() -> int:
    if program() is None:
        print(f"  {MISSING}")
        return 0
    with instance.running() as platform, sync_playwright() as tools:
        names = long_runs(platform)
        rest(platform, names)
        browser = tools.chromium.launch(executable_path=program())
        page = browser.new_page()
        log_in(page, platform)
        good = [drawn(page, platform, names), live(page, platform)]
        browser.close()
        beside_mlflow(platform, names)
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())

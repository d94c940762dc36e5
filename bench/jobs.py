"""Jobs: from POST to the script's first line; reports to 500 websockets; lists with 10,000 jobs.

The goals are printed beside the figures: 100 ms for a list or a page.
"""

from __future__ import annotations

import asyncio
import http.cookiejar
import sys
import time
import urllib.parse
import urllib.request

import bars
import instance
import sockets

SOCKETS = 500
REPORTS = 40
JOBS = 10_000
LIMIT_MS = 100
SCRIPT = """
import sys, time, pathlib
pathlib.Path("first").write_text(repr(time.time()))
if len(sys.argv) > 1:
    while True: time.sleep(1)
"""
MANY = f"""
from jobs.models import Job
from accounts.models import User
user = User.objects.get(username="bench")
rows = []
for n in range({JOBS}):
    name, left = "", n
    for _ in range(5):
        name += chr(97 + left % 26); left //= 26
    job = Job(user=user, tenant=user.tenant, name="many" + name, entry="train.py", state="finished", progress=100)
    rows.append(job)
Job.objects.bulk_create(rows, batch_size=2000)
"""


def first_line(platform: instance.Instance) -> None:
    times = []
    for n in range(8):
        name = "first" + "abcdefgh"[n]
        began = time.time()
        platform.call("POST", "/users/bench/jobs", {"name": name, "entry": "train.py", "ram": 100, "cpu": 0.1})
        platform.wait_job(name, "finished")
        platform.wait_free()
        wrote = float(platform.request("GET", f"/api/v1/users/bench/jobs/{name}/artifacts/first"))
        times.append(wrote - began)
    print(f"POST to the script's first line   {instance.spread(times)}", flush=True)
    bars.note("POST to the script's first line, median", 1000 * sorted(times)[len(times) // 2], "ms")


def fan_out(platform: instance.Instance) -> None:
    body = {"name": "fan", "entry": "train.py", "args": ["stay"], "ram": 100, "cpu": 0.1}
    platform.call("POST", "/users/bench/jobs", body)
    platform.wait_job("fan", "running")
    path = "/api/v1/users/bench/job_metrics/fan"
    sent: dict[int, float] = {}
    late: list[float] = []

    def took(row: dict, at: float) -> None:
        late.append(at - sent[row["epoch"]])

    async def work() -> float:
        clients = [sockets.Client(instance.HOST, platform.port, path, platform.token, took) for _ in range(SOCKETS)]
        for start in range(0, SOCKETS, 50):
            await asyncio.gather(*(client.open() for client in clients[start : start + 50]))
        readers = [asyncio.create_task(client.read()) for client in clients]
        began = time.time()
        for epoch in range(REPORTS):
            sent[epoch] = time.time()
            row = {"epoch": epoch, "accuracy": 0.5, "loss": 0.5, "progress": 1}
            await asyncio.to_thread(platform.call, "POST", "/users/bench/job_metrics/fan", row)
            await asyncio.sleep(0.1)
        while len(late) < SOCKETS * REPORTS and time.time() - began < 120:
            await asyncio.sleep(0.05)
        spent = time.time() - began
        for reader, client in zip(readers, clients, strict=True):
            reader.cancel()
            client.close()
        return spent

    spent = asyncio.run(work())
    whole = SOCKETS * REPORTS
    print(f"{SOCKETS} websockets on one job: {len(late)} of {whole} deliveries, {len(late) / spent:.0f} /s", flush=True)
    print(f"  POST of a report to the browser {instance.spread(late)}", flush=True)
    platform.call("PUT", "/users/bench/jobs/fan:cancel")


def many_jobs(platform: instance.Instance) -> bool:
    good = True
    platform.manage("shell", "-c", MANY)
    jar = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    address = f"http://{instance.HOST}:{platform.port}"
    page = browser.open(f"{address}/regist_login").read().decode()
    mark = page.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    fields = {"csrfmiddlewaretoken": mark, "username": "bench", "password": instance.PASSWORD, "action": "login"}
    browser.open(f"{address}/regist_login", urllib.parse.urlencode(fields).encode()).read()
    asked = {
        "page /jobs": lambda: browser.open(f"{address}/jobs").read(),
        "page /jobs?state=finished&q=many": lambda: browser.open(f"{address}/jobs?state=finished&q=many").read(),
        "page /jobs?page=150": lambda: browser.open(f"{address}/jobs?page=150").read(),
        "page of one job": lambda: browser.open(f"{address}/jobs/manyaaaaa").read(),
        "GET jobs?limit=50": lambda: platform.call("GET", "/users/bench/jobs?limit=50"),
        "GET jobs?limit=1000": lambda: platform.call("GET", "/users/bench/jobs?limit=1000"),
    }
    for name, ask in asked.items():
        times = []
        for _ in range(20):
            began = time.perf_counter()
            ask()
            times.append(time.perf_counter() - began)
        median = 1000 * sorted(times[2:])[len(times[2:]) // 2]
        good &= bars.note(f"{JOBS} jobs: {name}, median", median, "ms", most=LIMIT_MS)
        print(f"{JOBS} jobs: {name:<34} {instance.spread(times[2:])}   (limit {LIMIT_MS} ms)", flush=True)
    return good


def main() -> int:
    with instance.running() as platform:
        platform.script("train.py", SCRIPT)
        first_line(platform)
        fan_out(platform)
        return 0 if many_jobs(platform) else 1


if __name__ == "__main__":
    sys.exit(main())

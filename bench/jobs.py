"""Jobs: from POST to the script's first line, and reports to 500 websockets that follow one job."""

from __future__ import annotations

import asyncio
import sys
import time

import bars
import instance
import sockets

SOCKETS = 500
REPORTS = 40
SCRIPT = "import pathlib, time; pathlib.Path('first').write_text(repr(time.time()))"
STAY = "import time\nwhile True: time.sleep(1)"


def first_line(platform: instance.Instance) -> None:
    times = []
    platform.script("train.py", SCRIPT)
    for name in ("firsta", "firstb", "firstc", "firstd", "firste", "firstf", "firstg", "firsth"):
        began = time.time()
        platform.call("POST", "/users/bench/jobs", {"name": name, "entry": "train.py", "ram": 100, "cpu": 0.1})
        platform.wait_state(f"jobs/{name}", "finished")
        platform.wait_free()
        wrote = float(platform.request("GET", f"/api/v1/users/bench/jobs/{name}/artifacts/first"))
        times.append(wrote - began)
    print(f"POST to the script's first line   {instance.spread(times)}", flush=True)
    bars.note("POST to the script's first line, median", 1000 * sorted(times)[len(times) // 2], "ms")


def fan_out(platform: instance.Instance) -> None:
    platform.submit("fan", STAY, "running")
    sent: dict[int, float] = {}
    late: list[float] = []

    def took(row: dict, at: float) -> None:
        late.append(at - sent[row["epoch"]])

    async def work() -> float:
        path = "/api/v1/users/bench/job_metrics/fan"
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
    bars.note("deliveries of reports to websockets", len(late), least=whole)


def main() -> int:
    with instance.running() as platform:
        first_line(platform)
        fan_out(platform)
    return 0


if __name__ == "__main__":
    sys.exit(main())

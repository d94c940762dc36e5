"""What a shadow costs the callers of an application: the latency of the same requests without one, and with one that
gets a copy of each.

One shadow answers as fast as the application, one takes a second for each copy: then most are dropped, and the callers
must not notice. At a pace that leaves processors free, since the shadow's computing shares them here; on its own it has
the processors of a second run.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import bars
import instance
import serving

SLOW = """
import time

class Predictor:
    inputs = [{"name": "input", "datatype": "FP64", "shape": [-1, 4]}]

    def predict(self, inputs):
        time.sleep(1)
        return [{"name": "predict", "datatype": "INT64", "shape": [1], "data": [0]}]
"""
PAUSE_S, SECONDS, ROUNDS = 0.01, 5, 3
MOST_TIMES, MOST_MS = 1.25, 0.5  # beyond both it is no noise


async def paced(port: int, request: bytes) -> list[float]:
    """Return the milliseconds of requests, one after the other with pauses."""
    times, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        times += await serving.send(port, request, 1, 0.001)
        await asyncio.sleep(PAUSE_S)
    return [1000 * each for each in times]


def models(platform: instance.Instance) -> None:
    """Create the model, another one of the same file, and the slow one."""
    with tempfile.TemporaryDirectory() as folder:
        platform.request("PUT", "/data/bench/.home/model.joblib", serving.model_file(Path(folder)).read_bytes())
    platform.request("PUT", "/data/bench/.home/predictor.py", SLOW.encode())
    for name, source in (("net", "model.joblib"), ("other", "model.joblib"), ("slow", "predictor.py")):
        platform.call("POST", "/users/bench/models", {"name": name, "src": f"home/{source}"})
        platform.wait_state(f"models/{name}", "ready")
    platform.call("POST", "/users/bench/apps", {"name": "net", "model_name": "net", "cpu": 1, "ram": 600})
    platform.wait_state("apps/net", "ready")


def with_shadow(platform: instance.Instance, model: str, port: int, request: bytes) -> tuple[list[float], dict]:
    """Return the latencies while a model is the shadow, and what was compared."""
    path = "/users/bench/apps/net"
    platform.call("PUT", f"{path}/shadow", {"model_name": model})
    instance.wait("a shadow", lambda: platform.call("GET", path)["rollout"]["phase"] == "shadow", 60)
    instance.wait("copies", lambda: _copied(platform, port, request), 60)
    times = asyncio.run(paced(port, request))
    found = platform.call("GET", f"{path}/shadow")
    platform.call("DELETE", f"{path}/shadow")
    instance.wait("the end of the shadow", lambda: platform.call("GET", path)["rollout"] is None, 60)
    return times, found


def _copied(platform: instance.Instance, port: int, request: bytes) -> bool:
    asyncio.run(serving.send(port, request, 1, 0.001))
    return platform.call("GET", "/users/bench/apps/net/shadow")["compared"] > 0


def main() -> None:
    with instance.running() as platform:
        models(platform)
        port = platform.base + 2
        lines = ["POST /bench/net/v2/models/net/infer HTTP/1.1", f"Host: {instance.HOST}:{port}"]
        lines += ["Content-Type: application/json", f"Content-Length: {len(serving.BODY)}"]
        lines += [f"Authorization: Bearer {platform.token}"]
        request = ("\r\n".join(lines) + "\r\n\r\n").encode() + serving.BODY
        asyncio.run(paced(port, request))
        medians: dict[str, list[float]] = {"without": [], "other": [], "slow": []}
        for _round in range(ROUNDS):
            medians["without"].append(statistics.median(asyncio.run(paced(port, request))))
            for model in ("other", "slow"):
                times, found = with_shadow(platform, model, port, request)
                medians[model].append(statistics.median(times))
                print(f"shadow {model}: compared {found['compared']}, dropped {found['dropped']}", flush=True)
    for name, found in medians.items():
        print(f"{name:<10} median of each round, ms: {', '.join(f'{each:.2f}' for each in found)}", flush=True)
    base = statistics.median(medians["without"])
    for name, words in (("other", "with a shadow, median beside none"), ("slow", "with a slow shadow, beside none")):
        found = statistics.median(medians[name])
        most = max(MOST_TIMES, 1 + MOST_MS / base)
        bars.note(words, found / base, "times", most=most)


if __name__ == "__main__":
    main()

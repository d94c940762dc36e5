"""What a shadow costs the callers of an application: the latency of the same requests to it, and to another application
of the same model without one, in turn.

One shadow answers as fast as the application, one takes a second for each copy: then most are dropped, and the callers
must not notice. At a pace that leaves processors free, since the shadow's computing shares them here; on its own it has
the processors of a second run.
"""

from __future__ import annotations

import asyncio
import statistics
import time

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
MODELS = {"net": "model.joblib", "other": "model.joblib", "slow": "predictor.py"}
PAUSE_S, SECONDS, ROUNDS = 0.01, 8, 2
MOST_TIMES, MOST_MS = 1.1, 0.15  # beyond both it is no noise


async def in_turn(port: int, requests: tuple[bytes, bytes]) -> tuple[float, float]:
    """Return the median milliseconds of two requests, sent in turn with pauses on connections that stay."""
    links = [await asyncio.open_connection(instance.HOST, port) for _request in requests]
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for at, request in enumerate(requests):
            began = time.perf_counter()
            if await serving.exchange(*links[at], request):
                links[at] = await asyncio.open_connection(instance.HOST, port)
            times[at].append(1000 * (time.perf_counter() - began))
            await asyncio.sleep(PAUSE_S)
    return statistics.median(times[0]), statistics.median(times[1])


def with_shadow(platform: instance.Instance, model: str, requests: tuple[bytes, bytes]) -> tuple[float, float]:
    """Return the medians while a model is the shadow of the first application."""
    path, port = "/users/bench/apps/net", platform.base + 2
    platform.call("PUT", f"{path}/shadow", {"model_name": model})
    instance.wait("a shadow", lambda: platform.call("GET", path)["rollout"]["phase"] == "shadow", 60)
    instance.wait("copies", lambda: _copied(platform, port, requests[0]), 60)
    medians = asyncio.run(in_turn(port, requests))
    found = platform.call("GET", f"{path}/shadow")
    print(f"shadow {model}: compared {found['compared']}, dropped {found['dropped']}", flush=True)
    platform.call("DELETE", f"{path}/shadow")
    instance.wait("the end of the shadow", lambda: platform.call("GET", path)["rollout"] is None, 60)
    return medians


def _copied(platform: instance.Instance, port: int, request: bytes) -> bool:
    asyncio.run(serving.one(port, request))
    return platform.call("GET", "/users/bench/apps/net/shadow")["compared"] > 0


def main() -> None:
    with instance.running() as platform:
        serving.create_models(platform, MODELS, SLOW)
        platform.call("POST", "/users/bench/apps", {"name": "twin", "model_name": "net", "cpu": 0.5, "ram": 600})
        platform.wait_state("apps/twin", "ready")
        requests = serving.request_to(platform, "net", "net"), serving.request_to(platform, "twin", "net")
        found: dict[str, list[tuple[float, float]]] = {"none": [], "other": [], "slow": []}
        for _round in range(ROUNDS):
            found["none"].append(asyncio.run(in_turn(platform.base + 2, requests)))
            for model in ("other", "slow"):
                found[model].append(with_shadow(platform, model, requests))
    for name, rounds in found.items():
        shown = ", ".join(f"{one:.2f} and {twin:.2f}" for one, twin in rounds)
        print(f"shadow {name:<6} medians of the application and of its twin without one, ms: {shown}", flush=True)
    for name, words in (
        ("other", "a shadow, median beside none"),
        ("slow", "a shadow of a second, median beside none"),
    ):
        ratio = statistics.median(one / twin for one, twin in found[name])
        most = max(MOST_TIMES, 1 + MOST_MS / statistics.median(twin for _one, twin in found[name]))
        bars.note(words, ratio, "times", most=most)


if __name__ == "__main__":
    main()

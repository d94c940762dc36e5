"""An application under load while the number of its runs, or its model, changes: how long that takes, and what fails.

From 0 runs on the first request; from 1 to 4 under a step of the load; and moves to another model and back while
requests come without a pause: none may fail. `BENCH_MOVE_REQUESTS` (20000; 100000 before a release) is how many.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time

import bars
import instance
import serving

SLEEPING = """
import time

class Predictor:
    inputs = [{"name": "input", "datatype": "FP64", "shape": [-1, 4]}]

    def predict(self, inputs):
        time.sleep(0.05)
        return [{"name": "predict", "datatype": "INT64", "shape": [1], "data": [0]}]
"""
REQUESTS = int(os.environ.get("BENCH_MOVE_REQUESTS", "20000"))
CONNECTIONS, STEP = 16, 8
MOVE_EVERY_S, LIMIT_S = 4, 120
MODELS = {"net": "model.joblib", "other": "model.joblib", "slow": "predictor.py"}


def from_nothing(platform: instance.Instance) -> None:
    """Measure the first request to an application that sleeps."""
    platform.call("PUT", "/users/bench/apps/net/replicas", {"min": 0, "max": 1})
    instance.wait("sleep", lambda: platform.call("GET", "/users/bench/apps/net")["asleep"], 300)
    began = time.monotonic()
    asyncio.run(serving.one(platform.base + 2, serving.request_to(platform, "net", "net")))
    seconds = time.monotonic() - began
    platform.call("PUT", "/users/bench/apps/net/replicas", {"min": 1, "max": 1})
    print(f"the first request to an application without a run: {seconds:.2f} s", flush=True)
    bars.note("first request to an application that sleeps", seconds, "s", most=LIMIT_S)


def step_of_load(platform: instance.Instance) -> None:
    """Measure how long it takes from one run to four once the load needs them."""
    path = "/users/bench/apps/slow"
    body = {"name": "slow", "model_name": "slow", "cpu": 0.2, "ram": 300}
    platform.call("POST", "/users/bench/apps", {**body, "replicas": {"min": 1, "max": 4, "target": 2}})
    platform.wait_state("apps/slow", "ready")

    async def load() -> float:
        sending = asyncio.ensure_future(
            serving.send(platform.base + 2, serving.request_to(platform, "slow", "slow"), STEP, 60)
        )
        began = time.monotonic()
        while (await asyncio.to_thread(platform.call, "GET", path))["replicas"]["ready"] < 4:
            if sending.done():
                raise RuntimeError("there were no four runs within a minute")
            await asyncio.sleep(0.1)
        seconds = time.monotonic() - began
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending
        return seconds

    seconds = asyncio.run(load())
    print(f"from 1 to 4 runs under a step of {STEP} requests at once: {seconds:.2f} s", flush=True)
    bars.note("from 1 to 4 runs under a step of the load", seconds, "s", most=LIMIT_S)
    platform.call("DELETE", path)


class Load:
    """Requests on a number of connections, until there were enough; what is not answered with 200 has failed."""

    def __init__(self, platform: instance.Instance):
        self.port, self.request = platform.base + 2, serving.request_to(platform, "net", "net")
        self.sent = self.failed = 0

    async def run(self) -> None:
        await asyncio.gather(*(self._connection() for _number in range(CONNECTIONS)))

    async def _connection(self) -> None:
        writer = None
        while self.sent < REQUESTS:
            self.sent += 1
            try:
                if writer is None:
                    reader, writer = await asyncio.open_connection(instance.HOST, self.port)
                closes = await serving.exchange(reader, writer, self.request)
            except (RuntimeError, OSError, asyncio.IncompleteReadError) as problem:
                self.failed, closes = self.failed + 1, True
                print(f"failed: {str(problem)[:200]}", flush=True)
            if closes and writer is not None:
                writer.close()
                writer = None


def moves(platform: instance.Instance) -> None:
    """Move the application between two models while requests come; count those that fail."""
    load, path = Load(platform), "/users/bench/apps/net"

    async def both() -> int:
        sending, moved = asyncio.ensure_future(load.run()), 0
        while not sending.done():
            model = ("other", "net")[moved % 2]
            await asyncio.to_thread(platform.call, "PUT", f"{path}/rollout", {"model_name": model})
            while (await asyncio.to_thread(platform.call, "GET", path))["rollout"] is not None:
                await asyncio.sleep(0.2)
            moved += 1
            await asyncio.wait({sending}, timeout=MOVE_EVERY_S)
        await sending
        return moved

    moved = asyncio.run(both())
    print(f"{load.sent} requests during {moved} moves to another model: {load.failed} failed", flush=True)
    bars.note(f"failed of {load.sent} requests during {moved} moves", load.failed, "", most=0)


def main() -> None:
    with instance.running(MLP_APP_IDLE_S="5") as platform:
        serving.create_models(platform, MODELS, SLEEPING)
        from_nothing(platform)
        step_of_load(platform)
        moves(platform)


if __name__ == "__main__":
    main()

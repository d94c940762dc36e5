"""Applications: from POST to ready; a small model through the gateway, its server by itself, and under MLServer.

The model is a scikit-learn classifier of four features, one row in each request, by the Open Inference Protocol as
JSON. The load generator shares the machine's cores with the servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import bars
import instance
import peers

MLSERVER = ("mlserver==1.7.1", "mlserver-sklearn==1.7.1")
MAKE = """
import sys, joblib, numpy
from sklearn.linear_model import LogisticRegression
x = numpy.random.default_rng(7).normal(size=(300, 4))
joblib.dump(LogisticRegression().fit(x, (x.sum(axis=1) > 0).astype(int)), sys.argv[1])
"""
TENSOR = {"name": "input", "datatype": "FP64", "shape": [1, 4], "data": [0.5, 1.5, -1.0, 2.0]}
# MLServer gives only `predict` unless asked; so both are asked for the same.
BODY = json.dumps({"inputs": [TENSOR], "outputs": [{"name": "predict"}]}).encode()
DEPLOYMENTS = 5
CONNECTIONS = (1, 16, 128)
SECONDS = 4
READY = f"http://{instance.HOST}:{{port}}/v2/models/net/ready"


def deploy(platform: instance.Instance) -> dict:
    """Create a model and an application, print how long each took from POST to `ready`, and return the application."""
    with tempfile.TemporaryDirectory() as folder:
        platform.request("PUT", "/data/bench/.home/model.joblib", model_file(Path(folder)).read_bytes())
    began = time.monotonic()
    platform.call("POST", "/users/bench/models", {"name": "net", "src": "home/model.joblib"})
    platform.wait_state("models/net", "ready")
    print(f"POST of the model to ready            {time.monotonic() - began:6.2f} s   (copied, loaded in a run)")
    times = []
    for number in range(DEPLOYMENTS):
        name = "net" + "abcdefgh"[number]
        began = time.monotonic()
        platform.call("POST", "/users/bench/apps", {"name": name, "model_name": "net", "cpu": 1, "ram": 600})
        app = platform.wait_state(f"apps/{name}", "ready")
        times.append(time.monotonic() - began)
        if number < DEPLOYMENTS - 1:
            platform.call("DELETE", f"/users/bench/apps/{name}")
            platform.wait_free()
    median = statistics.median(times)
    bars.note("POST of an application to ready", median, "s")
    print(f"POST of the application to ready      {median:6.2f} s   worst of {len(times)}: {max(times):.2f} s")
    return app


def model_file(folder: Path) -> Path:
    """Return the model's file, made in this folder."""
    subprocess.run([sys.executable, "-c", MAKE, str(folder / "model.joblib")], check=True)
    return folder / "model.joblib"


def measure(title: str, port: int, path: str, headers: dict[str, str]) -> dict[int, dict]:
    """Return requests per second and latencies (ms) by the number of connections."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {instance.HOST}:{port}", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(BODY)}", *(f"{key}: {value}" for key, value in headers.items())]
    request = ("\r\n".join(lines) + "\r\n\r\n").encode() + BODY
    results = {}
    for connections in CONNECTIONS:
        asyncio.run(send(port, request, connections, 1))
        times = sorted(asyncio.run(send(port, request, connections, SECONDS)))
        median, late = 1000 * times[len(times) // 2], 1000 * times[int(len(times) * 0.99)]
        results[connections] = {"per_second": len(times) / SECONDS, "median_ms": median, "p99_ms": late}
        rate = f"{len(times) / SECONDS:7.0f} /s   median {median:7.2f} ms   p99 {late:7.2f} ms"
        print(f"{title:<30} {connections:3} concurrent {rate}", flush=True)
    return results


async def send(port: int, request: bytes, connections: int, seconds: float) -> list[float]:
    """Return the seconds of each request; each connection sends one after the other."""
    end = time.perf_counter() + seconds
    by_connection = await asyncio.gather(*(_connection(port, request, end) for _ in range(connections)))
    return [duration for times in by_connection for duration in times]


async def _connection(port: int, request: bytes, end: float) -> list[float]:
    reader, writer = await asyncio.open_connection(instance.HOST, port)
    times = []
    while (began := time.perf_counter()) < end:
        closes = await exchange(reader, writer, request)
        times.append(time.perf_counter() - began)
        if closes:  # as nginx does after a thousand
            writer.close()
            reader, writer = await asyncio.open_connection(instance.HOST, port)
    writer.close()
    return times


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bool:
    """Send a request and read its answer; return whether the connection is closed then. Raises RuntimeError for another
    answer than 200.
    """
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if not head.startswith(b"http/1.1 200"):
        raise RuntimeError(head.decode())
    await reader.readexactly(int(re.search(rb"content-length: *(\d+)", head)[1]))
    return b"connection: close" in head


async def one(port: int, request: bytes) -> float:
    """Return the seconds of a request on a connection of its own."""
    reader, writer = await asyncio.open_connection(instance.HOST, port)
    began = time.perf_counter()
    await exchange(reader, writer, request)
    writer.close()
    return time.perf_counter() - began


def request_to(platform: instance.Instance, app: str, model: str) -> bytes:
    """Return a request to an application's model through the gateway as bytes."""
    lines = [f"POST /bench/{app}/v2/models/{model}/infer HTTP/1.1", f"Host: {instance.HOST}:{platform.base + 2}"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(BODY)}"]
    lines += [f"Authorization: Bearer {platform.token}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + BODY


def create_models(platform: instance.Instance, sources: dict[str, str], predictor: str) -> None:
    """Create the models with these names of model.joblib or predictor.py, whose text is given, and serve `net`."""
    with tempfile.TemporaryDirectory() as folder:
        platform.request("PUT", "/data/bench/.home/model.joblib", model_file(Path(folder)).read_bytes())
    platform.request("PUT", "/data/bench/.home/predictor.py", predictor.encode())
    for name, source in sources.items():
        platform.call("POST", "/users/bench/models", {"name": name, "src": f"home/{source}"})
        platform.wait_state(f"models/{name}", "ready")
    platform.call("POST", "/users/bench/apps", {"name": "net", "model_name": "net", "cpu": 0.5, "ram": 600})
    platform.wait_state("apps/net", "ready")


@contextlib.contextmanager
def alone() -> Iterator[int]:
    """Serve the same model with our server, outside of a platform; return its port."""
    port = instance.free_port()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MLP_LOADING": str(instance.ROOT / "models_app/loading.py")}
    with tempfile.TemporaryDirectory() as folder:
        model_file(Path(folder))
        command = [sys.executable, str(instance.ROOT / "apps/serving/server.py"), "--model", folder, "--name", "net"]
        command += ["--host", instance.HOST, "--port", str(port)]
        with instance.server(command, READY.format(port=port), env=environment):
            yield port


@contextlib.contextmanager
def mlserver() -> Iterator[int | None]:
    """Serve the same model with MLServer, in one process as ours; return its port, None if it cannot be installed."""
    try:
        home = peers.peer("mlserver", *MLSERVER)
    except peers.NoPeer:
        yield None
        return
    ports = [instance.free_port() for _ in range(3)]
    settings = {"host": instance.HOST, "http_port": ports[0], "grpc_port": ports[1], "metrics_port": ports[2],
                "parallel_workers": 0, "debug": False, "cache_enabled": False}  # fmt: skip
    model = {"name": "net", "implementation": "mlserver_sklearn.SKLearnModel", "parameters": {"uri": "./model.joblib"}}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{home}:{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "settings.json").write_text(json.dumps(settings))
        Path(folder, "model-settings.json").write_text(json.dumps(model))
        subprocess.run([str(home / "python"), "-c", MAKE, str(Path(folder, "model.joblib"))], check=True)
        command = [str(home / "mlserver"), "start", folder]
        with instance.server(command, READY.format(port=ports[0]), env=environment, **instance.QUIET):
            yield ports[0]


def main() -> None:
    with instance.running() as platform:
        app = deploy(platform)
        path = "/v2/models/net/infer"
        token = {"Authorization": f"Bearer {platform.token}"}
        through = measure("through the gateway", platform.base + 2, f"/bench/{app['name']}{path}", token)
    with alone() as port:
        direct = measure("its server alone, at a port", port, path, {})
    added = through[1]["median_ms"] - direct[1]["median_ms"]
    print(f"the gateway adds {added:.2f} ms to a request (median, one at a time)", flush=True)
    for connections, found in through.items():
        bars.note(f"requests through the gateway, {connections} at once", found["per_second"], "/s")
        bars.note(f"p99 through the gateway, {connections} at once", found["p99_ms"], "ms")
    bars.note("what the gateway adds to a request", added, "ms")
    with mlserver() as port:
        if port:
            theirs = measure("MLServer, at its port", port, path, {})
            for most in CONNECTIONS:
                ratio = direct[most]["per_second"] / theirs[most]["per_second"]
                bars.note(f"beside MLServer, at the port, {most} at once", ratio, "times")
                gateway = through[most]["per_second"] / theirs[most]["per_second"]
                bars.note(f"beside MLServer, through the gateway, {most} at once", gateway, "times")
                late = through[most]["p99_ms"] / theirs[most]["p99_ms"]
                bars.note(f"p99 beside MLServer's, through the gateway, {most} at once", late, "times")
                print(f"relative to MLServer, at the port: {ratio:.1f}x requests/s ({most} concurrent)", flush=True)


if __name__ == "__main__":
    main()

"""Applications: from POST to ready; a small model through the gateway, its server by itself, and under MLServer.

The model is a scikit-learn classifier of four features, one row in each request, by the Open Inference Protocol as
JSON. The load generator shares the machine's cores with the servers.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import bars
import instance
import load
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
CONNECTIONS = (1, 16)
WAIT_S = 60


def wait(what: str, done, seconds: float = WAIT_S):
    """Return the first true result of `done()`. Raises SystemExit after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if result := done():
            return result
        time.sleep(0.02)
    raise SystemExit(f"{what}: timed out after {seconds} s")


def wait_ready(platform: instance.Instance, path: str) -> dict:
    """Return the model or application when it is ready."""

    def look() -> dict | None:
        row = platform.call("GET", path)
        if row["state"] == "error":
            raise SystemExit(f"{path}: {row['reason']}")
        return row if row["state"] == "ready" else None

    return wait(path, look)


def deploy(platform: instance.Instance) -> dict:
    """Create a model and an application, print how long each took from POST to `ready`, and return the application."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.joblib")
        subprocess.run([sys.executable, "-c", MAKE, str(file)], check=True)
        platform.request("PUT", "/data/bench/.home/model.joblib", file.read_bytes())
    began = time.monotonic()
    platform.call("POST", "/users/bench/models", {"name": "net", "src": "home/model.joblib"})
    wait_ready(platform, "/users/bench/models/net")
    print(
        f"POST of the model to ready            {time.monotonic() - began:6.2f} s   (copied, loaded in a run)",
        flush=True,
    )
    times = []
    for number in range(DEPLOYMENTS):
        name = "net" + "abcdefgh"[number]
        began = time.monotonic()
        platform.call("POST", "/users/bench/apps", {"name": name, "model_name": "net", "cpu": 1, "ram": 600})
        app = wait_ready(platform, f"/users/bench/apps/{name}")
        times.append(time.monotonic() - began)
        if number < DEPLOYMENTS - 1:
            platform.call("DELETE", f"/users/bench/apps/{name}")
            platform.wait_free()
    times.sort()
    bars.note("POST of an application to ready", times[len(times) // 2], "s")
    median = times[len(times) // 2]
    print(
        f"POST of the application to ready      {median:6.2f} s   worst of {len(times)}: {times[-1]:.2f} s", flush=True
    )
    return app


def measure(title: str, port: int, path: str, headers: dict[str, str]) -> dict[int, dict]:
    results = {}
    for connections in CONNECTIONS:
        sent = ("POST", path, {"Content-Type": "application/json", **headers}, BODY)
        load.send(instance.HOST, port, *sent, connections=connections, seconds=1)
        one = results[connections] = load.send(instance.HOST, port, *sent, connections=connections)
        print(
            f"{title:<30} {connections:3} concurrent {one['per_second']:7.0f} /s   median {one['median_ms']:7.2f} ms"
            f"   p99 {one['p99_ms']:7.2f} ms",
            flush=True,
        )
    return results


@contextlib.contextmanager
def alone() -> Iterator[int]:
    """Serve the same model with our server, outside of a platform; return its port."""
    code = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(socket.create_server((instance.HOST, 0))) as probe:
        port = probe.getsockname()[1]
        probe.close()
        subprocess.run([sys.executable, "-c", MAKE, str(Path(folder, "model.joblib"))], check=True)
        command = [sys.executable, str(code / "apps/serving/server.py"), "--model", folder, "--name", "net"]
        loading = str(code / "models_app/loading.py")
        process = subprocess.Popen(
            [*command, "--host", instance.HOST, "--port", str(port)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "MLP_LOADING": loading},
        )
        try:
            wait("our server", lambda: is_ready(port))
            yield port
        finally:
            process.terminate()
            process.wait(30)


@contextlib.contextmanager
def mlserver() -> Iterator[int | None]:
    """Serve the same model with MLServer, in one process as ours; return its port, None if it cannot be installed."""
    try:
        home = peers.peer("mlserver", *MLSERVER)
    except peers.NoPeer:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        ports = [stack.enter_context(socket.create_server((instance.HOST, 0))).getsockname()[1] for _ in range(3)]
        stack.close()
        settings = {"host": instance.HOST, "http_port": ports[0], "grpc_port": ports[1], "metrics_port": ports[2],
                    "parallel_workers": 0, "debug": False, "cache_enabled": False}  # fmt: skip
        model = {
            "name": "net",
            "implementation": "mlserver_sklearn.SKLearnModel",
            "parameters": {"uri": "./model.joblib"},
        }
        Path(folder, "settings.json").write_text(json.dumps(settings))
        Path(folder, "model-settings.json").write_text(json.dumps(model))
        subprocess.run([str(home / "python"), "-c", MAKE, str(Path(folder, "model.joblib"))], check=True)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{home}:{os.environ['PATH']}"}
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(
                [str(home / "mlserver"), "start", folder], env=environment, stdout=log, stderr=log
            )
        try:
            began = time.monotonic()
            wait("MLServer", lambda: process.poll() is not None or is_ready(ports[0]))
            if process.poll() is not None:
                print(f"MLServer exited: {Path(folder, 'log').read_text()[-500:]}", flush=True)
                yield None
                return
            print(f"MLServer, start to ready              {time.monotonic() - began:6.2f} s", flush=True)
            yield ports[0]
        finally:
            process.terminate()
            process.wait(30)


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{instance.HOST}:{port}/v2/models/net/ready", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


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
    bars.note("requests through the gateway, 16 at once", through[16]["per_second"], "/s")
    bars.note("what the gateway adds to a request", added, "ms")
    with mlserver() as port:
        if port:
            theirs = measure("MLServer, at its port", port, path, {})
            most = CONNECTIONS[-1]
            ratio = direct[most]["per_second"] / theirs[most]["per_second"]
            bars.note("beside MLServer, at the port, 16 at once", ratio, "times")
            gateway = through[most]["per_second"] / theirs[most]["per_second"]
            bars.note("beside MLServer, through the gateway", gateway, "times")
            print(
                f"relative to MLServer, at the port: {ratio:.1f}x requests/s ({most} concurrent)",
                flush=True,
            )


if __name__ == "__main__":
    main()

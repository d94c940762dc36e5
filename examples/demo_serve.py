"""The demo's serving part: a model from the job's output, an application from the model, and a request to it."""

from __future__ import annotations

import json
import os
import time
import urllib.parse
import urllib.request

MODEL, APP = "digits", "digits"
WAIT_S = 90


def make_model(platform, username: str, job: str, say) -> None:
    """Create a model from the job's `ckpt/model.pt` and wait until it has loaded."""
    platform.must("POST", f"users/{username}/models", {"name": MODEL, "src": f"jobs/{job}/ckpt/model.pt"})
    model = until_ready(platform, f"users/{username}/models/{MODEL}")
    say(f"  {model['size'] / 1e6:.1f} MB, {model['format']}, from {model['src']}")


def deploy(platform, username: str, say) -> str:
    """Deploy the model as an application and return its address."""
    body = {"name": APP, "model_name": MODEL, "cpu": 0.5, "ram": 1024}
    platform.must("POST", f"users/{username}/apps", body)
    until_ready(platform, f"users/{username}/apps/{APP}")
    base = f"{gateway(platform.url)}/{username}/{APP}"
    say(f"  it is ready at {base}/v2")
    return base


def gateway(url: str) -> str:
    """Return the application gateway's address: MLP_APP_URL, else the next port of the gateway's host."""
    given = os.environ.get("MLP_APP_URL")
    address = urllib.parse.urlsplit(url)
    return given.rstrip("/") if given else f"{address.scheme}://{address.hostname}:{(address.port or 80) + 1}"


def ask(platform, base: str, picture: list[float], say) -> int:
    """Send one picture of a digit through the application gateway and return the digit that the model sees."""
    about = call(platform, f"{base}/v2/models/{MODEL}")
    name = about["inputs"][0]["name"] if about.get("inputs") else "input"
    tensor = {"name": name, "shape": [1, len(picture)], "datatype": "FP32", "data": picture}
    began = time.monotonic()
    answer = call(platform, f"{base}/v2/models/{MODEL}/infer", {"inputs": [tensor]})
    took = time.monotonic() - began
    scores = answer["outputs"][0]["data"]
    digit = max(range(len(scores)), key=scores.__getitem__)
    say(f"  it sees a {digit}, after {1000 * took:.0f} ms")
    return digit


def clean_up(platform, username: str) -> None:
    for path in (f"users/{username}/apps/{APP}", f"users/{username}/models/{MODEL}"):
        platform.must("DELETE", path)
        end = time.monotonic() + WAIT_S
        while platform.call("GET", path)[0] == 200 and time.monotonic() < end:
            time.sleep(0.3)


def until_ready(platform, path: str) -> dict:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        row = platform.must("GET", path)
        if row["state"] == "ready":
            return row
        if row["state"] == "error":
            raise platform.failed(f"{path}: {row['reason']}")
        time.sleep(0.3)
    raise platform.failed(f"{path}: not ready within {WAIT_S} s")


def call(platform, url: str, body: dict | None = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {platform.token}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
        return json.loads(answer.read())

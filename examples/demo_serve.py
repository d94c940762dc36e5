"""The demo goes on: the job's output becomes a model, the model an application, and the application is asked."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request

MODEL, APP = "digits", "digits"
WAIT_S = 90


def make_model(platform, username: str, job: str, say) -> None:
    """`ckpt/model.pt` of the job as a model that loads."""
    platform.must("POST", f"users/{username}/models", {"name": MODEL, "src": f"jobs/{job}/ckpt/model.pt"})
    model = until_ready(platform, f"users/{username}/models/{MODEL}")
    say(f"  {model['size'] / 1e6:.1f} MB, {model['format']}, from {model['src']}")


def deploy(platform, username: str, say) -> str:
    """The model as an application; its address."""
    body = {"name": APP, "model_name": MODEL, "cpu": 0.5, "ram": 1024}
    platform.must("POST", f"users/{username}/apps", body)
    until_ready(platform, f"users/{username}/apps/{APP}")
    address = urllib.parse.urlsplit(platform.url)
    base = f"{address.scheme}://{address.hostname}:{address.port + 1}/{username}/{APP}"
    say(f"  it answers at {base}/v2")
    return base


def ask(platform, base: str, picture: list[float], say) -> int:
    """One picture of a digit through the application gateway; the digit that the model sees."""
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
        found = platform.must("GET", path)
        if found["state"] == "ready":
            return found
        if found["state"] == "error":
            raise platform.failed(f"{path}: {found['reason']}")
        time.sleep(0.3)
    raise platform.failed(f"{path}: not ready within {WAIT_S} s")


def call(platform, url: str, body: dict | None = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {platform.token}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
        return json.loads(answer.read())

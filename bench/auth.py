"""`/api/v1/auth` as the gateway asks it, beside an ordinary REST call with the same token, on a running platform.

Starts a platform of its own on a port base of its own; the load generator shares the machine's cores with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import load

HOST, BASE = "127.0.0.1", 35000
MANAGE = Path(__file__).resolve().parent.parent / "manage.py"
PASSWORD = "only for this benchmark"


def ask(path: str, body: dict | None = None, token: str = "") -> object:
    data = json.dumps(body).encode() if body else None
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(f"http://{HOST}:{BASE + 1}{path}", data, headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


def token_of(username: str) -> str:
    manager = urllib.request.HTTPPasswordMgrWithPriorAuth()
    manager.add_password(None, f"http://{HOST}:{BASE + 1}/", username, PASSWORD, is_authenticated=True)
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(manager))
    with opener.open(f"http://{HOST}:{BASE + 1}/api/v1/users/{username}/token", timeout=10) as answer:
        return json.loads(answer.read())


def wait_healthy(process: subprocess.Popen) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end and process.poll() is None:
        try:
            if ask("/healthz")["status"] == "ok":
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("the platform did not start")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="mlp-bench-") as root:
        environment = {**os.environ, "MLP_ROOT": root, "MLP_PORT_BASE": str(BASE), "MLP_ADMIN_PASSWORD": PASSWORD}
        process = subprocess.Popen([sys.executable, str(MANAGE), "up"], env=environment, stdout=subprocess.DEVNULL)
        try:
            wait_healthy(process)
            ask("/api/v1/users", {"username": "bench", "password": PASSWORD})
            headers = {"Authorization": f"Bearer {token_of('bench')}"}
            for name, port, path in (
                ("auth, at gunicorn", BASE + 3, "/api/v1/auth"),
                ("auth, through nginx", BASE + 1, "/api/v1/auth"),
                ("GET user, through nginx", BASE + 1, "/api/v1/users/bench"),
            ):
                load.get(HOST, port, path, headers, seconds=1)
                found = load.get(HOST, port, path, headers)
                print(
                    f"{name:<26} {found['per_second']:8.0f} /s   median {found['median_ms']:6.2f} ms"
                    f"   p99 {found['p99_ms']:6.2f} ms",
                    flush=True,
                )
        finally:
            process.terminate()
            process.wait(40)


if __name__ == "__main__":
    main()

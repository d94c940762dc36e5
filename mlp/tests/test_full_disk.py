"""A platform on a small disk of its own: a user's reports fill it as far as they may, and another program the rest.

It stays up, or comes back when there is room. The quick tests are test_disk_gate.py and the one of supervision.
"""

from __future__ import annotations

import base64
import json
import secrets
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from kernel.disk import LOW
from mlp.tests.patience import LIMIT_S
from supervision.tests.running import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.begins(0)]

SIZE_MIB, MINIMUM_MIB = 500, 150
WORD = "a-long-password-1"
SENDERS, MAX_RUNS = 4, 20  # of 30 MB each: many times what fits
LOG = "/mlflow/api/2.0/mlflow/runs/"


@pytest.fixture
def platform(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m,mode=755", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a disk of a given size takes the right to mount one")
    running = Platform(
        place / "root", MLP_DISK_MINIMUM_MIB=str(MINIMUM_MIB), MLP_DATABASE_LIMIT_MIB="4096", MLP_ADMIN_PASSWORD=WORD
    )
    running.root.mkdir()
    running.output = tmp_path / "output"
    try:
        running.start()
        yield running
        running.stop()
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def call(platform: Platform, path: str, body: dict | None = None, **headers: str) -> tuple[int, dict]:
    data = None if body is None else json.dumps(body).encode()
    with suppress(OSError):
        status, _kind, answer = platform.get(path, data=data, **{"Content-Type": "application/json"}, **headers)
        return status, json.loads(answer)
    return 0, {}


def log_in(platform: Platform, name: str) -> str:
    """Return the user's token, by the password."""
    pair = base64.b64encode(f"{name}:{WORD}".encode()).decode()
    status, token = call(platform, f"/api/v1/users/{name}/token", Authorization=f"Basic {pair}")
    assert status == 200, token
    return token


def report_until_refused(platform: Platform, token: str) -> int:
    """Log batches of 100 parameters of 6 kB until one is refused for want of room; return the status."""
    bearer = {"Authorization": f"Bearer {token}"}
    for _run in range(MAX_RUNS):
        status, answer = call(platform, LOG + "create", {"experiment_id": "0"}, **bearer)
        run = answer.get("run", {}).get("info", {}).get("run_id")
        for batch in range(50):
            if answer.get("message") == LOW:
                return status
            params = [{"key": f"{batch}.{number}", "value": secrets.token_hex(3000)} for number in range(100)]
            status, answer = call(platform, LOG + "log-batch", {"run_id": run, "params": params}, **bearer)
    raise AssertionError("all of it was stored")


def wait(condition) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_full_disk_takes_nobody_down(platform):
    reserve, leaders = platform.root / "run" / "reserve", platform.leaders()
    assert call(platform, "/api/v1/users", {"username": "mallory", "password": WORD})[0] == 201
    token = log_in(platform, "mallory")
    with ThreadPoolExecutor(SENDERS) as pool:
        refusals = list(pool.map(lambda _: report_until_refused(platform, token), range(SENDERS)))
    assert refusals == [507] * SENDERS
    assert shutil.disk_usage(platform.root).free > MINIMUM_MIB << 19, "what is kept free was used up"
    platform.wait_healthy()
    assert platform.leaders() == leaders, "a part has ended"
    log_in(platform, "admin")
    assert call(platform, "/api/v1/users", {"username": "another", "password": WORD})[0] == 503

    wait(reserve.exists)
    ballast = platform.root.with_name("ballast")
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    wait(lambda: not reserve.exists())
    platform.healed("database", platform.kill_part("database"))  # which needs room to start
    log_in(platform, "admin")

    with ballast.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    killed = platform.kill_part("database")
    platform.kill(*platform.pids("supervisor"))
    ballast.unlink()
    platform.healed("database", killed)
    for run in call(platform, "/api/v1/users/mallory/jobs", Authorization=f"Bearer {token}")[1]:
        remove(platform, token, run["name"])
    wait(lambda: call(platform, "/api/v1/users", {"username": "another", "password": WORD})[0] == 201)
    wait(reserve.exists)


def remove(platform: Platform, token: str, name: str) -> None:
    """Cancel and delete a run, as its user makes room."""
    for method, path in (("PUT", f"{name}:cancel"), ("DELETE", name)):
        address = f"http://127.0.0.1:{platform.base + 1}/api/v1/users/mallory/jobs/{path}"
        command = ["curl", "-sf", "-X", method, "-H", f"Authorization: Bearer {token}", address]
        wait(lambda command=command: subprocess.run(command, capture_output=True).returncode == 0)

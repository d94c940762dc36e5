"""A workspace beside a bare JupyterLab of the same release: from its start to the first executed cell, and the memory
that it takes while it is idle, without a kernel and with one.

The workspace's packages are installed before, as they are from its second start on. What it takes is the memory of all
processes of its run (Pss: pages that several share are divided among them). Without the package index there is neither.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import bars
import instance
import peers
import requests
import websocket

sys.path.insert(1, str(instance.ROOT))

from mlp.workspace_settings import WORKSPACE_PACKAGES

TIMES, WAIT_S, MIB = 3, 900, 1 << 20
PAGE = {"Accept": "text/html", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
MARK = "BENCH_BARE_JUPYTER"
OPEN = ["--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", "--IdentityProvider.token="]


class Lab:
    """JupyterLab at an address, as a browser uses it."""

    def __init__(self, base: str, session: requests.Session):
        self.base, self.session = base, session
        self.origin = "/".join(base.split("/")[:3])

    def opened(self) -> bool:
        """Open its page; return whether it answers."""
        with contextlib.suppress(requests.ConnectionError):
            return self.session.get(f"{self.base}/lab", headers=PAGE, timeout=60).ok
        return False

    def cell(self) -> None:
        """Start a kernel and wait until a cell has printed."""
        cookies = {cookie.name: cookie.value for cookie in self.session.cookies}
        headers = {"X-XSRFToken": cookies["_xsrf"], "Origin": self.origin, "Referer": f"{self.base}/lab"}
        made = self.session.post(f"{self.base}/api/kernels", headers=headers, timeout=60)
        made.raise_for_status()
        link = websocket.create_connection(
            f"{self.base.replace('http', 'ws', 1)}/api/kernels/{made.json()['id']}/channels", timeout=60,
            cookie="; ".join(f"{name}={value}" for name, value in cookies.items()), origin=self.origin,
        )  # fmt: skip
        header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "version": "5.3", "session": "bench",
                  "username": "bench"}  # fmt: skip
        content = {"code": "print(6 * 7)", "silent": False, "store_history": False, "user_expressions": {}}
        order = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        link.send(json.dumps(order))
        while json.loads(link.recv()).get("msg_type") != "stream":
            pass
        link.close()


def memory_of(mark: bytes) -> float:
    """Return the MiB of all processes whose environment has this entry."""
    total = 0
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                total += int((entry / "smaps_rollup").read_text().split("\nPss:")[1].split()[0]) << 10
    return total / MIB


def measured(lab: Lab, began: float, mark: bytes) -> tuple[float, float, float]:
    """Return the seconds since the start to the first cell, and the MiB without and with a kernel."""
    instance.wait(f"{lab.base} does not answer", lab.opened, WAIT_S)
    opened, before = time.monotonic() - began, memory_of(mark)
    again = time.monotonic()
    lab.cell()
    return opened + time.monotonic() - again, before, memory_of(mark)


@contextlib.contextmanager
def bare(folder: Path) -> Iterator[tuple[Lab, float]]:
    """Start JupyterLab alone; yield it and when that was. Raises NoPeer."""
    program = peers.peer("jupyterlab", *WORKSPACE_PACKAGES) / "jupyter-lab"
    port, began = instance.free_port(), time.monotonic()
    environment = {**os.environ, MARK: "1", "HOME": str(folder)}
    process = subprocess.Popen(
        [str(program), *OPEN, f"--port={port}"], cwd=folder, env=environment, start_new_session=True, **instance.QUIET
    )
    try:
        yield Lab(f"http://{instance.HOST}:{port}", requests.Session()), began
    finally:
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def workspace(platform: instance.Instance, session: requests.Session) -> Iterator[tuple[Lab, float]]:
    """Start the stopped workspace; yield it and when that was."""
    began = time.monotonic()
    platform.call("PUT", f"/users/{platform.user}/workspaces/lab:start")
    yield Lab(f"http://{instance.HOST}:{platform.base + 13}/{platform.user}/lab", session), began
    platform.call("PUT", f"/users/{platform.user}/workspaces/lab:stop")
    platform.wait_state("workspaces/lab", "stopped", WAIT_S)


def show(name: str, figures: list[tuple[float, float, float]]) -> None:
    """Print and record the medians."""
    seconds, idle, kernel = (sorted(column)[len(column) // 2] for column in zip(*figures, strict=True))
    bars.note(f"{name}: start to first cell", seconds, "s")
    bars.note(f"{name}: memory, idle", idle, "MiB")
    bars.note(f"{name}: memory, idle with a kernel", kernel, "MiB")
    print(f"  {name:16} {seconds:6.1f} s   {idle:6.0f} MiB   {kernel:6.0f} MiB with a kernel", flush=True)


def main() -> None:
    with instance.running() as platform:
        body = {"name": "lab", "cpu": 1, "ram": 2048}
        platform.call("POST", f"/users/{platform.user}/workspaces", body)
        platform.wait_state("workspaces/lab", "ready", WAIT_S)  # with its installation
        platform.call("PUT", f"/users/{platform.user}/workspaces/lab:stop")
        platform.wait_state("workspaces/lab", "stopped", WAIT_S)
        session = requests.Session()
        session.cookies.update({cookie.name: cookie.value for cookie in platform.browser()[1]})
        print(f"start to the first executed cell, memory {instance.load()}", flush=True)
        here, alone = [], []
        with tempfile.TemporaryDirectory(prefix="mlp-jupyter-") as folder:
            for _ in range(TIMES):
                with workspace(platform, session) as (lab, began):
                    here.append(measured(lab, began, b"MLP_WORKSPACE_NAME=lab"))
                with bare(Path(folder)) as (lab, began):
                    alone.append(measured(lab, began, f"{MARK}=1".encode()))
        show("a workspace", here)
        show("JupyterLab alone", alone)


if __name__ == "__main__":
    main()

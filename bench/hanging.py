"""The seconds of every kind of request while a server hangs, and until the platform is healthy after it goes on.

The goals are 3 s for an answer and 30 s for the health, on a machine that is not busy with other work.
supervision/tests/test_hanging.py checks what is answered.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import bars
import instance

sys.path.insert(0, str(instance.MANAGE.parent))
os.environ["DJANGO_SETTINGS_MODULE"] = "mlp.settings"
from supervision.tests.running import Platform
from supervision.tests.visitor import ADMIN_PASSWORD, Visitor

ANSWER_S, HEALTHY_S = 3.0, 30.0
SERVERS = ("valkey", "nats", "database")


def measure(platform: Platform, visitor: Visitor, server: str) -> list[bool]:
    """Stop the processes of a server, ask everything twice, and let them go on."""
    pids = platform.pids(server)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        answers = [(answer.took_s, name) for _ in range(2) for name, answer in visitor.ask_all().items()]
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    began = time.monotonic()
    platform.wait_healthy()
    healthy = time.monotonic() - began
    longest, name = max(answers)
    print(f"{server:<10} slowest answer {longest:5.2f} s ({name}), healthy after {healthy:5.2f} s", flush=True)
    return [
        bars.note(f"{server} hangs: the slowest answer", longest, "s", most=ANSWER_S),
        bars.note(f"{server} goes on: healthy after", healthy, "s", most=HEALTHY_S),
    ]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="mlp-bench-") as folder:
        platform = Platform(Path(folder, "root"), MLP_ADMIN_PASSWORD=ADMIN_PASSWORD)
        try:
            print(f"started after {platform.start():.1f} s {instance.load()}", flush=True)
            visitor = Visitor(platform)
            good = [result for server in SERVERS for result in measure(platform, visitor, server)]
        finally:
            if platform.process is not None and platform.process.poll() is None:
                platform.stop()
            platform.kill(*platform.everything())
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())

"""`python -m mlp.tests.forked_site LOG ARGUMENT…`: Daphne, started and stopped on request.

This process loads the platform once; each Daphne is a fork of it, which starts in a tenth of a second. Its input is one
command a line: `start`, `kill`, or `look`, which does nothing. It answers each with `running` or `ended`.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from pathlib import Path

from django.conf import settings

from mlp.tests.patience import LIMIT_S
from supervision.forking import Child, run_python
from supervision.launch import die_with_parent

# Loaded here, and not in each fork. What begins with a reactor is left out: its descriptors are not inherited.
LOADED = ("mlp.asgi", "autobahn.twisted.websocket", "twisted.web.http")


def main(log: Path, arguments: list[str]) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlp.settings")
    settings.WHITENOISE_MAX_AGE = 3600  # no file changes during a run: a browser needs to ask for it once
    for module in (*LOADED, settings.ROOT_URLCONF):
        import_module(module)
    child = None
    for line in sys.stdin:
        if line == "start\n":
            child = Child(lambda: serve(arguments), log)
        elif line == "kill\n":
            os.kill(child.pid, signal.SIGKILL)
            child.wait(LIMIT_S)
        print("running" if child and child.poll() is None else "ended", flush=True)


def serve(arguments: list[str]) -> None:
    die_with_parent(signal.SIGKILL)
    run_python([sys.executable, "-m", "daphne", *arguments, "mlp.asgi:application"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

"""`python -m mlp.tests.forks MODULE…`: starts programs in Python as forks of a process that has loaded these modules.

So supervisord starts the parts of the platform: to load it takes longer than most tests do. Its input is a request a
line, in JSON: a list begins a program, `[log, word, …]`, and is answered by its process id; a process id is answered by
its exit status, null while it runs. The tests' side is loaded.py.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import django

from supervision import forking
from supervision.launch import die_with_parent


def serve(log: str, command: list[str]) -> None:
    """Run the program in this process, with its output at the end of the log."""
    die_with_parent(signal.SIGKILL)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for stream in (1, 2):
        os.dup2(output, stream)
    forking.run_python(command)


def main(modules: list[str]) -> None:
    django.setup()
    forking.load(modules)
    children: dict[int, forking.Child] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if isinstance(request, list):
            log, *command = request
            child = forking.Child(lambda log=log, command=command: serve(log, command), Path(os.devnull))
            children[child.pid] = child
            while child.poll() is None and os.getpgid(child.pid) != child.pid:
                time.sleep(0.001)  # until it can be killed by its group
            print(child.pid, flush=True)
        else:
            print(json.dumps(children[request].poll()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

"""What the tests of language models share: starting chat.py, alone at a port."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from django.conf import settings

from apps.launching import SERVING
from mlp.tests.patience import LIMIT_S
from mlp.tests.servers import watch
from models_app.launching import PROGRAM

from .test_serving import ready

CHAT = SERVING / "chat.py"
LOG = "server.log"  # in the model's folder
SCRIPTED = Path(__file__).with_name("scripted_engine.py")


@contextlib.contextmanager
def chatting(folder: Path, *, python: str = "", program: Path = CHAT, name: str = "lm", **variables: str):
    """Yield the address of the server of a language model; it must stop when asked to at the end."""
    process, url = started(folder, python=python, program=program, name=name, **variables)
    yield url
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT_S) in (0, -signal.SIGTERM), (folder / LOG).read_text()[-2000:]


def started(
    folder: Path, *, python: str = "", program: Path = CHAT, name: str = "lm", wait: bool = True, **variables: str
) -> tuple[subprocess.Popen, str]:
    """Return the process of the server and its address, at which it answers; without `wait` it may not yet."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [python or settings.RUN_PYTHON, "-u", str(program), "--model", str(folder), "--name", name]
    command += ["--also", "older", "--host", "127.0.0.1", "--port", str(port)]
    plain = {"MLP_LOADING": str(PROGRAM), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "SERVING": str(SERVING)}
    log = folder / LOG
    with log.open("wb") as file:
        process = subprocess.Popen(command, env={**os.environ, **plain, **variables}, stdout=file, stderr=file)
    watch(process)
    url = f"http://127.0.0.1:{port}"
    end = time.monotonic() + LIMIT_S
    while wait and not ready(url):
        assert process.poll() is None, log.read_text()[-2000:]
        assert time.monotonic() < end, log.read_text()[-2000:]
        time.sleep(0.05)
    return process, url

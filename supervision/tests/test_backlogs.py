"""The servers behind nginx let a thousand connections wait: where the queue of a unix socket is full, connect() fails
at once, and nginx answers 503 (see test_hanging.py for the whole way through nginx).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import tempfile
from pathlib import Path

import pytest

from kernel import inner_http
from kernel.tests.nats_tools import until
from mlp.tests.servers import begin
from supervision import parts

MANY = 1000


@contextlib.contextmanager
def waiting(path: str, count: int):
    """Hold connections that nobody accepts."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            link = stack.enter_context(socket.socket(socket.AF_UNIX))
            link.setblocking(False)
            link.connect(path)  # raises where the queue is full
        yield


@pytest.fixture
def path():
    with tempfile.TemporaryDirectory() as folder:  # short enough for the address of a socket
        yield f"{folder}/socket"


def test_a_thousand_uploads_wait_for_the_data_service(path):
    async def busy() -> None:
        listener = await inner_http.listen(None, path)
        with waiting(path, MANY):  # the loop accepts nothing meanwhile
            listener.close()

    asyncio.run(busy())


@pytest.mark.long
def test_a_thousand_requests_wait_for_the_web_server(path, settings, tmp_path):
    settings.WEB_ADDRESS = path
    (tmp_path / "busy.py").write_text("application = print\n")
    given = [word if word != "mlp.wsgi:application" else "busy:application" for word in parts.web().command]
    # Nobody accepts: workers of this class begin with a pause that outlasts the test.
    (tmp_path / "pausing.py").write_text(
        "import threading\n"
        "from gunicorn.workers.base import Worker\n"
        "class Pausing(Worker):\n"
        "    def run(self):\n"
        "        threading.Event().wait()\n"
    )
    given[given.index("gthread")] = "pausing.Pausing"
    process = begin([sys.executable, *given[1:]], tmp_path / "log", cwd=tmp_path)
    until(lambda: Path(path).exists() or process.poll() is not None)
    assert process.poll() is None, (tmp_path / "log").read_text()
    with waiting(path, MANY):
        process.terminate()
    process.wait()

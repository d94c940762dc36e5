"""How the serving programs start: their arguments, the socket that they are handed, and the ASGI server.

A program serves on the socket that it is handed (LISTEN_FDS, as systemd does), else on the port. SIGTERM: no new
connections, requests in flight are finished.
"""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn
from caller import PlatformOnly, take_secret
from load import Server
from recorder import Recorder
from request_counter import Traffic
from token_counter import Tokens

STOP_S = 8
FIRST_HANDED_OVER = 3  # descriptor
BACKLOG = 4096  # connections that wait to be accepted; a full queue of a unix socket refuses at once


class Gone(Exception):
    """The caller has closed the connection."""


def handed_over() -> list[socket.socket] | None:
    """Return the socket that this process was started with, None where there is none."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") != "1":
        return None
    os.set_inheritable(FIRST_HANDED_OVER, False)  # not for programs that the model starts
    return [socket.socket(fileno=FIRST_HANDED_OVER)]


def serve(prepared: Callable[[Path, str, tuple[str, ...]], tuple]) -> None:
    """Serve what `prepared(folder, name, also)` returns: the ASGI application, which has the attributes `traffic` and
    `tokens`, and the format of its model. One that has processes has `close`, too.
    """
    parser = argparse.ArgumentParser()
    for option in ("--model", "--name"):
        parser.add_argument(option, required=True)
    parser.add_argument("--also", action="append", default=[], help="another name of the model in addresses")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    given, listening, secret = parser.parse_args(), handed_over(), take_secret()
    if listening is None and not given.host:
        parser.error("--host and --port are required where no socket was handed over")
    application, kind = prepared(Path(given.model), given.name, tuple(given.also))
    if os.environ.get("MLP_TOKENS"):
        application.tokens = Tokens(Path(os.environ["MLP_TOKENS"]))
    if os.environ.get("MLP_TRAFFIC"):
        application.traffic = Traffic(Path(os.environ["MLP_TRAFFIC"]))
        application.traffic.also.append(application.tokens.write)
        application.traffic.begin()
    where = f" on port {given.port}" if listening is None else ""
    print(f"serving {given.name} ({kind}){where}", flush=True)
    ended, served = [application.tokens.write], application
    if os.environ.get("MLP_RECORDS"):
        served = Recorder(application, Path(os.environ["MLP_RECORDS"]), secret)
        ended.append(served.spool.write)
    if hasattr(application, "close"):
        ended.append(application.close)
    front = PlatformOnly(served, secret)
    config = uvicorn.Config(
        front if secret else served,
        host=given.host or "localhost", port=given.port or 0, log_level="warning", access_log=False, lifespan="off",
        timeout_graceful_shutdown=STOP_S, server_header=False, proxy_headers=False, backlog=BACKLOG,
    )  # fmt: skip
    Server(config, front.load, lambda: [write() for write in ended]).run(sockets=listening)

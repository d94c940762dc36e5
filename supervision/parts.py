"""The processes of the platform as data. Read by run.py; each is explained in docs/architecture.md."""

from __future__ import annotations

import functools
import sys

from django.conf import settings

from kernel.sockets import BACKLOG, Address
from supervision import health

from . import nginx, servers
from .part import Part

PYTHON = sys.executable
MANAGE = str(settings.BASE_DIR / "manage.py")
# What the parts in Python import; `up` loads it once. Left out is what looks at its process when it is imported
# (gunicorn keeps the working folder, daphne.server opens files), and torch, which is large.
LOADED = (
    "mlp.wsgi",
    "mlp.asgi",
    "mlp.urls",
    "aiops.management.commands.aiops",
    "datasets.management.commands.data",
    "mlp.management.commands.reconcile",
    "mlp.management.commands.worker",
    "tracking.management.commands.ingest",
)
WEB_WORKERS = 2
WEB_THREADS = 8


def platform_parts() -> list[Part]:
    """Return the parts in the order of their start."""
    ours = [web(), websockets(), data(), *workers(), *listeners(), *ending_first()]
    return [*servers.embedded(), *ours, front()]


def _python(name: str, arguments: list[str], stage: str, **options) -> Part:
    environment = {
        "PYTHONPATH": str(settings.BASE_DIR),
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        "DJANGO_SETTINGS_MODULE": "mlp.settings",
        "MLP_ROOT": str(settings.MLP_ROOT),
        "MLP_PART": name,
    }
    return Part(name, [PYTHON, *arguments], stage, loaded=True, environment=environment, **options)


def _serving(name: str, arguments: list[str], address: Address, **options) -> Part:
    """Return a part that nginx passes requests to."""
    ready = functools.partial(health.answers, address, "/healthz/live")
    return _python(name, arguments, "front", ports=servers.ports(address), ready=ready, **options)


def web() -> Part:
    """Return the web server: REST, pages, admin. Loaded once and then forked: half the start-up time, and a killed
    worker is replaced at once.
    """
    address = settings.WEB_ADDRESS
    bind = servers.authority(*address) if isinstance(address, tuple) else f"unix:{address}"
    arguments = ["-m", "gunicorn", "mlp.wsgi:application", "--bind", bind, "--backlog", str(BACKLOG)]
    arguments += ["--preload", "--worker-class", "gthread"]
    arguments += ["--workers", str(WEB_WORKERS), "--threads", str(WEB_THREADS)]
    # A worker whose main loop stands still for the time-out is replaced; how long its requests take does not matter.
    # Longer than nginx keeps idle connections, so that nginx never uses a closed one.
    arguments += ["--keep-alive", "75", "--timeout", "30", "--graceful-timeout", "3", "--limit-request-line", "8190"]
    arguments += ["--no-control-socket", "--log-level", "warning"]
    return _serving("web", arguments, address)


def websockets() -> Part:
    address = settings.WEBSOCKET_ADDRESS
    place = ["-b", address[0], "-p", str(address[1])] if isinstance(address, tuple) else ["-u", address]
    arguments = ["-m", "mlp.websockets", *place, "--no-server-name", "--proxy-headers"]
    # Daphne's own 5 s are over before the last of a thousand handshakes has had its turn. A slow client cannot use them
    # up: nginx reads its request.
    arguments += ["--websocket_connect_timeout", "60"]
    # -v 0: no access log, which would contain tokens; nginx writes one.
    arguments += ["--application-close-timeout", "2", "-v", "0", "mlp.asgi:application"]
    # Daphne may ignore SIGTERM while clients are connected.
    # An open one would keep the gateway from ending, so it ends at the same time.
    return _serving("websockets", arguments, address, stop_wait_s=2, lively=True, first=True)


def data() -> Part:
    """Return the process that takes the uploads which nginx has spooled."""
    return _serving("data", [MANAGE, "data"], settings.DATA_ADDRESS, lively=True)


def workers() -> list[Part]:
    return [
        _python("worker", [MANAGE, "worker", "launches", "default", "files", "--threads", "8"], "background"),
        _python("worker-gpu", [MANAGE, "worker", "gpu", "--threads", "1"], "background"),
    ]


def command(name: str, stage: str) -> Part:
    return _python(name, [MANAGE, name], stage)


def listeners() -> list[Part]:
    """Return the processes that ingest metrics; Kafka's only where a broker is configured."""
    parts = [command("ingest", "front")]
    if settings.KAFKA_URL:
        parts.append(command("kafka", "front"))
    return parts


def ending_first() -> list[Part]:
    return [command("aiops", "background"), command("reconcile", "background")]


def front() -> Part:
    return Part(
        "gateway",
        nginx.command(),
        "front",
        ports=nginx.ports(),
        ready=health.check_gateway,
        plain=True,
        configure=nginx.render,
        program="nginx",
        stale=(nginx.writes_socket(),),
        stop_signal="QUIT",  # it listens no more, and answers what it has begun
        stop_wait_s=8,
        rest_signal="TERM",
        first=True,
    )

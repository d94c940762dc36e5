"""The machine below the platform: disk, memory, ports, clocks, versions."""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from kernel import bus, clock
from supervision import binaries, ports
from supervision import root as roots
from supervision.parts import platform_parts
from tracking.metrics.recording import STREAM

from .findings import Finding

LEAST_SHARE = 0.1  # of disk space, inodes, memory
LEAST_MEMORY_MIB = 512
CLOCK_WARNING_S, CLOCK_PROBLEM_S = 1.0, 10.0
EMBEDDED = {"database": binaries.POSTGRES, "valkey": binaries.VALKEY, "nats": binaries.NATS}


def disk() -> Iterator[Finding]:
    usage, info = shutil.disk_usage(settings.MLP_ROOT), os.statvfs(settings.MLP_ROOT)
    free_mib = usage.free >> 20
    summary = f"{free_mib} MiB of {usage.total >> 20} MiB are free on the disk of {settings.MLP_ROOT}"
    remedy = "delete datasets, jobs or models, empty the trash, or give it a larger disk"
    if free_mib < settings.DISK_MINIMUM_MIB:
        yield Finding("disk", "problem", f"{summary}, less than MLP_DISK_MINIMUM_MIB: nothing is stored", remedy)
    elif free_mib < settings.DISK_RESERVE_MIB:
        yield Finding("disk", "problem", f"{summary}, less than MLP_DISK_RESERVE_MIB: no run starts", remedy)
    else:
        full = usage.free < LEAST_SHARE * usage.total
        yield Finding("disk", "warning" if full else "ok", summary, remedy if full else "")
    if info.f_files and info.f_favail < LEAST_SHARE * info.f_files:
        yield Finding("disk", "warning", f"{info.f_favail} of {info.f_files} inodes are free", remedy)


def memory() -> Iterator[Finding]:
    with open("/proc/meminfo") as file:
        rows = {name: int(rest.split()[0]) >> 10 for name, _, rest in (line.partition(":") for line in file)}
    free, total = rows["MemAvailable"], rows["MemTotal"]
    low = free < max(LEAST_MEMORY_MIB, LEAST_SHARE * total / 2)
    yield Finding(
        "memory", "warning" if low else "ok", f"{free} MiB of {total} MiB are available",
        "lower the tenants' capacity, or end what else runs on the machine" if low else "",
    )  # fmt: skip


def free_ports() -> Iterator[Finding]:
    """Ask whether the ports of a stopped platform are free."""
    with roots.lock() as stopped:
        if not stopped:
            return
        try:
            ports.check(platform_parts())
        except ports.Taken as taken:
            what, _, remedy = str(taken).partition(". ")
            yield Finding("ports", "problem", what, remedy or "choose another MLP_PORT_BASE")
        else:
            yield Finding("ports", "ok", f"those from MLP_PORT_BASE={settings.MLP_PORT_BASE} are free")


def versions() -> Iterator[Finding]:
    """Ask for the programs of the embedded servers, of the version that made the database."""
    summary = [f"Python {platform.python_version()}"]
    made_by = settings.MLP_ROOT / "database" / "PG_VERSION"
    for name, server in EMBEDDED.items():
        if not settings.EMBEDDED[name]:
            continue
        major = int(made_by.read_text()) if name == "database" and made_by.exists() else 0
        try:
            program = binaries.find(server, major)
            summary.append(f"{server.title} {binaries.version_of(program, server.version_option, binaries.LIMIT_S)}")
        except ImproperlyConfigured as problem:
            what, _, remedy = str(problem).partition(". ")
            yield Finding("versions", "problem", what, remedy)
    yield Finding("versions", "ok", ", ".join(summary))


# --- clocks ----------------------------------------------------------------------------------------------------------
def clock_of_database() -> Iterator[Finding]:
    def ask() -> float:
        with connection.cursor() as cursor:
            cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
            return cursor.fetchone()[0]

    yield _compared("the database's server", ask)


def clock_of_nats() -> Iterator[Finding]:
    def ask() -> float:
        async def work(client: bus.Client) -> str:
            answer = await client.request(f"$JS.API.STREAM.INFO.{STREAM.name}", b"", timeout=5)
            return json.loads(answer.data)["ts"]

        whole, _, fraction = bus.call(work, 10).rstrip("Z").partition(".")
        return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")

    yield _compared("the NATS server", ask)


def clock_of_files() -> Iterator[Finding]:
    """Ask the file system, whose clock is another machine's where the root is on NFS."""

    def ask() -> float:
        with tempfile.NamedTemporaryFile(dir=settings.MLP_ROOT / "run") as file:
            file.write(b".")
            file.flush()
            return os.fstat(file.fileno()).st_mtime

    yield _compared("the file system", ask)


def clock_of_rounds() -> Iterator[Finding]:
    """Ask whether the clock has jumped ahead, so that nothing is deleted for its age."""
    ahead = clock.ahead_s()
    if ahead:
        what = f"the clock has jumped ahead by {ahead:.0f} s: nothing is deleted for its age by that, for a day at most"
        yield Finding("clocks", "problem", what, "set the clock, or confirm it: manage.py clock --confirm")
    else:
        yield Finding("clocks", "ok", "the clock has not jumped ahead")


def _compared(name: str, ask: Callable[[], float]) -> Finding:
    """Compare a clock with this machine's, as precisely as the time of the question allows."""
    ask()  # connect before
    before = time.time()
    there = ask()
    after = time.time()
    off_s = max(0.0, before - there, there - after)
    summary = f"the clock of {name} is {off_s:.1f} s away from this machine's"
    if off_s < CLOCK_WARNING_S:
        return Finding("clocks", "ok", summary)
    level = "problem" if off_s >= CLOCK_PROBLEM_S else "warning"
    return Finding("clocks", level, summary, "synchronise both with NTP (chrony, systemd-timesyncd)")

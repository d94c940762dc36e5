"""What a running job does at this moment, for REST and its page: its processes, and the use of the whole run.

The share of the CPU is measured over the time between two measurements. The earlier one is that of the previous call,
kept in the cache; the first call takes two.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePath

from django.core.cache import cache
from django.utils import timezone

import runners
from kernel import masking, sanitize
from kernel.errors import Fault
from kernel.locking import WrongState
from kernel.messages import Message, word
from runners.processes import Now, Process

from . import idle
from .models import Job, State

log = logging.getLogger(__name__)

Measurement = tuple[float, dict[str, float]]  # when, and the CPU seconds of each process until then
LISTED = 200  # processes of one answer: those that use the most
LONGEST = 500  # characters of a command
FIRST_S = 0.2  # between the two measurements of the first call
APART_S = 0.9  # between two measurements that are compared
KEPT_S = 60
LEAST_S = 0.05  # of a process that has just been started; the kernel counts hundredths
MIB = 1 << 20


@dataclass
class Row:
    """One process; `cpu` in cores, memory in MiB, `age` in seconds."""

    pid: int
    parent: int
    worker: int
    command: str
    cpu: float
    ram: float
    rss: float
    threads: int
    age: int


@dataclass
class Worker:
    """What one worker uses."""

    worker: int
    cpu: float
    ram: float
    processes: int | None = None  # None: not known


@dataclass
class Doing:
    """What a job does. `cpu` and `ram` are of all workers, `gpu` of the last sample, None without one."""

    at: datetime
    note: str
    limits: dict
    workers: list[Worker]
    processes: list[Row] = field(default_factory=list)
    left_out: int = 0
    gpu: float | None = None
    gpu_ram: float | None = None

    @property
    def cpu(self) -> float:
        return round(sum(worker.cpu for worker in self.workers), 3)

    @property
    def ram(self) -> float:
        return round(sum(worker.ram for worker in self.workers), 1)


def of_job(job: Job) -> Doing:
    """Return what a running job does. Raises WrongState for any other job, Fault when the runner does not answer."""
    if job.is_client:
        raise WrongState("the run is reported from elsewhere; the platform has no process of it")
    if job.state != State.RUNNING or not job.run_name:
        raise WrongState("the job is %(state)s; only a running job has processes", state=word(job.state))
    try:
        now = runners.get().now(job.run_name)
        before = _before(job.run_name, now)
        if before is None and now.processes:
            before = _measurement(now)
            time.sleep(FIRST_S)
            now = runners.get().now(job.run_name)
    except runners.RunnerError as problem:
        raise Fault(problem.msg) from None
    shares = _shares(now, before or _measurement(now))
    rows = sorted(now.processes, key=lambda process: (-shares[process.key], -process.ram, process.pid))
    secrets, sample = masking.secrets_in(job.env), idle.last_sample(job)
    return Doing(
        at=timezone.now(),
        note=now.note or ("" if rows else Message("The run has no process at this moment.")),
        limits={name: float(amount) for name, amount in job.needs.items()},
        workers=_workers(now, shares),
        processes=[_row(row, shares[row.key], secrets, job.reading is None) for row in rows[:LISTED]],
        left_out=max(0, len(rows) - LISTED),
        gpu=_number(sample, "gpu"),
        gpu_ram=_number(sample, "gpu_ram"),
    )


def _measurement(now: Now) -> Measurement:
    return now.at, {process.key: process.cpu_s for process in now.processes}


def _before(run: str, now: Now) -> Measurement | None:
    """Return the measurement that this one is compared with, None without one; keep this one for the next call.

    Two are kept: a call right after another one is not compared with that one.
    """
    kept = [each for each in _kept(run) if each[0] <= now.at]
    old = [each for each in kept if now.at - each[0] >= APART_S]
    if len(old) == len(kept) and now.processes:
        try:
            cache.set(f"processes:{run}", [*old[-1:], _measurement(now)], KEPT_S)
        except Exception as problem:  # only a cache
            log.warning("the processes of a run could not be cached: %s", problem)
    return next((each for each in reversed(old or kept) if now.at - each[0] >= FIRST_S), None)


def _kept(run: str) -> list[Measurement]:
    try:
        return cache.get(f"processes:{run}") or []
    except Exception as problem:  # only a cache
        log.warning("the cache does not respond; measuring the processes of a run twice: %s", problem)
        return []


def _shares(now: Now, before: Measurement) -> dict[str, float]:
    """Return the cores that each process has used since the earlier measurement, or since its own start."""
    then, used = before
    shares = {}
    for process in now.processes:
        known = process.key in used
        seconds = now.at - then if known else process.age_s
        shares[process.key] = max(0.0, process.cpu_s - used.get(process.key, 0.0)) / max(seconds, LEAST_S)
    return shares


def _workers(now: Now, shares: dict[str, float]) -> list[Worker]:
    if not now.processes:
        return [Worker(each.worker, round(each.cpu, 3), _mib(each.ram)) for each in now.workers]
    workers = []
    for number in sorted({process.worker for process in now.processes}):
        mine = [process for process in now.processes if process.worker == number]
        cpu, ram = sum(shares[process.key] for process in mine), sum(process.ram for process in mine)
        workers.append(Worker(number, round(cpu, 3), _mib(ram), len(mine)))
    return workers


def _row(process: Process, share: float, secrets: list[str], whole: bool) -> Row:
    """Return a process as it is shown; readers of a shared job get the name of the program without its arguments."""
    words = masking.command(process.words, secrets) if whole else [PurePath(process.words[0]).name]
    text = "".join(char if char.isprintable() else " " for char in sanitize.text(" ".join(words)))
    return Row(
        pid=process.pid,
        parent=process.parent,
        worker=process.worker,
        command=text if len(text) <= LONGEST else text[: LONGEST - 1] + "…",
        cpu=round(share, 3),
        ram=_mib(process.ram),
        rss=_mib(process.rss),
        threads=process.threads,
        age=int(process.age_s),
    )


def _mib(size: int) -> float:
    return round(size / MIB, 1)


def _number(sample: dict, name: str) -> float | None:
    value = sample.get(name)
    return value if isinstance(value, int | float) else None

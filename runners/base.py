"""What a runner is: the order (RunSpec), the facts (RunStatus) and the verbs. Implemented by `local` and `kubernetes`.

A runner knows nothing of the database, users or states. Every verb is idempotent by the run's name: a
message may come twice, late, or from two callers at once. A name stands for one run for ever, until
`forget` removes its records: a retried job takes a new name (`job-{pk}-{attempt}`).
"""

from __future__ import annotations

import contextlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kernel.messages import Message, storable

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

NO_SUCH_RUN = Message("no run of this name")
STOPPED = Message("stopped on request")  # begins the reason of a run that a caller has asked to end
State = Literal["unknown", "running", "exited", "lost"]


class RunnerError(Exception):
    """The runner could not do what was asked: a fault of the platform or the machine, worth another try."""

    passes = True


@dataclass(frozen=True)
class Mount:
    """A file or folder of the storage that a run sees: at `target` where the runner can place it (a mount
    namespace, a container), else at its own path. `read_only` is kept wherever the runner can keep it.
    """

    source: Path
    target: str
    read_only: bool = True


@dataclass(frozen=True)
class RunSpec:
    """One run, complete: nothing of the caller's process (environment, folder, open files) reaches it
    otherwise.

    `environment` is the whole environment: PATH, HOME and LANG are the caller's to set. The local runner
    adds only OMP_NUM_THREADS (from `cpu`, where not given) and MLP_RUN_ID (by which leftovers of a lost run
    are found). `grace_s` holds when the machine, not a caller, asks the run to stop. `log_limit` bounds the
    log file in bytes. `cwd` is the one folder that the run may write; `mounts` are what it sees besides.

    `labels` are for people and for what leads to a service: of an application `user`, `app` and `public` ("true" where
    no token is asked for).

    `kind` is "job" (runs to its end) or "service" (listens on `port` until it is stopped). `runtime` chooses
    the image where runs are containers. `owner` is the number of the user on whose behalf it runs: runs of two
    owners are kept apart, and each sees, of the platform's files, `cwd`, `mounts` and the interpreter with its
    packages only (the platform's own code is not among them: mount what a program needs of it). None is the
    platform's own program, which is trusted: it is bounded, and sees what the platform sees. `disk_mib` bounds
    what it may add to `cwd` and `processes` how many it may have (None: the runner's default). `workers` > 1
    starts that many copies with torchrun's variables (MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK, LOCAL_RANK,
    LOCAL_WORLD_SIZE); each is given all of `cpu`, `gpu` and `ram_mib`. The run ends when all have ended and fails,
    the others being stopped, when one fails.

    Into `usage` go, while it runs and where the runner can tell, JSON lines of what it uses: seconds `after` its start,
    `cpu` in cores since the line before, `ram` and `disk` in MiB, `gpu` in per cent, `gpu_ram` in MiB; lines are added,
    and each run's begin anew at small seconds. What a line lacks is not known.

    Paths in `command` and `environment` are those that the run sees: `Runner.place` gives them.
    """

    name: str
    command: list[str]
    cwd: Path
    environment: Mapping[str, str]
    log: Path
    cpu: float = 1
    gpu: int = 0
    ram_mib: int = 512
    grace_s: float = 10
    labels: Mapping[str, str] = field(default_factory=dict)
    log_limit: int = 256 << 20
    kind: Literal["job", "service"] = "job"
    runtime: str = "python"
    mounts: tuple[Mount, ...] = ()
    port: int | None = None
    owner: int | None = None
    disk_mib: int | None = None
    processes: int | None = None
    workers: int = 1
    usage: Path | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.workers < 1:
            raise ValueError(f"workers: {self.workers} cannot run")
        if (self.kind == "service") != (self.port is not None):
            raise ValueError("port: a service has one, a job has none")
        if not self.command or not all(isinstance(part, str) and "\0" not in part for part in self.command):
            raise ValueError("command: a list of strings, at least one, none with a null character")
        for key, value in self.environment.items():
            if not isinstance(key, str) or not isinstance(value, str) or not key or "=" in key or "\0" in key + value:
                raise ValueError(f"environment: {key!r} is not a name with a string value")


@dataclass(frozen=True)
class RunStatus:
    """The facts about a run. Times are seconds since 1970; `reason` can be stored, whatever a run or a cluster said.

    unknown  never started here, or forgotten
    running  started and not ended, also while it is being stopped
    exited   ended and recorded: exactly one of `exit_code` and `signal`, neither where it never began; why in `reason`
    lost     was started, is not there, and nobody saw it end (the machine went down, its watcher was killed)
    """

    state: State
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    started: float | None = None
    ended: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", storable(self.reason))

    @property
    def succeeded(self) -> bool:
        return self.state == "exited" and self.exit_code == 0


class Runner(ABC):
    """Starts runs, says how they are, ends them. All verbs are idempotent by name and safe from many
    processes.
    """

    @abstractmethod
    def start(self, spec: RunSpec) -> None:
        """Starts the run unless its name runs or has ended: then nothing happens. Returns once it is on
        record. Raises RunnerError when it could not be started; a command that cannot be executed is an
        exited run.
        """

    @abstractmethod
    def poll(self, name: str) -> RunStatus:
        """How the run is now."""

    @abstractmethod
    def stop(self, name: str, grace_s: float = 10) -> None:
        """Asks the run to end: SIGTERM, after `grace_s` SIGKILL to all of it. Returns at once; `poll` tells
        the end, which comes also when the caller dies. Of an unknown or ended run: nothing happens.
        """

    @abstractmethod
    def forget(self, name: str) -> None:
        """Removes the records of an ended, lost or unknown run. Raises RunnerError while it runs."""

    def let_go(self, name: str) -> None:
        """One step towards the end of a run that nobody owns: stops it at once, or forgets it when it has ended."""
        if self.poll(name).state == "running":
            self.stop(name, 0)
        else:
            self.forget(name)

    @abstractmethod
    def names(self) -> list[str]:
        """All runs that have records, running or not, sorted."""

    @abstractmethod
    def address(self, name: str) -> tuple[str, int] | None:
        """Where a service that runs can be reached, (host, port); None when there is nothing to reach."""

    @abstractmethod
    def place(self, source: Path, target: str) -> str:
        """Where a run with an owner finds the file or folder `source` of the storage, its `cwd` or one of its
        mounts: at `target` where the runner can place it, else at its own path.
        """

    @property
    @abstractmethod
    def python(self) -> str:
        """The Python that a run has, for `command`."""

    def environment(self, home: str) -> dict[str, str]:
        """Return the variables that every run is given: PATH with the run's Python first, HOME, LANG and TZ."""
        path = f"{os.path.dirname(self.python)}:/usr/local/bin:/usr/bin:/bin".removeprefix(":")
        return {"PATH": path, "HOME": home, "LANG": "C.UTF-8", "TZ": "UTC"}

    @property
    def many_workers(self) -> bool:
        """Whether a run may have more than one worker."""
        return False

    @property
    def listen(self) -> str:
        """The address on which a service listens, for `command`."""
        return "127.0.0.1"

    def can_listen(self, port: int) -> bool:
        """Whether a service could listen on `port` where it would run; where each has a network of its own, always."""
        return True

    def capacity(self) -> dict | None:
        """What all runs together may use: {"cpu": cores, "ram": MiB, "gpu": count}; None: this machine, whatever it
        has. Raises RunnerError when it cannot be found out now.
        """
        return None

    @contextlib.contextmanager
    def watch(self, changed: Callable[[], None]) -> Iterator[None]:
        """For the one process that looks at all runs again and again: meanwhile a runner that can keeps itself told
        of every change, calls `changed` (from another thread) when something moved, and answers `poll` from memory.
        """
        yield

    @abstractmethod
    def stop_all(self, grace: float = 10) -> list[str]:
        """Stops every run and waits for the ends; gives the names that would not end in time (none,
        normally).
        """


def check_name(name: str) -> str:
    """The name itself when it may name a run (it becomes a folder), else ValueError."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"name: {name!r} cannot name a run")
    return name

"""The interface of a runner: RunSpec, RunStatus and the verbs. Implemented by `local` and `kubernetes`.

A runner knows nothing of the database, users or states. Every verb is idempotent by the run's name: it may be called
twice, late, or by two callers at once. A name belongs to one run until `forget` removes its records: a retried job
takes a new name (`job-{pk}-{attempt}`).
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kernel.messages import Message, storable, under
from kernel.sockets import Address
from kernel.storage import without_root

from .attaching import Attached, Wanted
from .processes import Now

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

NO_SUCH_RUN = Message("no run of this name")
STOPPED = Message("stopped on request")  # how the reason begins when a caller has stopped the run
State = Literal["unknown", "running", "exited", "lost"]
Network = Literal["open", "platform", "none"]
Purpose = Literal["job", "check", "application", "workspace", "training"]
PURPOSES: tuple[Purpose, ...] = ("job", "check", "application", "workspace", "training")
NETWORKS: tuple[Network, ...] = ("none", "platform", "open")  # from the narrowest to the widest


def narrowest(*policies: str) -> str:
    """Return the policy that allows the least; empty ones say nothing."""
    return min(filter(None, policies), key=NETWORKS.index)


def log_of_worker(path: Path, worker: int) -> Path:
    """Return the path of a worker's log, where each has its own: `job.log` for worker 0, `job.worker-1.log` for the
    next. On one machine all write to one log, with their number before each line.
    """
    return path.with_name(f"{path.stem}.worker-{worker}{path.suffix}") if worker else path


NETWORK_WORDS: dict[Network, Message] = {
    "open": Message("the platform and the internet"),
    "platform": Message("the platform only"),
    "none": Message("none"),
}


@dataclass(frozen=True)
class Endpoint:
    """An address of the platform that runs reach at `port` of their own loopback interface, where they have one."""

    name: str
    port: int
    host: str
    to: int


@dataclass(frozen=True)
class Mount:
    """A file or folder that a run sees: at `target` where the runner has mount namespaces or containers, else at its
    own path. `read_only` is enforced where the runner can.
    """

    source: Path
    target: str
    read_only: bool = True


def omp_environment(cpu: float) -> dict[str, str]:
    """Return the variables of OpenMP for a run: as many threads as it has CPUs, which sleep while they wait.

    By default they spin, also for threads that do not get the CPU, on a machine that is not idle: a training of the log
    model, on two cores beside two busy loops, took more than 300 s instead of 58 s, and 105 s with one thread.
    """
    return {"OMP_NUM_THREADS": str(max(1, int(cpu))), "OMP_WAIT_POLICY": "passive"}


@dataclass(frozen=True)
class RunSpec:
    """One run. It inherits nothing else from the caller's process: no environment, folder or open file.

    `environment` is the whole environment (`Runner.environment` has the usual variables). The runner adds only those
    of `omp_environment`, where they are not given, and MLP_RUN_ID (which marks the processes of a lost run). `grace_s`
    is the grace period when the machine, not a caller, stops the run. `log_limit` is the largest size of the log in
    bytes. `cwd` is the only folder that the run may write; `mounts` are what else it sees.

    `labels` are for people, and for the Ingress of an application: `user`, `app`, `public` ("true": no token required).

    `kind` is "job" (runs to its end) or "service" (serves until it is stopped: on `port` where each has a network of
    its own, else on a socket that it is handed, see `Runner.listen`). `runtime` selects the image where runs are
    containers, unless `image` names one of `Runner.images`. `gpu_type` names the type of its GPUs (`gpu_types`).
    `owner` is the number of the user for whom it runs: runs of two owners are isolated, and see of the platform's
    files only `cwd`, `mounts` and the interpreter with its packages (not the platform's own code: mount what a
    program needs of it). None is a program of the platform, which is trusted: it has limits, and sees what the
    platform sees. `disk_mib` limits what it may add to `cwd` and `processes` their number (None: the runner's
    default). `workers` > 1 starts that many copies with torchrun's variables (MASTER_ADDR, MASTER_PORT, WORLD_SIZE,
    RANK, LOCAL_RANK, LOCAL_WORLD_SIZE), each with all of `cpu`, `gpu` and `ram_mib`. The run ends when all have
    ended; when one fails the others are stopped and the run fails.

    `purpose` says what the run is for, where an administrator treats these differently: "job" (also the installation of
    packages), "check" of a model, "application", "workspace", or "training" of a log model.

    `network` is what a run with an owner may reach: "open" the platform and the internet, "platform" the platform's
    gateways and NATS, "none" nothing. The workers of a run always reach each other.

    `usage` is the file for its resource usage, where the runner can measure it, as JSON lines: seconds `after` its
    start, `cpu` in cores since the line before, `ram` and `disk` in MiB, `gpu` in per cent, `gpu_ram` in MiB. Lines are
    appended, and each run starts again at 0 seconds. A missing field was not measured.

    Paths in `command` and `environment` are those that the run sees: `Runner.place` returns them.
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
    network: Network = "open"
    image: str = ""
    gpu_type: str = ""
    purpose: Purpose = "job"

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.workers < 1:
            raise ValueError(under("workers", Message("%(count)s cannot run", count=self.workers)))
        if (self.kind == "service") != (self.port is not None):
            raise ValueError(under("port", Message("a service has one, a job has none")))
        if not self.command or not all(isinstance(part, str) and "\0" not in part for part in self.command):
            problem = Message("a list of strings, at least one, none with a null character")
            raise ValueError(under("command", problem))
        for key, value in self.environment.items():
            if not isinstance(key, str) or not isinstance(value, str) or not key or "=" in key or "\0" in key + value:
                problem = Message("%(name)s is not a name with a string value", name=repr(key))
                raise ValueError(under("environment", problem))


@dataclass(frozen=True)
class RunStatus:
    """The state of a run. Times are Unix times; `reason` is sanitized, so it can be stored.

    unknown  never started here, or forgotten
    running  started and not ended, also while it is being stopped
    exited   ended and recorded: exactly one of `exit_code` and `signal`, neither where it never started; see `reason`
    lost     was started and is gone without a recorded end (the machine crashed, its supervisor was killed)
    """

    state: State
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    started: float | None = None
    ended: float | None = None
    worker: int = 0  # the one whose end this is, where each has a log of its own
    waits: bool = False  # it runs, but no process of it has started: a node, an image or a volume is waited for
    displaced: float | None = None  # since when the cluster has taken its processes away, for others

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", without_root(storable(self.reason)))

    @property
    def succeeded(self) -> bool:
        """Return whether the run has exited with code 0."""
        return self.state == "exited" and self.exit_code == 0


class Runner(ABC):
    """Starts, polls and stops runs. All verbs are idempotent by name and may be called by many processes."""

    ends_looked_for_s = 0.02  # between two looks at runs that are being stopped

    @abstractmethod
    def start(self, spec: RunSpec) -> None:
        """Start the run, unless one of that name runs or has ended. Returns once it is on record. Raises RunnerError
        when it could not be started; a command that cannot be executed is an exited run.
        """

    @abstractmethod
    def poll(self, name: str) -> RunStatus:
        """Return the state of the run. Raises RunnerError when it cannot be determined now."""

    @abstractmethod
    def stop(self, name: str, grace_s: float = 10) -> None:
        """Stop the run: SIGTERM, then SIGKILL to all its processes after `grace_s` seconds. Returns at once; the run
        ends also when the caller dies. Does nothing when the run is unknown or has ended.
        """

    @abstractmethod
    def forget(self, name: str) -> None:
        """Remove the records of an ended, lost or unknown run. Raises RunnerError while it runs."""

    def discard(self, name: str) -> None:
        """Kill a run, or forget it when it has ended; called again and again for a run that belongs to nothing."""
        if self.poll(name).state == "running":
            self.stop(name, 0)
        else:
            self.forget(name)

    def declare_lost(self, name: str, reason: Message) -> None:  # noqa: B027  a cluster knows which runs it has
        """Record that a run which was started is gone, and why, where the runner would not know by itself: its records
        were not restored from a backup. One that is on record stays as it is.
        """

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all runs on record, running or not, sorted."""

    @abstractmethod
    def usage_of(self, name: str) -> Path:
        """Return the file with the same lines as `RunSpec.usage`, as long as the run is on record; no run can write it,
        so decisions are made by it.
        """

    @abstractmethod
    def attach(self, name: str, wanted: Wanted) -> Attached:
        """Start a program in a run beside its scripts, with the same user, files, network and limits. Raises
        RunnerError when the run does not run, or the program cannot be started.
        """

    @abstractmethod
    def now(self, name: str) -> Now:
        """Return the processes of a run at this moment, or what its workers use where only that is known; nothing of a
        run that does not run. Raises RunnerError when it cannot be determined now.
        """

    @abstractmethod
    def address(self, name: str) -> Address | None:
        """Return the address of a running service, None for any other run."""

    @abstractmethod
    def place(self, source: Path, target: str) -> str:
        """Return the path at which a run with an owner sees `source`, its `cwd` or one of its mounts: `target` where
        the runner has mount namespaces or containers, else `source` itself.
        """

    @property
    @abstractmethod
    def python(self) -> str:
        """Return the path of the run's Python interpreter, for `command`."""

    def environment(self, home: str) -> dict[str, str]:
        """Return the variables that every run is given: PATH with the run's Python first, HOME, LANG and TZ."""
        path = f"{os.path.dirname(self.python)}:/usr/local/bin:/usr/bin:/bin".removeprefix(":")
        return {"PATH": path, "HOME": home, "LANG": "C.UTF-8", "TZ": "UTC"}

    def facts(self, runtime: str, image: str = "") -> dict[str, str]:
        """Return variables that tell a run where it is: MLP_NODE, its machine, and MLP_IMAGE, where it has one."""
        return {}

    @property
    def images(self) -> Mapping[str, str] | None:
        """Return the images that a run may name, by name; None where runs are no containers."""
        return None

    def gpu_products(self) -> Mapping[str, int]:
        """Return how many GPUs there are for runs, by product (`gpu_types`); under "" those of an unknown one.

        Raises RunnerError when it cannot be determined now.
        """
        return {}

    def need_gpus(self, kind: str, count: int) -> None:  # noqa: B027  what has none has none of a type either
        """Raise NoGpus unless a run that names this type of GPUs could be started now."""

    @property
    def adds_nodes(self) -> bool:
        """Return whether nodes of types that are not there come when runs wait for them."""
        return False

    @property
    def many_workers(self) -> bool:
        """Return whether a run may have more than one worker."""
        return False

    @property
    def starts_at_once(self) -> bool:
        """Return whether a run that is on record has a process, too: elsewhere it may wait (`RunStatus.waits`)."""
        return True

    @property
    def listen(self) -> str:
        """Return the host on which a service has to listen with its port; empty where it is handed a socket as
        descriptor 3, announced by LISTEN_FDS and LISTEN_PID as systemd does, and has to call listen().
        """
        return ""

    def endpoint(self, name: str) -> str | None:
        """Return the `host:port` at which runs reach the platform's "gateway" or "nats"; None: where users do."""
        return None

    def network(self, policy: Network) -> Message:
        """Return what a policy means for runs here, for users and administrators."""
        return NETWORK_WORDS[policy]

    def capacity(self) -> dict | None:
        """Return the capacity for all runs, {"cpu": cores, "ram": MiB, "gpu": count}; None means this machine.

        Raises RunnerError when it cannot be determined now.
        """
        return None

    def largest(self, purpose: str, gpu: int) -> dict | None:
        """Return what a single node has for a run with that purpose and as many GPUs, {"cpu": cores, "ram": MiB}; zeros
        without such a node, None where that is the whole capacity.

        Raises RunnerError when it cannot be determined now.
        """
        return None

    def reach(self, timeout_s: float) -> None:  # noqa: B027  this machine is there
        """Raise RunnerError unless what runs the runs answers within that time."""

    @contextlib.contextmanager
    def watch(self, changed: Callable[[], None], ended: Callable[[str], object] | None = None) -> Iterator[None]:
        """Watch all runs, in the one process that polls them all: meanwhile a runner that can subscribes to changes,
        calls `changed` (from another thread) after each, and answers `poll` from memory. One that knows which run has
        ended calls `ended` with its name before.
        """
        yield

    def watch_nodes(self) -> contextlib.AbstractContextManager[None]:
        """Watch meanwhile, where that is possible, whether a machine with replicas of the platform is lost."""
        return contextlib.nullcontext()

    def stop_all(self, grace: float = 10) -> list[str]:
        """Stop every run and wait for the ends; return the names of those that did not end in time."""
        left = [name for name in self.names() if self.poll(name).state == "running"]
        for name in left:
            self.stop(name, grace)
        deadline = time.monotonic() + grace + 10
        while left and time.monotonic() < deadline:
            time.sleep(self.ends_looked_for_s)
            left = [name for name in left if self.poll(name).state == "running"]
        return left


def check_name(name: str) -> str:
    """Return the name if it is legal for a run (it becomes a folder name). Raises ValueError."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(under("name", Message("%(name)s is not legal for a run", name=repr(name))))
    return name

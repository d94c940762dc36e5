"""Runs as processes on this machine, which outlive the server that started them. Chosen by `runners.get`.

Each run has a folder {root}/run/runs/{name} (mode 700). `shim/__main__.py` explains its files and processes,
`confine.py` the isolation. Two things that survive any kill are the truth: the lock file, held as long as any process
of the run is left, and the records `begun.json` and `exit.json`:

    lock held                    running (starting, ending)
    exit.json                    exited
    begun.json, lock free        lost
    none of them                 unknown: may be started

No process id is trusted anywhere: to stop a run is to write a request into its folder and to wake its shim by a FIFO.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from kernel import sanitize, sockets, storage
from kernel.messages import Message, restored

from . import attaching, confine, gpus, leftovers, networks, processes, spawning
from .attaching import Attached, Wanted
from .base import NO_SUCH_RUN, Endpoint, Network, Runner, RunSpec, RunStatus, check_name, omp_environment
from .errors import RunnerError
from .gpu_types import Named
from .shim import ends
from .shim.cgroup import Group

START_LIMIT_S = 30
PROCESSES = 1024  # default limit of tasks (each thread counts)
LOOPBACK = "127.0.0.1"


class LocalRunner(Runner):
    """See the module. Keeps nothing in memory: any number of processes may use the same folder at once.

    `confinement` is by default the best that works here, `devices` lists the GPUs, `endpoints` are what runs may reach
    of the platform, and their proxy to the internet. `disk_mib` is the default for runs with an owner. No run starts
    with less than `reserve_mib` of free disk space, and below that the runs that filled the disk are stopped.
    """

    def __init__(
        self,
        folder: Path,
        confinement: confine.Confinement | None = None,
        devices: Callable[[], list[gpus.Device]] = gpus.devices,
        disk_mib: int | None = None,
        reserve_mib: int = 0,
        endpoints: tuple[Endpoint, ...] = (),
        gpu_types: Named | None = None,
    ):
        self.folder = Path(folder).absolute()
        self.endpoints, self.gpu_types = endpoints, gpu_types or {}
        self._confinement, self.devices = confinement, devices
        self.disk_mib, self.reserve_mib = disk_mib, reserve_mib
        self._ends = str(self.folder.with_name("ends"))  # a pipe that says that a run has ended
        self.sockets = sockets.fitting(self.folder.with_name("sockets"), self.folder.parents[1])

    @property
    def confinement(self) -> confine.Confinement:
        """Return how runs with an owner are isolated."""
        return self._confinement or confine.decide()

    def start(self, spec: RunSpec) -> None:
        path = self.folder / spec.name
        deadline = time.monotonic() + START_LIMIT_S
        while not _on_record(path):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=True)
            with _lock(path, fcntl.LOCK_EX) as lock:
                # Nobody else starts it now, but it may be on record since the last check.
                if lock is not None and not _on_record(path):
                    self._begin(spec, path, lock)
                    return
            if time.monotonic() > deadline:
                raise RunnerError(
                    "run %(run)s: another caller has been starting it for %(seconds)s s",
                    run=spec.name,
                    seconds=START_LIMIT_S,
                )
            time.sleep(0.01)

    def _begin(self, spec: RunSpec, path: Path, lock: int) -> None:
        free_mib = shutil.disk_usage(path).free >> 20
        if free_mib < self.reserve_mib:
            raise RunnerError("the disk of the machine is nearly full: %(free)s MiB left", free=free_mib)
        wanted = spec.gpu * spec.workers
        with self._gpus(spec.gpu_type, wanted) as taken:
            if len(taken) < wanted:
                gpus.refuse(spec.gpu_type, wanted, len(taken))
            devices, locks = [device for device, _ in taken], [fd for _, fd in taken]
            values = _spec(spec, path, devices)
            values |= {"reserve_mib": self.reserve_mib, "ends": self._ends}
            values["socket"] = self._socket(spec)
            if spec.disk_mib is None and spec.owner is not None:
                values["disk_mib"] = self.disk_mib
            (path / "tmp").mkdir(mode=0o700, exist_ok=True)
            values |= self.confinement.of(spec, path, gpus.nodes(devices))
            network = networks.network_of(self.confinement, spec, self.endpoints)
            values["network"] = network | {"names": values.pop("names")}
            values["environment"] |= self.confinement.environment(spec, path)
            values["environment"] = networks.environment(values["environment"], values["network"])
            _write(path / "spec.json", values)
            if not Path(spec.log).is_relative_to(spec.cwd):  # in `cwd` the shim makes the folders
                Path(spec.log).parent.mkdir(parents=True, exist_ok=True)
            _spawn(path, lock, locks)

    def _gpus(self, kind: str, wanted: int) -> contextlib.AbstractContextManager:
        installed = gpus.candidates(self.devices(), kind, self.gpu_types) if wanted else []
        return gpus.acquire(self.folder.with_name("gpus"), installed, wanted)

    def gpu_products(self) -> Mapping[str, int]:
        return gpus.products(self.devices())

    def need_gpus(self, kind: str, count: int) -> None:
        with self._gpus(kind, count) as taken:
            if len(taken) < count:
                gpus.refuse(kind, count, len(taken))

    def _socket(self, spec: RunSpec) -> str:
        """Return the path at which the shim of a service listens, empty for a job."""
        if spec.kind != "service":
            return ""
        try:
            sockets.make_folder(self.sockets)
        except PermissionError as problem:
            raise RunnerError(
                "run %(run)s: it could not be put on record: %(problem)s", run=spec.name, problem=str(problem)
            )
        return str(self.sockets / sockets.of_run(spec.name))

    def poll(self, name: str) -> RunStatus:
        path = self.folder / check_name(name)
        # In this order: the record of the end is written before the lock is released.
        free = _is_free(path)
        ended, begun = _read(path / "exit.json"), _read(path / "begun.json")
        if ended is not None:
            reason = restored(ended.get("message"), ended["reason"])  # plain text in records of older releases
            return RunStatus("exited", ended["exit_code"], ended["signal"], reason, ended["started"], ended["ended"])
        if not free:
            if begun is not None:
                leftovers.kill_stuck(path, begun["shim"])
            return RunStatus("running", started=begun and begun["started"])
        if begun is None:
            return RunStatus("unknown", reason=NO_SUCH_RUN)
        Group((_read(path / "spec.json") or {}).get("cgroup", {}), begun["run_id"]).kill()
        leftovers.kill_of(begun["run_id"])
        reason = Message("the run no longer exists and its end was not recorded: it or the machine was killed")
        return RunStatus("lost", reason=restored(begun.get("lost"), reason), started=begun["started"])

    def stop(self, name: str, grace_s: float = 10) -> None:
        path = self.folder / check_name(name)
        if _is_free(path) or _read(path / "exit.json") is not None:
            return
        with contextlib.suppress(FileNotFoundError):  # forgotten meanwhile
            _write(path / "stop.json", {"grace_s": max(0.0, float(grace_s))})
        attaching.wake(path)  # a shim without its FIFO yet reads the request right after making it

    def forget(self, name: str) -> None:
        path = self.folder / check_name(name)
        deadline = time.monotonic() + 1
        while path.is_dir():
            with _lock(path, fcntl.LOCK_EX) as lock:
                if lock is not None:
                    spec = _read(path / "spec.json") or {}
                    # Left by a shim that was killed.
                    Group(spec.get("cgroup", {}), spec.get("run_id", "")).remove()
                    (self.sockets / sockets.of_run(name)).unlink(missing_ok=True)
                    # Renamed first: readers see all of the records or none.
                    gone = self.folder / f".{name}.{secrets.token_hex(6)}.forgotten"
                    path.rename(gone)
                    _remove(gone)
                    return
            if time.monotonic() > deadline:  # a reader holds the lock briefly, a run until it has ended
                raise RunnerError("run %(run)s: still running", run=name)
            time.sleep(0.01)

    def declare_lost(self, name: str, reason: Message) -> None:
        path = self.folder / check_name(name)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _on_record(path):
            begun = {"shim": 0, "run_id": secrets.token_hex(16), "started": None, "lost": reason.as_data()}
            _write(path / "begun.json", begun)

    def usage_of(self, name: str) -> Path:
        return self.folder / check_name(name) / "usage.jsonl"

    def attach(self, name: str, wanted: Wanted) -> Attached:
        path = self.folder / check_name(name)
        if _is_free(path) or _read(path / "exit.json") is not None:
            raise RunnerError("the run has ended")
        sockets.make_folder(self.sockets)
        return attaching.begin(path, self.sockets, wanted)

    def now(self, name: str) -> processes.Now:
        path = self.folder / check_name(name)
        begun, spec = _read(path / "begun.json") or {}, _read(path / "spec.json") or {}
        return processes.of_run(path, begun.get("shim", 0), spec.get("workers", 1))

    def names(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        for rest in self.folder.glob(".*.forgotten"):  # left by a caller that was killed meanwhile
            _remove(rest)
        paths = list(self.sockets.glob(f"{sockets.OF_RUN}*"))  # before the runs, whose folders are there first
        entries = sorted(entry.name for entry in self.folder.iterdir() if not entry.name.startswith("."))
        known = set(map(sockets.of_run, entries))
        for path in paths:
            if path.name not in known:
                path.unlink(missing_ok=True)
        return entries

    def address(self, name: str) -> sockets.Address | None:
        if self.poll(name).state != "running":
            return None
        spec = _read(self.folder / name / "spec.json") or {}
        if spec.get("socket"):
            return spec["socket"]
        # Started by a release whose services listened on their port; it goes on until it is restarted.
        return (LOOPBACK, spec["port"]) if spec.get("port") else None

    @contextlib.contextmanager
    def watch(self, changed: Callable[[], None], ended: Callable[[str], object] | None = None) -> Iterator[None]:
        def heard(names: list[str]) -> None:
            for name in names if ended else ():
                ended(name)
            changed()

        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ends.heard(self._ends, heard):
            yield

    def place(self, source: Path, target: str) -> str:
        return target if self.confinement.isolation == "bwrap" else str(source)

    @property
    def python(self) -> str:
        return self.confinement.python

    def facts(self, runtime: str, image: str = "") -> dict[str, str]:
        return {"MLP_NODE": socket.gethostname()}

    @property
    def many_workers(self) -> bool:
        return True

    def endpoint(self, name: str) -> str | None:
        endpoint = next((endpoint for endpoint in self.endpoints if endpoint.name == name), None)
        return f"{LOOPBACK}:{endpoint.port}" if endpoint and self.confinement.network else None

    def network(self, policy: Network) -> Message:
        return networks.words(self.confinement, policy)


def tail(path: Path, lines: int = 20, limit: int = 64 << 10) -> str:
    """Return the last lines of a log (within its last `limit` bytes), sanitized; empty when there is none.

    The run may write in the log's folder, so links are not followed, neither the folder nor the log: the target would
    be read with the platform's rights and shown as the reason of the end.
    """
    file = storage.open_file(path.parent.parent, f"{path.parent.name}/{path.name}")
    if file is None:
        return ""
    with file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - limit))
        last = deque(file.read(limit).decode(errors="replace").splitlines(), maxlen=lines)
        return sanitize.text("\n".join(last))


# --- a run's folder ---------------------------------------------------------------------------------------
def _on_record(path: Path) -> bool:
    return (path / "begun.json").exists() or (path / "exit.json").exists()


def _read(path: Path) -> dict | None:
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None


def _write(path: Path, value: dict) -> None:
    draft = path.with_name(f"{path.name}.{secrets.token_hex(6)}.part")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(value, file)
    draft.replace(path)


@contextlib.contextmanager
def _lock(path: Path, kind: int):
    """Yield the run's lock as an open file, None while another process has it. A child that inherits it keeps it."""
    try:
        fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (FileNotFoundError, NotADirectoryError):  # the folder was forgotten just now
        yield None
        return
    try:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            same = os.path.samestat(os.fstat(fd), os.stat(path / "lock"))
        except (BlockingIOError, FileNotFoundError):
            same = False
        yield fd if same else None
    finally:
        os.close(fd)


def _is_free(path: Path) -> bool:
    """Return whether no process of the run is left. Takes a shared lock, so that many callers may ask at once."""
    try:
        fd = os.open(path / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def _spec(spec: RunSpec, path: Path, devices: list[gpus.Device]) -> dict:
    run_id = secrets.token_hex(16)
    environment = omp_environment(spec.cpu) | dict(spec.environment) | {leftovers.RUN_ID: run_id}
    if devices or spec.owner is not None:  # a run without a GPU must see none
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(device.uuid for device in devices)
    if networks.RENDEZVOUS[1] in spec.environment or spec.workers > 1:
        environment |= dict(zip(networks.RENDEZVOUS, (LOOPBACK, str(_free_port())), strict=True))
    values = asdict(spec) | {"labels": dict(spec.labels), "environment": environment, "run_id": run_id}
    values |= {"cwd": str(spec.cwd), "log": str(Path(spec.log).absolute()), "processes": spec.processes or PROCESSES}
    values |= {"usage": str(Path(spec.usage).absolute()) if spec.usage else ""}
    return values | {"mounts": [asdict(mount) | {"source": str(mount.source)} for mount in spec.mounts]}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


def _spawn(path: Path, lock: int, locks: list[int]) -> None:
    """Start the shim, which inherits the locks; return when the run is on record. Raises RunnerError."""
    with open(path / "shim.log", "ab") as log:
        begun = spawning.SPAWNER.spawn(path, log.fileno(), lock, locks)
    if not begun:
        said = tail(path / "shim.log", 3) or "its supervisor did not start"
        raise RunnerError("run %(run)s: it could not be put on record: %(problem)s", run=path.name, problem=said)


def _remove(folder: Path) -> None:
    """Remove the folder; what remains is removed later."""
    with contextlib.suppress(OSError):
        storage.remove(folder)

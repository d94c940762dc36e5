"""How every part begins, in the process that supervisord (or `up`, for supervisord itself) has forked for it.

The process becomes the part after it has

1. made sure that the part dies with supervisord, however that dies,
2. waited a little when the part keeps ending at once (at most MAX_DELAY_S; it never gives up),
3. ended what a killed predecessor left behind, since that still holds the port,
4. recorded the process group by which the part's own leftovers are recognised.

A part's folder ({root}/run/parts/{part}) holds `launch.json` (the command, written by part.py), `group` and `starts`.
run.py uses the functions on leftovers.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from errno import EDQUOT, ENOSPC
from pathlib import Path

from . import forking

PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29
SHORT_LIFE_S = 10
MAX_DELAY_S = 5.0
LEFTOVER_GRACE_S = {"database": 10.0}  # it ends its sessions in order; others have nothing left to do
NOBODY = 65534
NOT_OURS = None, {}, -1


def become(folder: Path) -> None:
    """Become the part of this folder: by exec, or, where its code is loaded already, by running it here.

    Raises SystemExit when the part in Python has ended, or cannot start.
    """
    spec = read_spec(folder)
    die_with_parent(signal.SIGKILL)
    if spec["parent"] and Path(spec["parent"]).read_text().strip() != str(os.getppid()):
        sys.exit("supervisord is gone")  # it died before die_with_parent took effect
    take_turn(folder)
    if not end_leftovers(folder, LEFTOVER_GRACE_S.get(folder.name, 2.0)):
        sys.exit("a process of this part's predecessor does not stop")
    for path in spec["pid_files"]:
        remove_stale(Path(path), spec["cwd"])
    for path in spec.get("stale", ()):  # an earlier release has written none
        Path(path).unlink(missing_ok=True)
    write(folder / "group", str(os.getpgrp()))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    os.chdir(spec["cwd"])
    die_with_parent(getattr(signal, "SIG" + spec["death_signal"]) if spec["death_signal"] else 0)
    if spec["loaded"]:
        os.environ |= spec["environment"]
        forking.run_python(spec["command"])
    else:
        if spec["late_ms"]:
            allow_late_timers(spec["late_ms"])
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # ignored by Python, which the program would inherit
        os.execve(spec["command"][0], spec["command"], environment(spec))


def read_spec(folder: Path) -> dict:
    return json.loads((folder / "launch.json").read_text())


def environment(spec: dict) -> dict[str, str]:
    """Return this process's environment, or only the variables in `keep`; plus those of the part."""
    inherited = dict(os.environ)
    if spec["keep"] is not None:
        inherited = {name: inherited[name] for name in spec["keep"] if name in inherited}
    return inherited | spec["environment"]


def die_with_parent(number: int) -> None:
    """Have the kernel send this signal when the parent dies, even by SIGKILL. Survives an exec, but not a fork."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def allow_late_timers(milliseconds: int) -> None:
    """Let the kernel fire the timers of this process, and of what it starts, up to so late: those that are due at
    nearly the same time wake it once. Input wakes it as before. Survives an exec.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_TIMERSLACK, 1_000_000 * milliseconds, 0, 0, 0)


def take_turn(folder: Path) -> None:
    """Delay the start of a part that has ended shortly after its last starts; the longer, the more often it did."""
    last, quick = recent_starts(folder)
    quick = quick + 1 if 0 <= time.monotonic() - last < SHORT_LIFE_S else 0
    if quick > 1:  # once may be bad luck
        time.sleep(min(0.25 * 2 ** min(quick, 10), MAX_DELAY_S))
    write(folder / "starts", f"{time.monotonic()} {quick}")


def recent_starts(folder: Path) -> tuple[float, int]:
    """Return when the part was last started (monotonic), and how often in a row it ended shortly after its start."""
    try:
        last, quick = (folder / "starts").read_text().split()
        return float(last), int(quick)
    except (OSError, ValueError):
        return float("-inf"), 0


# --- leftovers -----------------------------------------------------------------------------------------------------
def leftovers(*folders: Path) -> Iterator[tuple[Path, int]]:
    """Return the running processes of these parts: (folder, open pidfd), which the caller closes.

    Two marks identify them: they work in the part's own folder, and they belong to the process group that the part was
    started as (or, for a part whose children leave the group, run its program). Names prove nothing.
    """
    parts = {}  # by working folder: one look at each process tells whose it is, however many parts there are
    for folder in folders:
        with contextlib.suppress(FileNotFoundError):  # never configured, never started
            spec = read_spec(folder)
            parts[spec["cwd"]] = folder, spec, group_of(folder)
    own = str(os.getpid())
    for entry in os.listdir("/proc") if parts else []:
        if not entry.isdigit() or entry == own:
            continue
        with contextlib.suppress(OSError):
            folder, spec, group = parts.get(os.readlink(f"/proc/{entry}/cwd"), NOT_OURS)
            if folder is None:
                continue
            pidfd = os.pidfd_open(int(entry))  # opened before the next checks, so that they are about this process
            if belongs(int(entry), spec, group):
                yield folder, pidfd
            else:
                os.close(pidfd)


def processes(*folders: Path) -> Iterator[tuple[Path, int]]:
    """Return the running processes of these parts, for who only looks at them: (folder, process id)."""
    for folder, pidfd in leftovers(*folders):
        try:
            pid = pid_of(pidfd)
        finally:
            os.close(pidfd)
        if pid > 0:
            yield folder, pid


def pid_of(pidfd: int) -> int:
    """Return the process's id, -1 when it has ended."""
    return int(Path(f"/proc/self/fdinfo/{pidfd}").read_text().split("Pid:")[1].split()[0])


def group_of(folder: Path) -> int:
    """Return the process group that the part was started as, -1 where it never was."""
    try:
        return int((folder / "group").read_text())
    except (OSError, ValueError):
        return -1


def living(*folders: Path) -> set[Path]:
    """Return the folders of the parts that have a running process."""
    occupied = set()
    for folder, pidfd in leftovers(*folders):
        occupied.add(folder)
        os.close(pidfd)
    return occupied


def belongs(pid: int, spec: dict, group: int) -> bool:
    try:
        if os.readlink(f"/proc/{pid}/cwd") != spec["cwd"]:
            return False
        if os.stat(f"/proc/{pid}").st_uid not in {os.geteuid(), NOBODY}:
            return False
        if os.getpgid(pid) == group:
            return True
        return bool(spec["program"]) and os.path.basename(os.readlink(f"/proc/{pid}/exe")) == spec["program"]
    except OSError:  # ended meanwhile, or not ours
        return False


def send(folder: Path, number: int) -> int:
    """Signal all of the part's processes and return how many there were."""
    count = 0
    for _, pidfd in leftovers(folder):
        count += 1
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, number)
        os.close(pidfd)
    return count


def end_leftovers(folder: Path, grace_s: float, patience_s: float = 5.0) -> bool:
    """Terminate the part's processes, kill them after the grace period, and return whether all have ended."""
    if not folder.is_dir() or not send(folder, 0):
        return True
    send(folder, getattr(signal, "SIG" + read_spec(folder)["stop_signal"]))
    start = time.monotonic()
    while time.monotonic() - start < grace_s + patience_s:
        time.sleep(0.02)
        if not send(folder, signal.SIGKILL if time.monotonic() - start > grace_s else 0):
            return True
    return False


def remove_stale(path: Path, cwd: str) -> None:
    """Remove a pid file of a killed PostgreSQL that worked in `cwd`. The next one does not start while any process has
    the number in the file.

    Leftovers have ended by now. The file stays only when its process still works in the data folder, or hides that.
    """
    try:
        pid = int(path.read_text().split()[0])
        if os.readlink(f"/proc/{pid}/cwd") == cwd:
            return
    except FileNotFoundError:
        pass  # no such file, or no such process
    except (ValueError, IndexError):
        pass  # partly written
    except PermissionError:
        return
    path.unlink(missing_ok=True)


def write(path: Path, text: str) -> None:
    """Write a small file atomically; on a full disk into the blocks that it has, or not at all: the part starts."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text)
        draft.replace(path)
    except OSError as problem:
        if problem.errno not in (ENOSPC, EDQUOT):
            raise
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
            with path.open("r+") as file:
                file.write(text)
                file.truncate()

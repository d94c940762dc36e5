"""The middle one of a run's three processes: starts the script, reaps what descends from it, kills what is
left.

Forked by `shim.py` (whose docstring tells the whole story); standard library only. Told what to do by
letters on a pipe: T = SIGTERM to the script's group, K = SIGKILL to everything. A broken pipe means that
the shim was killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MIB = 1 << 20
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def become_subreaper() -> None:
    """Processes below, when orphaned, become children of this one, in place of the machine's init."""
    if _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants(of: int) -> list[int]:
    """The processes below `of`, from /proc; those that come and go meanwhile may be missed."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as file:
                # pid (name with anything in it) state ppid …
                parent = int(file.read().rsplit(b")", 1)[1].split()[1])
                children.setdefault(parent, []).append(int(entry))
    found, level = [], [of]
    while level:
        level = [child for pid in level for child in children.get(pid, ())]
        found += level
    return found


def kill_below() -> None:
    """SIGKILL to everything below this process, again and again until nothing is left; all of it reaped."""
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


def main(spec: dict, log: int, commands: int, reports: int) -> None:
    """The guard's whole life; never returns."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # when to stop is the shim's to say
        os.setsid()
        become_subreaper()
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        script, failure = start(spec, log)
        os.close(log)
        if failure:
            report(reports, failed=failure)
        else:
            report(reports, script=script, started=time.time())
            status = watch(script, commands, woken)
            if status is not None:
                report(reports, status=status, ended=time.time())
        kill_below()
    except Exception as error:
        report(reports, failed=f"its guard failed: {error!r}")
        raise
    finally:
        if sys.exc_info()[0]:
            sys.excepthook(*sys.exc_info())
            kill_below()
        os._exit(0)


def report(pipe: int, **facts) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(pipe, json.dumps(facts).encode() + b"\n")


def watch(script: int, commands: int, woken: int) -> int | None:
    """The script's wait status; None when the shim was killed first."""
    while True:
        # Reap before waiting: the script may have ended before the signal handler was looked at.
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == script:
                    return status
                if not pid:
                    break
        ready = select.select([commands, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 512)
        if commands in ready:
            letters = os.read(commands, 64)
            if not letters:
                return None
            if b"T" in letters:
                for number in (signal.SIGTERM, signal.SIGCONT):
                    os.killpg(script, number)  # not reaped yet, so the number is still the script's
            if b"K" in letters:
                for pid in descendants(os.getpid()):
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)


def start(spec: dict, log: int) -> tuple[int, str]:
    """Forks and executes the script. Gives its process id, and what went wrong where it could not be
    executed.
    """
    guard = os.getpid()
    failed, failing = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            become_script(spec, log, guard, failing)
        finally:
            os._exit(127)
    os.close(failing)
    chunks = []
    while chunk := os.read(failed, 4096):
        chunks.append(chunk)
    os.close(failed)
    return pid, b"".join(chunks).decode(errors="replace")


def become_script(spec: dict, log: int, guard: int, failing: int) -> None:
    """Sheds everything of the guard and executes the command; returns only when that failed, which it has
    then told.
    """
    step = "its process"
    try:
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard:
            return
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)  # shells ignore some for their background jobs, Python others
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        step = f"its working folder {spec['cwd']}"
        os.chdir(spec["cwd"])
        step = "its limits"
        set_limits(spec)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        # Nothing else is open to the command; the pipe for its failure is closed by the execution.
        os.closerange(3, failing)
        os.closerange(failing + 1, 1 << 20)
        step = spec["command"][0]
        os.execvpe(spec["command"][0], spec["command"], spec["environment"])
    except OSError as error:
        os.write(failing, f"{step}: {error.strerror}".encode(errors="replace")[:1000])
    except Exception as error:
        os.write(failing, f"{step}: {error}".encode(errors="replace")[:1000])


def set_limits(spec: dict) -> None:
    """Bounds on each process of the run. What bounds the run as a whole (cgroups, disk) is the machine's to
    add.
    """
    lower(resource.RLIMIT_CORE, 0)
    if not spec["gpu"]:
        # Writable private memory, with room for what libraries reserve and never touch. The address space
        # would be a bad bound: torch maps far more than it uses, and the drivers of a GPU more data as
        # well.
        lower(resource.RLIMIT_DATA, (spec["ram_mib"] + max(512, spec["ram_mib"] // 2)) * MIB)
    if os.geteuid() != 0:  # for root the kernel does not count them
        lower(resource.RLIMIT_NPROC, 8192)
    with contextlib.suppress(OSError):
        os.nice(5)  # the servers answer first


def lower(limit: int, value: int) -> None:
    hard = resource.getrlimit(limit)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))

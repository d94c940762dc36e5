"""The guard, the second of a run's three processes: starts the script, reaps its descendants, kills what is left.

Started by the shim (see `__main__.py`), forked or executed by bubblewrap; standard library only, and little of it (see
`suppress.py`). Commands are letters on a socket: T = SIGTERM to the process groups of the scripts, K = SIGKILL to
everything, A = start a program beside the scripts (`attach.py`). Its end means that the shim was killed. A run has one
script for each worker.
"""

from __future__ import annotations

import _signal as signal  # the other module loads enum
import _socket as socket
import ctypes
import errno
import fcntl
import os
import select
import sys
import time

import landlock
import limits
import network
import privileges
import service_socket
import syscalls
from suppress import suppress

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TIOCSCTTY = 0x540E
CLOSED_BY_EXEC = 0x40000000  # MSG_CMSG_CLOEXEC
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def become_subreaper() -> None:
    """Make this process the parent of its orphaned descendants, instead of init. Raises OSError."""
    if _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants(of: int) -> list[int]:
    """Return the descendants of a process, from /proc; short-lived ones may be missed."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                children.setdefault(int(limits.stat_of(int(entry))[1]), []).append(int(entry))
    pids, level = [], [of]
    while level:
        level = [child for pid in level for child in children.get(pid, ())]
        pids += level
    return pids


def end_of(pid: int) -> int:
    """Return a descriptor that becomes readable when this child has ended; never where the kernel has no pidfd."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return os.pipe2(os.O_CLOEXEC)[0]


def kill_below() -> None:
    """Kill all descendants, again and again until none is left, and reap them."""
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        kill_once()
        time.sleep(0.002)


def kill_once() -> None:
    """Send SIGKILL to all descendants."""
    for pid in descendants(os.getpid()):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def main(spec: dict, logs: list[int], commands: int, reports: int) -> None:
    """Run the guard; never returns."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # the shim decides when to stop
        with suppress(PermissionError):  # it is a session leader already
            os.setsid()
        if spec["uid"] is not None or spec["isolation"] != "none":
            privileges.hide()
        become_subreaper()
        network.enter(spec)
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        scripts: list[int] = []
        failure = ""
        for rank, log in enumerate(logs):
            script, failure = start(spec, rank, log)
            scripts.append(script)
            os.close(log)
            if failure:
                break
        if spec["service_socket"] is not None:
            os.close(spec["service_socket"])  # the script's alone: nobody can connect once it has ended
            spec["service_socket"] = None
        if failure:
            report(reports, failed=failure)
        else:
            report(reports, script=scripts[0], started=time.time())
            end = Watch(spec, scripts, commands, woken, reports).run()
            if end is not None:
                report(reports, status=end[1], rank=end[0], ended=time.time())
        kill_below()
    except network.NoRoute as problem:
        report(reports, failed=str(problem))
        raise
    except Exception as error:
        report(reports, failed=f"its guard failed: {error!r}")
        raise
    finally:
        if sys.exc_info()[0]:
            sys.excepthook(*sys.exc_info())
            kill_below()
        os._exit(0)


def handed(spec: dict) -> list[int]:
    """Return the descriptors that the shim hands to the guard by the spec."""
    return [
        *spec["join"],
        spec["network"]["link"],
        *([] if spec["service_socket"] is None else [spec["service_socket"]]),
    ]


def report(pipe: int, **facts) -> None:
    """Send a report to the shim, as JSON: its module is loaded only where a fact is no number."""
    if all(type(value) in (int, float) for value in facts.values()):  # a bool is written otherwise
        line = ", ".join(f'"{name}": {value!r}' for name, value in facts.items()).join("{}")
    else:
        import json

        line = json.dumps(facts)
    with suppress(BrokenPipeError):
        os.write(pipe, line.encode() + b"\n")


class Watch:
    """Waits for the scripts to end, executes the shim's commands and measures the usage of the run."""

    def __init__(self, spec: dict, scripts: list[int], commands: int, woken: int, reports: int):
        self.spec, self.scripts, self.woken, self.reports = spec, scripts, woken, reports
        self.commands = socket.socket(fileno=commands)
        self.attached: dict[int, int] = {}  # the connection of each program that was started beside the scripts
        self.live = {pid: rank for rank, pid in enumerate(scripts)}
        self.failed: tuple[int, int] | None = None  # the first worker that failed, and its wait status
        self.deadline: float | None = None  # by when the other workers have to end
        self.meter = limits.Meter(spec)
        self.next_look = time.monotonic()

    def run(self) -> tuple[int, int] | None:
        """Return (the worker that decides about the run, its wait status); None when the shim was killed first."""
        while True:
            # Reap before waiting: a script may have ended before the signal was noticed.
            with suppress(ChildProcessError):
                while True:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                    if not pid:
                        break
                    if pid in self.live:
                        self.ended(self.live.pop(pid), status)
                    elif pid in self.attached:
                        self.detach(pid, status)
                    if not self.live:
                        return self.failed or (0, 0)
            followed = [self.commands, self.woken, *self.attached.values()]
            ready = select.select(followed, [], [], self.wait_s())[0]
            if self.woken in ready:
                os.read(self.woken, 512)
            if self.commands in ready:
                letters, given, _flags, _address = self.commands.recvmsg(64, 64, CLOSED_BY_EXEC)
                if not letters:
                    return None
                if letters == b"A":
                    self.attach(given)
                if b"T" in letters:
                    self.terminate()
                if b"K" in letters:
                    self.kill()
            for pid in [pid for pid, connection in self.attached.items() if connection in ready]:
                self.detach(pid)
            self.poll()

    def attach(self, given: list) -> None:
        """Start the program that the shim was asked for."""
        import attach

        pid, connection = attach.start(sys.modules[__name__], self.spec, given)
        if pid:
            self.attached[pid] = connection

    def detach(self, pid: int, status: int | None = None) -> None:
        """Tell who has started a program that it has ended; or hang up, when that one has gone."""
        connection = self.attached.pop(pid)
        if status is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGHUP)
                os.killpg(pid, signal.SIGCONT)
        else:
            with suppress(OSError):
                report(connection, status=status)
        os.close(connection)

    def ended(self, rank: int, status: int) -> None:
        """Record the end of a worker; the first failure stops the others."""
        if status and not self.failed:
            self.failed = rank, status
            if self.live:
                self.deadline = time.monotonic() + self.spec["grace_s"]
                self.terminate()

    def terminate(self) -> None:
        """Send SIGTERM to the scripts."""
        for script in self.live:
            for number in (signal.SIGTERM, signal.SIGCONT):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(script, number)  # not reaped yet, so the process id is still the script's

    def kill(self) -> None:
        """Kill everything. Who has started a program is not told its status: the end of the run ends it."""
        while self.attached:
            os.close(self.attached.popitem()[1])
        kill_once()

    def wait_s(self) -> float | None:
        """Return the seconds until the next deadline or look, None when there is neither."""
        ends = [end for end in (self.deadline, self.meter.pause and self.next_look) if end is not None]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def poll(self) -> None:
        """Kill the run when its deadline has passed or it exceeds a limit."""
        now = time.monotonic()
        if self.deadline is not None and now >= self.deadline:
            self.deadline = None
            self.kill()
        if self.meter.pause and now >= self.next_look:
            reason = self.meter.poll(descendants(os.getpid()))
            if reason:
                report(self.reports, over=reason)
                self.kill()
            self.next_look = time.monotonic() + self.meter.pause


# --- the script -----------------------------------------------------------------------------------------------
def start(spec: dict, rank: int, log: int) -> tuple[int, str]:
    """Fork and execute the script. Return (its process id, the error when it could not be executed)."""
    guard = os.getpid()
    failed, failing = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            null = os.open(os.devnull, os.O_RDONLY)
            become(spec, spec["command"], spec["environment"] | ranks(spec, rank), (null, log, log), guard, failing)
        finally:
            os._exit(127)
    os.close(failing)
    return pid, failure_of(failed)


def failure_of(failed: int) -> str:
    """Return why a child could not execute its command, "" when it has."""
    chunks = []
    while chunk := os.read(failed, 4096):
        chunks.append(chunk)
    os.close(failed)
    return b"".join(chunks).decode(errors="replace")


def become(
    spec: dict, command: list, environment: dict, streams: tuple[int, int, int], guard: int, failing: int
) -> None:
    """Drop everything of the guard and execute the command with these descriptors as input, output and errors, the
    first as its terminal where it is one; returns only after a failure, which was reported.
    """
    step = "its process"
    try:
        os.setsid()
        if os.isatty(streams[0]):
            fcntl.ioctl(streams[0], TIOCSCTTY, 0)
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)  # shells ignore some in background jobs, Python others
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        step = "its control group"
        for fd in spec["join"]:
            os.write(fd, b"0")
        step = "its limits"
        limits.set_limits(spec)
        for target, source in enumerate(streams):
            os.dup2(source, target)
        # The command inherits nothing but its socket; the pipe for failures is closed by exec.
        failing, first = (
            fcntl.fcntl(failing, fcntl.F_DUPFD_CLOEXEC, service_socket.HANDED_OVER + 1),
            service_socket.HANDED_OVER,
        )
        announced = {}
        if spec["service_socket"] is not None:
            announced, first = service_socket.hand_over(spec["service_socket"]), first + 1
        step = f"its working folder {spec['cwd']}"
        confine(spec)
        step = "its files"
        compare(spec.get("mounted", []))
        os.closerange(first, failing)  # after Landlock, which has its folders by descriptors
        os.closerange(failing + 1, 1 << 20)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # last: a change of user resets it
        if os.getppid() != guard:
            return
        step = command[0]
        os.execvpe(command[0], command, environment | announced)
    except OSError as error:
        os.write(failing, f"{step}: {error.strerror}".encode(errors="replace")[:1000])
    except Exception as error:
        os.write(failing, f"{step}: {error}".encode(errors="replace")[:1000])


def confine(spec: dict) -> None:
    """Set working folder, user and file access. The order matters: root may enter folders that the run's user may not,
    except inside of bubblewrap, where root lacks that capability.
    """
    isolation = spec["isolation"]
    if isolation != "bwrap":
        os.chdir(spec["inside"])
    if spec["uid"] is not None:
        privileges.become(spec["uid"], privileges.REACH[isolation])
    privileges.no_new_privileges()
    if isolation == "bwrap":
        os.chdir(spec["inside"])
    if isolation == "landlock":
        landlock.restrict(spec["read"], spec["write"], spec["held"])
    if spec["network"]["tcp"] is not None:
        landlock.restrict_tcp(spec["network"]["tcp"])
    if spec["network"]["kept"]:
        landlock.keep_ports(spec["network"]["kept"])
    if spec["uid"] is not None or isolation != "none":
        shares = isolation == "landlock"
        syscalls.restrict(shares_files=shares, shares_user=shares and spec["uid"] is None)


def compare(mounted: list[tuple[str, int, int]]) -> None:
    """Raise OSError unless what bubblewrap has mounted at each target is the file that was opened for it."""
    for target, device, inode in mounted:
        info = os.lstat(target)
        if (info.st_dev, info.st_ino) != (device, inode):
            raise OSError(errno.ESTALE, f"{target} was replaced while it was mounted")


def ranks(spec: dict, rank: int) -> dict[str, str]:
    """Return torchrun's variables for one of several workers on this machine."""
    if spec["workers"] == 1:
        return {}
    size = str(spec["workers"])
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}

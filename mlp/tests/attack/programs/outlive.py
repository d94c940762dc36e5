"""Leaves processes behind in every way, each of which holds the FIFO `held` open for as long as it lives."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time

from attempts import attempt, check, report

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NAME = 1, 36, 15
NEW_USER, NEW_PID, NEW_CGROUP, NEW_NS, NEW_NET = 0x10000000, 0x20000000, 0x02000000, 0x00020000, 0x40000000
CATCHABLE = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


def stay(name):
    """Go on for ever, whatever signal comes."""
    for number in CATCHABLE:
        with contextlib.suppress(OSError):
            signal.signal(number, signal.SIG_IGN)
    report(f"control: {name} runs", True)
    begun()
    while True:
        time.sleep(60)


def begun():
    """Say that this process is as it should be: at the end of `all_begun` nobody has `beginning` open."""
    with contextlib.suppress(OSError):
        os.close(beginning)


def child(name, *steps):
    """Fork a process that takes the steps and stays."""
    if os.fork() == 0:
        try:
            for step in steps:
                step()
            stay(name)
        except BaseException as problem:
            report(f"{name}: {problem}", False)
        finally:
            os._exit(0)


def again():
    """Continue in a child, so that the parent is the reaper of orphans."""
    if os.fork():
        os._exit(0)


def prctl(option, value=0):
    return lambda: LIBC.prctl(option, value, 0, 0, 0)


def unshare(flags):
    return lambda: check(LIBC.unshare(flags) == 0, "not allowed")


def leave_group():
    """Move to another control group, in any hierarchy that can be mounted or found."""
    unshare(NEW_USER | NEW_CGROUP | NEW_NS)()
    os.makedirs("/tmp/group", exist_ok=True)
    for kind in (b"cgroup2", b"cgroup"):
        for options in (b"none", b"pids", b"memory", b"cpu"):
            if LIBC.mount(kind, b"/tmp/group", kind, 0, None if kind == b"cgroup2" else options) == 0:
                check(not os.access("/tmp/group/cgroup.procs", os.W_OK), "its processes can be moved")
    raise PermissionError("no group that can be written")


def closed():
    """Close everything that its watchers could notice, but the FIFO."""
    os.chdir("/")
    os.environ.clear()
    os.dup2(held, 200)
    os.closerange(0, 200)


def stopped():
    begun()
    os.kill(os.getpid(), signal.SIGSTOP)


def zombies():
    """Leave processes whose parent never waits for them."""
    for _ in range(20):
        if os.fork() == 0:
            os._exit(0)


def helpers():
    """Ask other programs of the system to run something later."""
    for command in (
        ["systemd-run", "--user", "sleep", "600"],
        ["at", "now"],
        ["crontab", "-"],
        ["screen", "-dm", "sleep"],
    ):
        attempt(" ".join(command), lambda command=command: subprocess.run(
            command, input=b"* * * * * true\n", capture_output=True, timeout=5, check=True))  # fmt: skip


def guards():
    """Kill what watches over this run."""
    for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        if pid not in (os.getpid(), os.getppid()) or pid == 1:
            attempt(f"kill {pid}", os.kill, pid, signal.SIGKILL)
    attempt("kill the parent", os.kill, os.getppid(), signal.SIGKILL)
    attempt("kill everything", os.kill, -1, 0) if os.getuid() == 0 else None


os.mkfifo("held")
print("waiting for a reader", flush=True)
held = os.open("held", os.O_WRONLY)
os.set_inheritable(held, True)
all_begun, beginning = os.pipe()
guards()
helpers()
child("an orphan", os.setsid, again)
child("a double fork", again, os.setsid, again)
child("one without a signal at its parent's death", prctl(PR_SET_PDEATHSIG), again)
child("a reaper", prctl(PR_SET_CHILD_SUBREAPER, 1), again)
child("one that is stopped", again, stopped)
child("one with closed files", os.setsid, again, closed)
child("a parent of zombies", zombies)
child("a user namespace", unshare(NEW_USER), again)
child("a process namespace", unshare(NEW_USER | NEW_PID), again, os.setsid, again)
child("a network", unshare(NEW_USER | NEW_NET), again)
if os.fork() == 0:
    attempt("leave the control group", leave_group)
    os._exit(0)
attempt("make a group", os.mkdir, "/sys/fs/cgroup/mine")
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], pass_fds=[held], start_new_session=True)
begun()
os.read(all_begun, 1)  # returns when each of them has said so, or has ended
print("all started", flush=True)
stay("the job")

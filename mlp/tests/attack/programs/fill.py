"""Takes as much as it can get of one thing, named by the argument, and of each it holds on to what it has."""

import contextlib
import ctypes
import mmap
import os
import resource
import signal
import socket
import sys
import threading
import time

from attempts import attempt, check, report

LIBC = ctypes.CDLL(None, use_errno=True)
MIB = bytes(1 << 20)
NEW_USER, NEW_NS = 0x10000000, 0x00020000
HOURS = 3600


def heap():
    held = []
    while True:
        held.append(bytearray(os.urandom(1)) * len(MIB))


def memfd():
    """Memory that belongs to no process: files without a name, written and never mapped."""
    while True:
        file = os.memfd_create("held")
        for _ in range(8):
            os.write(file, MIB)


def shm():
    for number in range(HOURS):
        with open(f"/dev/shm/{number}", "wb", buffering=0) as file:
            file.write(MIB)


def tmpfs():
    """A file system in memory that this process mounts for itself."""
    user, group = os.getuid(), os.getgid()
    check(LIBC.unshare(NEW_USER | NEW_NS) == 0, "no namespace")
    for name, words in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(words)
    check(LIBC.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, b"size=100g") == 0, "no mount")
    temporary()


def segments():
    """System V shared memory, which outlives its maker, filled and left by one process after the other."""
    LIBC.shmat.restype = ctypes.c_void_p
    for _ in range(HOURS):
        if os.fork() == 0:
            segment = LIBC.shmget(0, 16 << 20, 0o1600)
            place = LIBC.shmat(segment, None, 0)
            ctypes.memset(place, 1, 16 << 20)
            os._exit(0)
        os.wait()


def pipes():
    """Memory of the kernel: full pipes and sockets, as many as this process may open."""
    held = []
    with contextlib.suppress(OSError):
        while True:
            pair = socket.socketpair()
            held.append(pair)
            pair[0].setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    pair[0].send(MIB)
    report("sockets", False, str(len(held)))
    children = [os.fork() for _ in range(6)]
    if 0 in children:
        pipes()
    time.sleep(HOURS)


def disk():
    for number in range(HOURS):
        with open(f"file{number}", "wb", buffering=0) as file:
            for _ in range(8):
                file.write(MIB)


def unnamed():
    while True:
        file = os.open("gone", os.O_CREAT | os.O_WRONLY)
        os.unlink("gone")
        for _ in range(8):
            os.write(file, MIB)


def mapped():
    """Write a file of holes by memory, so that no call of `write` is seen."""
    file = os.open("mapped", os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 48 << 20)
    view = mmap.mmap(file, 48 << 20)
    for _ in range(4):
        os.close(file)
        view[:] = b"x" * len(view)
        view.flush()
        os.rename("mapped", f"mapped{_}")
        file = os.open("mapped", os.O_RDWR | os.O_CREAT)
        os.ftruncate(file, 48 << 20)
        view = mmap.mmap(file, 48 << 20)
    time.sleep(HOURS)


def inodes():
    number = 0
    while True:
        os.makedirs(f"d{number}")
        for name in range(1000):
            os.close(os.open(f"d{number}/{name}", os.O_CREAT | os.O_WRONLY))
        number += 1


def temporary():
    for number in range(HOURS):
        with open(f"/tmp/file{number}", "wb", buffering=0) as file:
            for _ in range(8):
                file.write(MIB)


def deep():
    """Nest folders more deeply than a path can name."""
    while True:
        os.mkdir("d" * 200)
        os.chdir("d" * 200)


def forks():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.05)


def lines():
    """Write to the log without end."""
    while True:
        os.write(1, b"x" * 4000 + b"\n")


def connections():
    """Open connections to the platform's gateway, as many as there are to be had, and say nothing on any."""
    held = []
    while True:
        try:
            held.append(socket.create_connection(("127.0.0.1", int(sys.argv[2])), 5))
        except OSError:
            time.sleep(0.05)


def crowd():
    """Take as many of everything as is allowed, at the same time: processes, threads, files, log, artifacts."""
    files, threads = [], []
    report("limit of files", False, str(resource.getrlimit(resource.RLIMIT_NOFILE)))
    with contextlib.suppress(OSError):
        while True:
            files.append(os.open("/dev/null", os.O_RDONLY))
    for file in files[-50:]:
        os.close(file)
    with contextlib.suppress(RuntimeError):
        while len(threads) < 20_000:
            threads.append(threading.Thread(target=time.sleep, args=(HOURS,), daemon=True))
            threads[-1].start()
    report("threads", False, str(len(threads)))
    for number in range(2000):
        with contextlib.suppress(OSError):
            os.close(os.open(f"artifact{number}", os.O_CREAT | os.O_WRONLY))
    attempt("sparse file", lambda: os.truncate("artifact0", 1 << 50))
    line = b"x" * 4000 + b"\n"
    print("all taken", flush=True)
    for _ in range(20_000):  # 80 MB, many times what a log may hold; from then on it is only kept full
        os.write(1, line)
    while True:
        os.write(1, line)
        time.sleep(0.01)


signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("begins", flush=True)
try:
    globals()[sys.argv[1]]()
except (OSError, MemoryError, AssertionError) as problem:
    print(f"refused: {problem!r}", flush=True)
    time.sleep(HOURS)

"""The process whose forks become shims: a shim of its own interpreter would load itself again for each run.

One for each process of the platform that starts runs (`runners/spawning.py`). It holds nothing of a run: its forks are
in sessions of their own and outlive it, and it ends when the other end of its socket is closed, however that happens.
Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import socket
import sys
from collections.abc import Callable

MOST_FILES = 250  # that one message may carry
ROOM = 4096  # for the arguments of a shim, which are written over those of this process
ARG_START = 45  # among the fields of /proc/self/stat after the name; the end follows it


def serve(supervise: Callable[[str, int, list[int], int], None]) -> None:
    """Fork a shim for each message: the run's folder, with the descriptors of the answer, the shim's own log, the
    run's lock and those of its GPUs.
    """
    rename("spawner")
    requests = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
    gc.freeze()  # its forks share the memory
    while True:
        folder, files, _, _ = socket.recv_fds(requests, ROOM, MOST_FILES, socket.MSG_CMSG_CLOEXEC)
        if not folder:
            return
        if (child := os.fork()) == 0:
            try:
                requests.close()
                _become_shim(os.fsdecode(folder), files, supervise)
            finally:
                os._exit(1)
        for fd in files:
            os.close(fd)
        os.waitpid(child, 0)


def _become_shim(folder: str, files: list[int], supervise: Callable[[str, int, list[int], int], None]) -> None:
    """Call `supervise` in a process that is nobody's child."""
    answer, log, lock, *gpu_locks = files
    if os.fork():
        os._exit(0)
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    try:
        rename(folder, str(lock))
        supervise(folder, lock, gpu_locks, answer)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise


def rename(*words: str) -> None:
    """Show these words, after those of the interpreter, as the arguments of this process: so it is recognised."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        with open("/proc/self/stat", "rb") as file:
            start, end = map(int, file.read().rsplit(b")", 1)[1].split()[ARG_START : ARG_START + 2])
        words = (*sys.orig_argv[:-2], *words)
        if start:  # else the kernel does not say where they are
            room = end - start
            ctypes.memmove(start, b"\0".join(map(os.fsencode, words))[: room - 1].ljust(room, b"\0"), room)

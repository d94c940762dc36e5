"""Landlock: an interface of the kernel by which an unprivileged process restricts its own access to files.

Called by the guard for a run without a file system of its own, and by `runners.confine`, which needs to know whether
the kernel has it. Source: https://docs.kernel.org/userspace-api/landlock.html (structures and constants of
linux/landlock.h). Not covered by Landlock, so allowed to a run: to see that a file exists and its size, and to change
mode and times of files that its user owns.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
VERSION, PATH_BENEATH, NET_PORT = 1, 1, 2
BIND_TCP, CONNECT_TCP, WITH_TCP = 1 << 0, 1 << 1, 4  # the version of the interface that has them
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
# The number of access rights that each version of the interface has.
RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
READ = EXECUTE | READ_FILE | READ_DIR
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
SCOPES = 0b11  # abstract unix sockets and signals of others, from version 6 on
PR_SET_NO_NEW_PRIVS = 38
_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """Return the version of the kernel's interface, 0 where there is none."""
    return max(0, _libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION))


def restrict(read: list[str], write: list[str], held: dict[str, int]) -> None:
    """Restrict this process and its children to these files and folders: `read` for reading and executing, `write` for
    everything. Of the paths in `held` it is what was opened there. Paths that do not exist are skipped. Raises OSError.
    """
    known = version()
    rights = (1 << RIGHTS.get(known, RIGHTS[5])) - 1
    attributes = struct.pack("=QQQ", rights, 0, SCOPES if known >= 6 else 0)
    size = 8 if known < 4 else 16 if known < 6 else 24
    rules = _call(CREATE_RULESET, attributes, ctypes.c_size_t(size), 0)
    try:
        for paths, allowed in ((read, READ), (write, rights)):
            for path in paths:
                _allow(rules, path, held.get(path), allowed & rights)
        _restrict(rules)
    finally:
        os.close(rules)


def restrict_tcp(ports: list[int]) -> None:
    """Restrict this process and its children to TCP connections to these ports, of any host; they cannot listen on any.
    Raises OSError.
    """
    rules = _call(CREATE_RULESET, struct.pack("=QQ", 0, BIND_TCP | CONNECT_TCP), ctypes.c_size_t(16), 0)
    try:
        for port in ports:
            _call(ADD_RULE, rules, NET_PORT, struct.pack("=QQ", CONNECT_TCP, port), 0)
        _restrict(rules)
    finally:
        os.close(rules)


def keep_ports(ports: list[int]) -> None:
    """Keep this process and its children from listening on these TCP ports, and on no others. Raises OSError.

    Landlock knows what is allowed only, so each other port is a rule: a quarter of a second of processor time.
    """
    rules = _call(CREATE_RULESET, struct.pack("=QQ", 0, BIND_TCP), ctypes.c_size_t(16), 0)
    try:
        kept, rule = set(ports), ctypes.create_string_buffer(16)
        for port in range(1 << 16):
            if port not in kept:
                struct.pack_into("=QQ", rule, 0, BIND_TCP, port)
                _call(ADD_RULE, rules, NET_PORT, rule, 0)
        _restrict(rules)
    finally:
        os.close(rules)


def _restrict(rules: int) -> None:
    if _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    _call(RESTRICT_SELF, rules, 0)


def _allow(rules: int, path: str, held: int | None, allowed: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC) if held is None else os.dup(held)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            allowed &= OF_FILES
        _call(ADD_RULE, rules, PATH_BENEATH, struct.pack("=Qi", allowed, fd), 0)
    finally:
        os.close(fd)


def _call(number: int, *arguments) -> int:
    result = _libc.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"Landlock: {os.strerror(code)}")
    return result

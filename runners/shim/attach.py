"""A program that is started in a run beside its scripts: a shell for the run's owner, or any other command.

The platform writes a request into the run's folder and wakes the shim. The shim connects to the socket that the request
names and sends its secret, then hands the connection to the guard, which starts the program as it starts a script: in
the same namespaces, with the same user, limits and environment. The guard sends what the program's terminal or its
pipes are, as descriptors, and at its end its wait status; it hangs up when the connection is closed.

    attach-….json    {"socket": path, "secret": text, "command": words, or [] for a shell, "worker": its number,
                     "terminal": the kind, "" for pipes, "size": [rows, columns]}
    messages         the secret; {"started": pid} with the descriptors or {"failed": text}; {"status": number}

A run that may open the platform's folders by its user, under Landlock, can connect to the socket, but it cannot read
the secret. Standard library only; the guard loads it when it is needed, and what it needs of the guard is given to it.
"""

from __future__ import annotations

import _socket as socket  # the other module loads enum and selectors; see `suppress.py`
import fcntl
import marshal
import os
import struct

REQUEST, SUFFIX = "attach-", ".json"
CONNECT_S = 5.0  # within which the platform has to accept
TIOCSWINSZ = 0x5414
SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")


# --- the shim ---------------------------------------------------------------------------------------------------------
def pass_on(folder: str, commands: int) -> None:
    """Give the guard the requests in the run's folder; each is tried once."""
    import json

    for name in os.listdir(folder):
        if name.startswith(REQUEST) and name.endswith(SUFFIX):
            path = os.path.join(folder, name)
            try:
                with open(path, "rb") as file:
                    asked = json.load(file)
                os.unlink(path)
                _hand_over(asked, commands)
            except (OSError, ValueError) as problem:  # the caller no longer waits, or asks again
                print(f"a program could not be started: {problem}", flush=True)


def _hand_over(asked: dict, commands: int) -> None:
    """Connect to the platform and send the connection to the guard. Raises OSError."""
    order = os.memfd_create("order", os.MFD_CLOEXEC)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    guarded = socket.socket(fileno=os.dup(commands))
    try:
        link.settimeout(CONNECT_S)
        link.connect(asked["socket"])
        link.send(asked["secret"].encode())
        link.setblocking(True)
        os.write(order, marshal.dumps(asked))
        os.lseek(order, 0, os.SEEK_SET)
        guarded.sendmsg([b"A"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("2i", link.fileno(), order))])
    finally:
        guarded.close()
        link.close()
        os.close(order)


# --- the guard --------------------------------------------------------------------------------------------------------
def start(guard, spec: dict, given: list) -> tuple[int, int]:
    """Start the program; return its process id and the connection, (0, 0) when it could not be started: the other side
    has been given the reason.
    """
    link, order = struct.unpack("2i", given[0][2][:8])
    with open(order, "rb") as file:
        asked = marshal.load(file)
    opened: list[int] = []
    try:
        streams, kept = _terminal(spec, asked["size"], opened) if asked["terminal"] else _pipes(opened)
        pid, failure = _execute(guard, spec, asked, streams)
        if failure:
            guard.report(link, failed=failure)
        else:
            _send(link, pid, kept)
            return pid, link
    except OSError as problem:
        guard.report(link, failed=str(problem))
    finally:
        for fd in opened:
            os.close(fd)
    os.close(link)
    return 0, 0


def _terminal(spec: dict, size: list[int], opened: list[int]) -> tuple[tuple[int, int, int], list[int]]:
    """Return the program's streams and what the platform keeps: both ends of a new terminal of the run's user."""
    uid = spec["uid"]
    if uid is not None:  # a terminal belongs to the user who opened it
        os.seteuid(uid)
    try:
        ours, other = os.openpty()
    finally:
        if uid is not None:
            os.seteuid(0)
    opened += [ours, other]
    fcntl.ioctl(ours, TIOCSWINSZ, struct.pack("4H", *size, 0, 0))
    return (other, other, other), [ours]


def _pipes(opened: list[int]) -> tuple[tuple[int, int, int], list[int]]:
    """Return the program's streams and what the platform keeps: the ends of pipes."""
    for _ in range(3):
        opened += os.pipe2(os.O_CLOEXEC)
    theirs, ours, output, out, errors, err = opened
    return (theirs, out, err), [ours, output, errors]


def _execute(guard, spec: dict, asked: dict, streams: tuple[int, int, int]) -> tuple[int, str]:
    """Fork and execute the command. Return (its process id, the error when it could not be executed)."""
    command = asked["command"] or [next(shell for shell in SHELLS if os.path.exists(shell))]
    variables = spec["environment"] | guard.ranks(spec, asked["worker"])
    if asked["terminal"]:
        variables = variables | {"TERM": asked["terminal"]}
    parent = os.getpid()
    failed, failing = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            guard.become(spec, command, variables, streams, parent, failing)
        finally:
            os._exit(127)
    os.close(failing)
    return pid, guard.failure_of(failed)


def _send(link: int, pid: int, kept: list[int]) -> None:
    """Send the descriptors. Raises OSError."""
    connection = socket.socket(fileno=link)
    rights = struct.pack(f"{len(kept)}i", *kept)
    try:
        connection.sendmsg([b'{"started": %d}' % pid], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    finally:
        connection.detach()
    os.set_blocking(link, False)  # its end is reported without waiting for anybody

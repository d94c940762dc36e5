"""One SSH connection into a workspace: `python sshd.py HOST_KEY`, with the connection as standard input.

Started by ssh_link.py for each websocket at `-ssh`, in a process of its own, so that neither large transfers nor errors
here hold up JupyterLab. Who gets so far was let in by the platform's gateway: SSH itself asks for no password or key.
There are shells and commands with and without a terminal, SFTP, SCP, and forwarding within what the workspace itself
may reach, which is what ssh, sftp, rsync and the remote modes of editors need.

Every few seconds it prints a line of JSON, `{"busy": …, "last": …}` as in the workspace's activity file.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import asyncssh

EVERY_S = 5
KEEPALIVE_S = 60  # a client that has gone is noticed after three of them
BLOCK = 1 << 16
COMPUTES_S = 0.25  # of processor time in EVERY_S: a command that needs less waits
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
SHELL = os.environ.get("SHELL", "/bin/sh")
SIGNALS = {
    "ABRT",
    "ALRM",
    "FPE",
    "HUP",
    "ILL",
    "INT",
    "KILL",
    "PIPE",
    "QUIT",
    "SEGV",
    "TERM",
    "USR1",
    "USR2",
}  # those of SSH
END_OF_INPUT, INTERRUPT = b"\x04", b"\x03"  # as typed at a terminal


class Use:
    """What was done over the connection: when last, in which terminals, by which commands."""

    def __init__(self) -> None:
        self.last = time.time()
        self.terminals: dict[int, int] = {}  # the descriptor of each, and its shell
        self.commands: dict[int, float] = {}  # the process of each, and its processor time at the last look

    def touch(self) -> None:
        """Count this moment as use."""
        self.last = time.time()

    def look(self) -> dict:
        """Return whether something computes now, and when it was used last."""
        spent = {pid: processor_time(pid) for pid in self.commands}
        busy = any(now - self.commands[pid] > COMPUTES_S for pid, now in spent.items())
        self.commands = spent
        return {"busy": busy or any(map(self._has_command, self.terminals)), "last": self.last}

    def _has_command(self, terminal: int) -> bool:
        """Return whether a command runs in the foreground, however quietly."""
        try:
            return os.tcgetpgrp(terminal) != self.terminals[terminal]
        except OSError:
            return False


use = Use()


def processor_time(session: int) -> float:
    """Return the seconds of processor time of the processes of a session and of their children that have ended."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS_A_SECOND


class Server(asyncssh.SSHServer):
    """Asks for no authentication, and forwards what it is asked to."""

    def begin_auth(self, username: str) -> bool:
        """Return that none is needed."""
        return False

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        """Return that connections to what the workspace reaches are allowed."""
        return True

    def unix_connection_requested(self, dest_path: str) -> bool:
        """Return that connections to its sockets are allowed."""
        return True

    def server_requested(self, listen_host: str, listen_port: int) -> bool:
        """Return that ports in the workspace may lead to the client's machine."""
        return True

    def unix_server_requested(self, listen_path: str) -> bool:
        """Return that sockets in the workspace may lead to the client's machine."""
        return True


class Files(asyncssh.SFTPServer):
    """The files of the workspace; ends as sshd's server does, with the exit status that OpenSSH's scp waits for."""

    def exit(self) -> None:
        """Report success."""
        super().exit()
        with contextlib.suppress(OSError):  # the client has gone
            self.channel.exit(0)


async def run(process: asyncssh.SSHServerProcess) -> None:
    """Run the command, or a shell, to its end, and report its exit status."""
    use.touch()
    variables = {**os.environ, "SSH_CONNECTION": "127.0.0.1 0 127.0.0.1 22", **process.env}
    arguments = [SHELL, "-c", process.command] if process.command else [f"-{Path(SHELL).name}"]
    try:
        if process.term_type:
            code = await in_terminal(process, arguments, variables | {"TERM": process.term_type})
        else:
            code = await with_pipes(process, arguments, variables)
    except OSError as problem:
        process.stderr.write(f"{SHELL}: {problem.strerror}\n".encode())
        code = 255
    if code < 0 and (name := signal.Signals(-code).name.removeprefix("SIG")) in SIGNALS:
        process.exit_with_signal(name)
    else:
        process.exit(code if code >= 0 else 128 - code)


async def in_terminal(process: asyncssh.SSHServerProcess, arguments: list[str], variables: dict) -> int:
    """Return the exit status of a program that has a terminal; it hangs up when the client has gone."""
    terminal, other = os.openpty()
    resize(terminal, process.term_size)
    os.set_blocking(terminal, False)
    variables["SSH_TTY"] = os.ttyname(other)
    child = await asyncio.create_subprocess_exec(
        *arguments, executable=SHELL, env=variables, stdin=other, stdout=other, stderr=other, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(other)
    use.terminals[terminal] = child.pid
    pumps = [asyncio.create_task(_to_terminal(process, terminal)), asyncio.create_task(_shown(process, terminal))]
    ended, gone = asyncio.create_task(child.wait()), asyncio.create_task(process.wait_closed())
    await asyncio.wait({ended, gone}, return_when=asyncio.FIRST_COMPLETED)
    for pump in pumps:
        pump.cancel()
    with contextlib.suppress(OSError):
        while not gone.done() and (rest := os.read(terminal, BLOCK)):
            process.stdout.write(rest)
    del use.terminals[terminal]
    os.close(terminal)
    return await child.wait()


async def _shown(process: asyncssh.SSHServerProcess, terminal: int) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await _until(lambda done: loop.add_reader(terminal, done), lambda: loop.remove_reader(terminal))
        try:
            data = os.read(terminal, BLOCK)
        except BlockingIOError:
            continue
        except OSError:  # nobody has it open any more
            return
        process.stdout.write(data)
        await process.stdout.drain()


async def _to_terminal(process: asyncssh.SSHServerProcess, terminal: int) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            data = await process.stdin.read(BLOCK)
        except asyncssh.TerminalSizeChanged as changed:
            resize(terminal, changed.term_size)
            continue
        except asyncssh.SignalReceived as received:
            with contextlib.suppress(OSError):
                send_signal(os.tcgetpgrp(terminal), received.signal)
            continue
        except asyncssh.BreakReceived:
            data = INTERRUPT
        use.touch()
        todo = data or END_OF_INPUT
        while todo:
            try:
                todo = todo[os.write(terminal, todo) :]
            except BlockingIOError:
                await _until(lambda done: loop.add_writer(terminal, done), lambda: loop.remove_writer(terminal))
            except OSError:
                return
        if not data:
            return


async def _until(watch: Callable, forget: Callable) -> None:
    """Wait until a descriptor is ready."""
    done = asyncio.Event()
    watch(done.set)
    try:
        await done.wait()
    finally:
        forget()


def resize(terminal: int, size: tuple[int, int, int, int]) -> None:
    """Set the size of a terminal: columns, rows, and the same in pixels."""
    columns, rows, wide, high = (min(max(number, 0), 0xFFFF) for number in size)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, wide, high))


async def with_pipes(process: asyncssh.SSHServerProcess, arguments: list[str], variables: dict) -> int:
    """Return the exit status of a program without a terminal. As with sshd it may go on after the client has gone."""
    child = await asyncio.create_subprocess_exec(
        *arguments, executable=SHELL, env=variables, start_new_session=True,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    use.commands[child.pid] = 0.0
    fed = asyncio.create_task(_fed(process, child))
    await asyncio.gather(_copied(child.stdout, process.stdout), _copied(child.stderr, process.stderr))
    code = await child.wait()
    fed.cancel()
    use.commands.pop(child.pid, None)
    return code


async def _copied(source: asyncio.StreamReader, target: asyncssh.SSHWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(BLOCK):
            target.write(data)
            await target.drain()


async def _fed(process: asyncssh.SSHServerProcess, child: asyncio.subprocess.Process) -> None:
    while True:
        try:
            data = await process.stdin.read(BLOCK)
        except asyncssh.SignalReceived as received:
            send_signal(child.pid, received.signal)
            continue
        except (asyncssh.TerminalSizeChanged, asyncssh.BreakReceived):
            continue
        if not data:
            child.stdin.close()
            return
        with contextlib.suppress(OSError):  # it reads no more
            child.stdin.write(data)
            await child.stdin.drain()


def send_signal(group: int, name: str) -> None:
    """Send a signal that the client names, as INT, to a group of processes."""
    with contextlib.suppress(KeyError, ProcessLookupError, PermissionError):
        os.killpg(group, signal.Signals[f"SIG{name}"])


def host_key(path: Path) -> asyncssh.SSHKey:
    """Return the workspace's key, which its first connection makes."""
    with contextlib.suppress(OSError, asyncssh.KeyImportError):
        return asyncssh.read_private_key(path)
    key = asyncssh.generate_private_key("ssh-ed25519")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key.export_private_key())
    draft.replace(path)
    return key


async def tell() -> None:
    """Print what the connection is used for, again and again."""
    while True:
        print(json.dumps(use.look()), flush=True)
        await asyncio.sleep(EVERY_S)


async def serve(key: Path) -> None:
    """Serve the connection to its end. What it has started without a terminal goes on."""
    connection = await asyncssh.run_server(
        socket.socket(fileno=os.dup(0)), server_factory=Server, server_host_keys=[host_key(key)], process_factory=run,
        encoding=None, line_editor=False, sftp_factory=Files, allow_scp=True, gss_host=None,
        keepalive_interval=KEEPALIVE_S,
    )  # fmt: skip
    telling = asyncio.create_task(tell())
    await connection.wait_closed()
    telling.cancel()
    os._exit(0)  # asyncio would kill the children


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))

"""What counts as use of a workspace over SSH: what the program of a connection reports, again and again."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh

from mlp.tests.patience import LIMIT_S
from workspaces.program import sshd

# As ssh_link.py starts it, but reporting often, of little processor time.
# Ctrl-C works in it as in a run, also where whoever runs the tests has SIGINT ignored, as a shell's background jobs do.
PROGRAM = """
import asyncio, pathlib, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
sys.path.insert(0, sys.argv[1])
import sshd
sshd.EVERY_S, sshd.COMPUTES_S = 0.1, 0.005
asyncio.run(sshd.serve(pathlib.Path(sys.argv[2])))
"""


@asynccontextmanager
async def connected(tmp_path: Path):
    """Yield a connection, and a function that returns the next report."""
    ours, theirs = socket.socketpair()
    folder = str(Path(sshd.__file__).parent)
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, folder, str(tmp_path / "key"), stdin=theirs, stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SHELL": "/bin/bash"},
    )  # fmt: skip
    theirs.close()

    async def report() -> dict:
        return json.loads(await program.stdout.readline())

    options = {"known_hosts": None, "config": None, "username": "anybody", "client_keys": None, "agent_path": None}
    async with asyncio.timeout(LIMIT_S):
        async with asyncssh.connect("lab", sock=ours, **options) as link:
            yield link, report
        await program.wait()


async def until(report, busy: bool) -> dict:
    while (found := await report())["busy"] != busy:
        pass
    return found


async def twice(report) -> list[bool]:
    """Return whether it is busy by the second and third report from now: the next may have been made before."""
    return [(await report())["busy"] for _ in range(3)][1:]


def test_a_command_counts_while_it_computes_and_one_that_waits_does_not(tmp_path):
    async def talk():
        async with connected(tmp_path) as (link, report):
            await until(report, False)
            computes = await link.create_process("echo begun; while :; do :; done")
            await computes.stdout.readline()
            await until(report, True)
            computes.kill()
            await computes.wait()
            waits = await link.create_process("echo begun; exec sleep 600")
            await waits.stdout.readline()
            await until(report, False)
            assert await twice(report) == [False, False]

    asyncio.run(talk())


def test_a_foreground_command_counts_however_quiet_and_typing_does(tmp_path):
    async def talk():
        async with connected(tmp_path) as (link, report):
            shell = await link.create_process(term_type="xterm", env={"PS1": ""})
            shell.stdin.write("echo a''b\n")
            await shell.stdout.readuntil("ab\r\n")
            before = (await until(report, False))["last"]
            assert await twice(report) == [False, False]
            shell.stdin.write("echo c''d; sleep 600\n")
            await shell.stdout.readuntil("cd\r\n")
            found = await until(report, True)
            assert found["last"] > before
            assert await twice(report) == [True, True]
            shell.stdin.write("\x03")
            await until(report, False)

    asyncio.run(talk())

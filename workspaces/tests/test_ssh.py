"""SSH into a workspace: the one-file client, the gateway and the SSH server; the program beside it is a stand-in."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import asynccontextmanager

import asyncssh
import pytest
import requests
import websocket

from accounts import lifecycle as accounts
from accounts import named_tokens
from client.tests.running import Client
from mlp.tests.patience import LIMIT_S
from workspaces import place

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lab(service, create, settle):
    """A running workspace of alice's."""
    return settle(create())


@pytest.fixture
def mlp(tmp_path, service, alice):
    return Client(tmp_path, service.url, accounts.token_of(alice))


@asynccontextmanager
async def connected(mlp: Client, name: str):
    """Connect as editors do: by the client as ProxyCommand."""
    command = ["env", *(f"{key}={value}" for key, value in mlp.environment.items()), sys.executable, str(mlp.program)]
    options = {"known_hosts": None, "config": None, "username": "anybody", "client_keys": None, "agent_path": None}
    async with asyncssh.connect("lab", proxy_command=[*command, "ssh", "--stdio", name], **options) as link:
        yield link


def test_a_command_its_streams_and_its_exit_code(lab, mlp):
    async def talk():
        async with connected(mlp, lab.name) as link:
            done = await link.run("cat; echo $MLP_USER >&2; exit 7", input="训练\n" * 50_000)
            assert (done.stdout, done.stderr, done.exit_status) == ("训练\n" * 50_000, "alice\n", 7)
            killed = await link.run("kill -TERM $$")
            assert killed.exit_signal[0] == "TERM"
            binary = await link.run("head -c 300000 /dev/zero", encoding=None)
            assert binary.stdout == bytes(300_000)
            process = await link.create_process("echo started; exec cat")
            await process.stdout.readline()
            process.send_signal("INT")
            assert (await process.wait()).exit_signal[0] == "INT"

    asyncio.run(talk())


@pytest.mark.long
def test_a_terminal_has_a_size_takes_keys_and_hangs_up(lab, mlp):
    async def talk():
        async with connected(mlp, lab.name) as link:
            shell = await link.create_process(term_type="xterm", term_size=(91, 33), env={"PS1": ""})
            shell.stdin.write("stty size; tty; echo $TERM\n")
            said = await shell.stdout.readuntil("xterm\r\n")
            assert "33 91" in said
            assert "/dev/pts/" in said
            shell.change_terminal_size(120, 40)
            shell.stdin.write("stty size; echo a''b\n")
            assert "40 120" in await shell.stdout.readuntil("ab\r\n")
            # The program that is to be interrupted says so itself: bash loses an interrupt while it starts a program.
            shell.stdin.write("sh -c 'echo star\"\"ted; exec sleep 1000'\n")
            await shell.stdout.readuntil("started\r\n")
            shell.stdin.write("\x03")
            await shell.stdout.readuntil("^C")
            shell.stdin.write("echo c''d\n")
            await shell.stdout.readuntil("cd\r\n")
            shell.stdin.write("sleep 1000 & echo pid $!; exit 5\n")
            said = await shell.stdout.readuntil("exit 5")
            assert (await shell.wait()).exit_status == 5  # a command in the background does not hold it up
            left = await link.create_process(term_type="xterm")
            left.stdin.write("trap '' INT; echo $$ > shell.pid; sleep 1000\n")
            await link.run("until [ -s shell.pid ]; do sleep 0.05; done")
        async with connected(mlp, lab.name) as again:
            await again.run("while kill -0 $(cat shell.pid); do sleep 0.05; done")

    asyncio.run(asyncio.wait_for(talk(), LIMIT_S))


@pytest.mark.long
def test_files_and_ports(lab, mlp, tmp_path):
    async def talk():
        async with connected(mlp, lab.name) as link:
            async with link.start_sftp_client() as files:
                (tmp_path / "a 文.bin").write_bytes(os.urandom(3 << 20))
                await files.put(str(tmp_path / "a 文.bin"), "kept.bin")
                await files.get("kept.bin", str(tmp_path / "back.bin"))
                assert "kept.bin" in await files.listdir(".")
            assert (tmp_path / "back.bin").read_bytes() == (tmp_path / "a 文.bin").read_bytes()
            await asyncssh.scp(str(tmp_path / "a 文.bin"), (link, "copied.bin"))
            assert (await link.run("cmp kept.bin copied.bin")).exit_status == 0
            server = await link.create_process(f"{sys.executable} -u -m http.server 8765 --bind 127.0.0.1")
            await server.stderr.read(0)
            listener = await link.forward_local_port("127.0.0.1", 0, "127.0.0.1", 8765)
            await link.run("until echo > /dev/tcp/127.0.0.1/8765; do sleep 0.05; done")
            address = f"http://127.0.0.1:{listener.get_port()}/kept.bin"
            answer = await asyncio.to_thread(requests.get, address, timeout=LIMIT_S)
            assert len(answer.content) == 3 << 20
            with pytest.raises(asyncssh.ChannelOpenError):
                await link.open_connection("127.0.0.1", 9)
            server.terminate()

    asyncio.run(asyncio.wait_for(talk(), LIMIT_S))
    assert (place.folder(lab) / "home" / "kept.bin").stat().st_size == 3 << 20


def test_nobody_else_gets_in_and_a_token_opens_nothing_else(lab, alice, bob, staff, service):
    origin = f"127.0.0.1:{service.workspace_port}"
    narrow = named_tokens.create(user=alice, name="ci", scope="submit", days=1, by="alice")[1]
    strangers = [accounts.token_of(bob), accounts.token_of(staff), narrow, "mlp_u1_" + "x" * 43, "no token", ""]
    for token in strangers:
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            websocket.create_connection(f"ws://{origin}/alice/{lab.name}/-ssh", timeout=LIMIT_S,
                                        header=[f"Authorization: Bearer {token}"])  # fmt: skip
        assert refused.value.status_code == 401
    mine = [f"Authorization: Bearer {accounts.token_of(alice)}"]
    for path in ("ws", "-ssh/", "-ssh/../ws", "-SSH", "%2dssh", "x/..%2f-ssh"):
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            websocket.create_connection(f"ws://{origin}/alice/{lab.name}/{path}", timeout=LIMIT_S, header=mine)
        assert refused.value.status_code in (401, 404)
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        websocket.create_connection(f"ws://{origin}/alice/{lab.name}/-ssh", timeout=LIMIT_S, header=mine,
                                    origin="http://evil.example")  # fmt: skip
    assert refused.value.status_code == 403


def test_a_new_token_closes_what_the_old_one_has_opened(lab, alice, mlp, until):
    process = mlp.start("ssh", "--stdio", lab.name, stdin=subprocess.PIPE)
    assert process.stdout.readline().startswith(b"SSH-2.0-")
    accounts.rotate_token(user=alice, by="alice")
    until(lambda: process.poll() is not None)
    assert b"logged out" in process.stderr.read()


@pytest.mark.long
def test_what_the_client_says_where_it_cannot_connect(lab, mlp, as_alice, settle, until):
    assert mlp.refused("ssh", "--stdio", "nothing", code=4) == "workspace: no such workspace"
    stopped = as_alice.call("put", f"users/alice/workspaces/{lab.name}:stop")
    assert stopped.status_code == 200
    settle(lab, "stopped")
    process = mlp.start("ssh", "--stdio", f"{lab.name}.mlp", stdin=subprocess.PIPE)
    settle(lab, "ready")  # it was started for it
    assert process.stdout.readline().startswith(b"SSH-2.0-")
    process.stdin.close()
    assert process.wait(LIMIT_S) == 0
    assert mlp.refused("ssh", code=2).startswith("WORKSPACE is missing")


def test_the_configuration_of_ssh_is_added_once_and_the_rest_stays(mlp):
    config = mlp.home / ".ssh" / "config"
    config.parent.mkdir()
    config.write_text("Host mine\n  User me\n")
    for _ in range(2):
        mlp.run("ssh", "--setup")
    text = config.read_text()
    assert text.count("Host *.mlp") == 1
    assert text.endswith("Host mine\n  User me\n")
    assert f"{mlp.program} ssh --stdio %n" in text

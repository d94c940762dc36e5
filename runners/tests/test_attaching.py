"""Programs that are started in a run beside its script: a terminal, pipes, their ends, and who may not listen."""

from __future__ import annotations

import errno
import json
import os
import select
import socket

import pytest

from mlp.tests.tiers import later
from runners import RunnerError, confine
from runners.attaching import Wanted
from runners.local import LocalRunner

from .helpers import eventually, spec

WAIT_S = 60
WAITING = "import time; open('ready', 'w').close(); time.sleep(600)"
WHERE = """
import json, os, sys
names = ("mnt", "net", "pid", "ipc")
found = {name: os.readlink(f"/proc/self/ns/{name}") for name in names} | {"uid": os.getuid(), "cwd": os.getcwd()}
found |= {"name": os.environ.get("NAME"), "rank": os.environ.get("LOCAL_RANK")}
found |= {"sees": sorted(os.listdir("."))} | {"open": sorted(map(int, os.listdir("/proc/self/fd")))}
"""


@pytest.fixture(params=["landlock", "bwrap", later("none")])
def runner(request, tmp_path):
    try:
        confinement = confine.decide(request.param)
    except confine.ImproperlyConfigured as problem:
        pytest.skip(str(problem))
    local = LocalRunner(tmp_path / "run" / "runs", confinement)
    yield local
    assert local.stop_all(0) == []


@pytest.fixture
def in_pod(kubernetes, tmp_path):
    """Start a run that waits in the cluster; return its runner."""
    environment = {"PATH": os.environ["PATH"], "NAME": "lab"}
    kubernetes.start(spec(tmp_path, WAITING, owner=3, environment=environment))
    eventually((tmp_path / "work" / "ready").exists)
    eventually(lambda: kubernetes.poll("job-1-1").started)
    return kubernetes


@pytest.fixture
def running(runner, tmp_path):
    """Start a run that waits; return its runner."""
    runner.start(spec(tmp_path, WAITING, owner=3, environment={"PATH": os.environ["PATH"], "NAME": "lab"}))
    eventually((tmp_path / "work" / "ready").exists)
    return runner


def read(program, until=None) -> list[bytes]:
    """Return what the program has written to each of its outputs, at their ends or once `until` is in the first."""
    texts = dict.fromkeys(program.outputs, b"")
    open_ones = set(texts)
    while open_ones and (until is None or until not in texts[program.outputs[0]]):
        ready, _, _ = select.select(open_ones, [], [], WAIT_S)
        assert ready, texts
        for output in ready:
            try:
                data = os.read(output, 1 << 16)
            except OSError:  # a terminal that nobody has open any more
                data = b""
            texts[output] += data
            if not data:
                open_ones.discard(output)
    return list(texts.values())


def exit_code(program) -> int:
    assert select.select([program.link], [], [], WAIT_S)[0]
    return program.exit_code()


def run(runner, *command, **how) -> tuple[int, list[bytes]]:
    """Run a command with pipes and no input to its end."""
    program = runner.attach("job-1-1", Wanted(command, **how))
    program.end_input()
    texts = read(program)
    code = exit_code(program)
    program.close()
    return code, texts


def test_a_command_is_where_the_script_is(running, tmp_path):
    script = WHERE + "print(json.dumps(found)); sys.stderr.write('seen'); sys.exit(7)"
    code, (output, errors) = run(running, running.python, "-c", script)
    assert (code, errors) == (7, b"seen")
    found = json.loads(output)
    beside = {name: os.readlink(f"/proc/self/ns/{name}") for name in ("mnt", "net", "pid", "ipc")}
    if running.confinement.isolation == "bwrap":
        assert not set(beside.values()) & set(map(str, found.values()))
    assert found["uid"] == (running.confinement.uid_of(3) or os.getuid())
    assert found["name"] == "lab"
    assert "ready" in found["sees"]
    assert found["open"] == [0, 1, 2, 3]  # the last is that of the list itself


def test_bytes_go_through_unchanged(running):
    through_cat(running)


def test_bytes_go_through_a_cluster_unchanged(in_pod):
    through_cat(in_pod)


def through_cat(running) -> None:
    sent = bytes(range(256)) * 4096
    program = running.attach("job-1-1", Wanted(("cat",)))
    rest, back = sent, b""
    while len(back) < len(sent):
        readable, writable, _ = select.select([program.outputs[0]], [program.input] if rest else [], [], WAIT_S)
        assert readable or writable
        if writable:
            rest = rest[os.write(program.input, rest[:65536]) :]
        if readable:
            back += os.read(program.outputs[0], 1 << 16)
    assert back == sent
    program.end_input()
    assert exit_code(program) == 0
    program.close()


def test_a_shell_has_a_terminal_of_its_size(running):
    in_a_shell(running)


def test_a_shell_in_a_pod_has_a_terminal_of_its_size(in_pod):
    in_a_shell(in_pod)


def in_a_shell(running) -> None:
    program = running.attach("job-1-1", Wanted(terminal="xterm", rows=30, columns=100))
    os.write(program.input, b"tty && stty size && echo $TERM-$((40 + 2))\n")
    (shown,) = read(program, b"xterm-42")
    assert b"/dev/pts/" in shown
    assert b"30 100" in shown
    program.resize(50, 120)
    os.write(program.input, b"stty size; exit 5\n")
    (shown,) = read(program)
    assert b"50 120" in shown
    assert exit_code(program) == 5
    program.close()


def test_a_command_in_a_pod_has_its_environment_and_exit_code(in_pod):
    code, texts = run(in_pod, "sh", "-c", "echo $NAME; ls; echo bad >&2; exit 7")
    assert (code, texts) == (7, [b"lab\nready\n", b"bad\n"])
    code, texts = run(in_pod, "no-such-program")
    assert (code, b"no-such-program" in texts[1]) == (255, True)
    with pytest.raises(RunnerError, match="the run has ended"):
        in_pod.attach("job-1-2", Wanted(("true",)))


def test_an_interrupt_reaches_what_runs_in_the_terminal(running):
    program = running.attach("job-1-1", Wanted(terminal="xterm"))
    # Said by the program in the foreground: bash itself, interrupted between two commands, may go on with the second.
    os.write(program.input, b"sh -c 'echo be$0gun; exec sleep 600' '' && echo not-this\n")
    read(program, b"begun")
    os.write(program.input, b"\x03")
    os.write(program.input, b"echo co''de $?; exit\n")
    (shown,) = read(program)
    assert b"code 130" in shown
    assert exit_code(program) in (0, 130)
    program.close()


@pytest.mark.parametrize("terminal", ["", "xterm"])
def test_a_program_hangs_up_with_its_caller(running, tmp_path, terminal):
    script = f"open({str(tmp_path / 'work' / 'held')!r}, 'w').close(); import time; time.sleep(600)"
    program = running.attach("job-1-1", Wanted((running.python, "-c", script), terminal=terminal))
    eventually((tmp_path / "work" / "held").exists)
    assert len(running.now("job-1-1").processes) == 2
    program.close()
    eventually(lambda: len(running.now("job-1-1").processes) == 1)
    assert running.poll("job-1-1").state == "running"


def test_the_end_of_the_run_ends_its_programs(running):
    program = running.attach("job-1-1", Wanted(terminal="xterm"))
    os.write(program.input, b"echo be''gun\n")
    read(program, b"begun")
    running.stop("job-1-1", 0)
    read(program)
    assert select.select([program.link], [], [], WAIT_S)[0]
    with pytest.raises(RunnerError, match="the run has ended"):
        program.exit_code()
    program.close()
    eventually(lambda: running.poll("job-1-1").state == "exited")
    with pytest.raises(RunnerError, match="the run has ended"):
        running.attach("job-1-1", Wanted())


def test_what_cannot_be_executed_is_said(running):
    with pytest.raises(RunnerError, match="no-such-program: No such file or directory"):
        running.attach("job-1-1", Wanted(("no-such-program",)))
    assert run(running, "sh", "-c", "kill -9 $$")[0] == 137


def test_a_program_counts_to_the_limits_of_its_run(runner, tmp_path):
    runner.start(spec(tmp_path, WAITING, owner=3, ram_mib=64))
    eventually((tmp_path / "work" / "ready").exists)
    large = "held = bytearray(256 << 20); held[::4096] = b'.' * (len(held) // 4096); print('has it')"
    program = runner.attach("job-1-1", Wanted((runner.python, "-c", large)))
    output, _errors = read(program)  # without control groups the whole run is ended
    assert output == b""
    program.close()


def test_each_worker_has_its_own_rank(runner, tmp_path):
    runner.start(spec(tmp_path, WAITING, owner=3, workers=2))
    eventually((tmp_path / "work" / "ready").exists)
    script = WHERE + "print(json.dumps(found))"
    _code, (output, _errors) = run(runner, runner.python, "-c", script, worker=1)
    assert json.loads(output)["rank"] == "1"


def test_a_full_disk_is_said_and_what_a_killed_caller_left_is_removed(running, monkeypatch):
    left = running.sockets / "attach-0123"
    running.sockets.mkdir(exist_ok=True, mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(left))
    os.utime(left, (0, 0))
    real = os.open

    def full(path, flags, *mode):
        if "attach-" in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, flags, *mode)

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(RunnerError, match="could not start: No space left on device"):
        running.attach("job-1-1", Wanted(("true",)))
    monkeypatch.undo()
    assert list(running.sockets.glob("attach-*")) == []
    assert run(running, "true")[0] == 0


def test_nobody_but_the_supervisor_is_listened_to(running, monkeypatch):
    """A run under Landlock with the platform's own user finds the socket; it does not have the secret."""
    forged = []
    real = socket.socket.listen

    def listen(listener):
        real(listener)
        intruder = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        intruder.connect(listener.getsockname())
        intruder.send(b"a" * 64)
        forged.append(intruder)

    monkeypatch.setattr(socket.socket, "listen", listen)
    code, (output, _errors) = run(running, "echo", "the run's own")
    assert (code, output) == (0, b"the run's own\n")
    (intruder,) = forged
    assert intruder.recv(100) == b""
    intruder.close()

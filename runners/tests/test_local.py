"""The local runner through its public interface: starting, ending, records."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import sys
import time
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

import runners
from kernel import sockets
from kernel.messages import Message
from runners import RunnerError, RunStatus, confine, tail
from runners.local import LocalRunner

from .helpers import ENVIRONMENT, alive, end_of, eventually, number_in, spec


@pytest.fixture
def runner(tmp_path):
    runner = LocalRunner(tmp_path / "runs")
    yield runner
    assert runner.stop_all(0) == []


def test_it_reports_missing_memory(runner, tmp_path):
    runner.start(spec(tmp_path, "b = bytearray(2 << 30); print('had it')", ram_mib=100))
    status = end_of(runner)
    assert status.exit_code == 1
    assert status.reason == "out of memory (requested 100 MiB), exit code 1"


def test_a_full_gpu_is_not_missing_memory(runner, tmp_path):
    runner.start(
        spec(tmp_path, "raise SystemExit('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB')")
    )
    assert end_of(runner).reason == "exit code 1"


def test_it_reports_a_missing_command(runner, tmp_path):
    runner.start(spec(tmp_path, "", command=["no-such-program"]))
    status = end_of(runner)
    assert (status.state, status.exit_code, status.signal) == ("exited", None, None)
    assert status.reason == "could not start: no-such-program: No such file or directory"


def test_it_reports_a_missing_working_folder(runner, tmp_path):
    runner.start(spec(tmp_path, "", cwd=tmp_path / "nowhere"))
    assert end_of(runner).reason.startswith("could not start: its working folder")


def test_it_passes_the_environment_of_the_spec_only(runner, tmp_path, monkeypatch):
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    code = "import os, json; print(json.dumps(dict(os.environ))); print(os.listdir('/proc/self/fd'))"
    runner.start(spec(tmp_path, code, environment=ENVIRONMENT | {"GREETING": "grüß"}, cpu=3.5))
    assert end_of(runner).succeeded
    line, descriptors = (tmp_path / "job-1-1.log").read_text().splitlines()
    environment = __import__("json").loads(line)
    assert len(environment.pop("MLP_RUN_ID")) == 32
    environment.pop("LC_CTYPE", None)  # Python's own doing
    assert environment == ENVIRONMENT | {"GREETING": "grüß", "OMP_NUM_THREADS": "3", "OMP_WAIT_POLICY": "passive"}
    assert descriptors == "['0', '1', '2', '3']"  # 3: the listing itself


def test_a_given_number_of_threads_is_kept(runner, tmp_path):
    code = "import os; print(os.environ['OMP_NUM_THREADS'])"
    runner.start(spec(tmp_path, code, environment=ENVIRONMENT | {"OMP_NUM_THREADS": "7"}, cpu=0.1))
    end_of(runner)
    assert tail(tmp_path / "job-1-1.log") == "7"


def test_the_script_has_default_signals_and_its_own_session(runner, tmp_path):
    code = (
        "import os, signal\n"
        "print([s.name for s in signal.Signals if s not in (9, 19) and signal.getsignal(s) == signal.SIG_IGN])\n"
        "print(os.getsid(0) == os.getpid() == os.getpgrp(), os.isatty(0), os.read(0, 1))"
    )
    runner.start(spec(tmp_path, code))
    end_of(runner)
    # Python itself ignores these two
    assert tail(tmp_path / "job-1-1.log").splitlines() == ["['SIGPIPE', 'SIGXFSZ']", "True False b''"]


def test_its_records_are_private(runner, tmp_path):
    runner.start(spec(tmp_path, "print(1)"))
    end_of(runner)
    folder = tmp_path / "runs" / "job-1-1"
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in ("spec.json", "exit.json")} == {0o600}


def test_it_keeps_the_order_of_both_outputs(runner, tmp_path):
    code = "import os\nfor i in range(3000): os.write(1 + i % 2, b'%d\\n' % i)"
    runner.start(spec(tmp_path, code))
    assert end_of(runner).succeeded
    assert (tmp_path / "job-1-1.log").read_text().split() == [str(i) for i in range(3000)]


def test_it_limits_the_log_and_keeps_its_end(runner, tmp_path):
    code = "for i in range(100_000): print('line', i)\nprint('the last word')"
    runner.start(spec(tmp_path, code, log_limit=100_000))
    assert end_of(runner).succeeded
    text = (tmp_path / "job-1-1.log").read_text()
    assert len(text) < 100_000 + (64 << 10) + 200
    assert text.startswith("line 0\nline 1\n")
    assert text.endswith("line 99999\nthe last word\n")
    assert "bytes left out here: a log is kept up to 100000 bytes" in text


def test_it_reports_a_log_that_cannot_be_written(runner, tmp_path):
    (tmp_path / "log").mkdir()
    runner.start(spec(tmp_path, "print(1)", log=tmp_path / "log"))
    assert end_of(runner).reason == f"could not start: log file {tmp_path}/log: Is a directory"


def test_it_forgets_only_ended_runs(runner, tmp_path):
    run = spec(tmp_path, "import os; os.mkfifo('go'); open('go').read()")
    runner.forget("job-1-1")
    runner.start(run)
    eventually((tmp_path / "work/go").exists)
    with pytest.raises(RunnerError, match="still running"):
        runner.forget("job-1-1")
    runner.stop("job-1-1", 0)
    assert end_of(runner).state == "exited"
    runner.forget("job-1-1")
    runner.forget("job-1-1")
    assert runner.poll("job-1-1").state == "unknown"
    assert runner.names() == []
    assert list((tmp_path / "runs").iterdir()) == []
    (tmp_path / "work/go").unlink()
    runner.start(run)
    assert runner.poll("job-1-1").state == "running"


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a" * 101, "é", "a\n"])
def test_it_refuses_a_name_that_cannot_be_a_folder(runner, tmp_path, name):
    with pytest.raises(ValueError, match="name"):
        spec(tmp_path, "", name=name)
    with pytest.raises(ValueError, match="name"):
        runner.poll(name)


@pytest.mark.parametrize("environment", [{"A": 1}, {"A=B": "x"}, {"": "x"}, {"A": "x\0"}])
def test_it_refuses_an_invalid_environment(tmp_path, environment):
    with pytest.raises(ValueError, match="environment"):
        spec(tmp_path, "", environment=environment)


@pytest.mark.parametrize("fields", [{"workers": 0}, {"kind": "service"}, {"port": 31000}])
def test_it_refuses_contradictory_specs(tmp_path, fields):
    with pytest.raises(ValueError, match=r"workers|port"):
        spec(tmp_path, "", **fields)


def test_a_service_has_an_address_while_it_runs(runner, tmp_path):
    """It serves on a socket that it was handed as services of systemd are."""
    code = """
import os, socket
assert (os.environ['LISTEN_PID'], os.environ['LISTEN_FDS']) == (str(os.getpid()), '1')
assert os.listdir('/proc/self/fd') == ['0', '1', '2', '3', '4'], 'the last one is that of the listing'
listener = socket.socket(fileno=3)
listener.listen()
while True: listener.accept()[0].sendall(b'here')
"""
    assert runner.address("app") is None
    runner.start(spec(tmp_path, code, name="app", kind="service", port=31000))

    def answer() -> bytes:
        with (
            contextlib.suppress(FileNotFoundError, ConnectionRefusedError),
            sockets.connect(runner.address("app"), 60) as link,
        ):
            return link.recv(10)
        return b""

    assert eventually(answer) == b"here"
    path = Path(runner.address("app"))
    records = tmp_path / "runs" / "app" / "spec.json"
    values = json.loads(records.read_text())
    records.write_text(json.dumps({key: value for key, value in values.items() if key != "socket"}))
    assert runner.address("app") == ("127.0.0.1", 31000), "that of a run which an older release has started"
    runner.stop("app", 0)
    end_of(runner, "app")
    assert runner.address("app") is None
    assert not path.exists()


def test_the_socket_of_a_killed_service_is_removed_with_its_records(runner, tmp_path):
    for name in ("app", "other"):
        runner.start(spec(tmp_path, "import time; time.sleep(600)", name=name, kind="service", port=31000))
    paths = [Path(runner.address(name)) for name in ("app", "other")]
    for name in ("app", "other"):
        begun = eventually(lambda name=name: _with_script(tmp_path / "runs" / name / "begun.json"))
        os.kill(begun["shim"], signal.SIGKILL)
        assert end_of(runner, name).state == "lost"
    assert all(path.is_socket() for path in paths)
    with pytest.raises(ConnectionRefusedError):
        sockets.connect(str(paths[0]), 5)
    runner.forget("app")
    shutil.rmtree(tmp_path / "runs" / "other")
    assert runner.names() == []
    assert not any(path.exists() for path in paths)


def _with_script(path: Path) -> dict | None:
    begun = json.loads(path.read_bytes())
    return begun if begun["script"] else None


# --- stopping -------------------------------------------------------------------------------------------------
# Not by a handler and pause(): a signal that comes between the two is handled only after the next one.
WAITS = (
    "import signal\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n"
    "open('ready', 'w')\n"
    "signal.sigwait({signal.SIGTERM})\n"
)


def test_it_stops_with_a_signal_that_the_script_may_handle(runner, tmp_path):
    code = f"{WAITS}print('saving')"
    runner.start(spec(tmp_path, code))
    eventually((tmp_path / "work/ready").exists)
    runner.stop("job-1-1", 30)
    runner.stop("job-1-1", 30)
    status = end_of(runner)
    assert (status.exit_code, status.reason) == (0, "stopped on request, exit code 0")
    assert tail(tmp_path / "job-1-1.log") == "saving"
    runner.stop("job-1-1")
    assert runner.poll("job-1-1") == status


@pytest.mark.long
def test_it_kills_a_script_that_ignores_the_signal(runner, tmp_path):
    code = f"{WAITS}open('asked', 'w')\nwhile True: signal.pause()"
    runner.start(spec(tmp_path, code))
    eventually((tmp_path / "work/ready").exists)
    runner.stop("job-1-1", 60)
    eventually((tmp_path / "work/asked").exists)
    asked = time.monotonic()
    runner.stop("job-1-1", 2)
    status = end_of(runner)
    assert time.monotonic() - asked > 1.9
    assert (status.exit_code, status.signal) == (None, 9)
    assert status.reason == "stopped on request, did not end within 2 s, killed by signal 9 (SIGKILL)"


def test_a_second_request_shortens_the_grace(runner, tmp_path):
    code = "import signal; signal.signal(15, signal.SIG_IGN); open('ready', 'w')\nwhile True: signal.pause()"
    runner.start(spec(tmp_path, code))
    eventually((tmp_path / "work/ready").exists)
    runner.stop("job-1-1", 300)
    runner.stop("job-1-1", 0)
    assert end_of(runner).signal == 9


def test_a_frozen_script_is_stopped_as_well(runner, tmp_path):
    runner.start(spec(tmp_path, "import os; open('pid', 'w').write(f'{os.getpid()}\\n'); os.kill(os.getpid(), 19)"))
    number_in(tmp_path / "work/pid")
    runner.stop("job-1-1", 20)
    assert end_of(runner).signal == 15


DAEMONS = """
import os, signal, sys
def daemon(name):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.closerange(0, 100)
            open(name, 'w').write(f'{os.getpid()}\\n')
            while True: signal.pause()
        os._exit(0)
    os.wait()
for name in ('one', 'two'): daemon(name)
os.mkfifo('go')
open('go').read()
"""


def test_it_ends_daemons_on_stop(runner, tmp_path):
    runner.start(spec(tmp_path, DAEMONS))
    pids = [number_in(tmp_path / "work" / name) for name in ("one", "two")]
    assert all(alive(pid) for pid in pids)
    runner.stop("job-1-1", 5)
    assert end_of(runner).signal == 15
    assert not any(alive(pid) for pid in pids)


def test_it_ends_daemons_when_the_script_ends(runner, tmp_path):
    runner.start(spec(tmp_path, DAEMONS))
    pids = [number_in(tmp_path / "work" / name) for name in ("one", "two")]
    eventually((tmp_path / "work/go").exists)
    (tmp_path / "work/go").write_text("")
    assert end_of(runner).exit_code == 0
    assert not any(alive(pid) for pid in pids)


def test_it_kills_processes_that_keep_forking(runner, tmp_path):
    code = "import os, time\nopen('ready', 'w')\nwhile True:\n    if os.fork() == 0: os.setsid()\n    time.sleep(0.2)"
    runner.start(spec(tmp_path, code))
    eventually((tmp_path / "work/ready").exists)
    eventually(lambda: len(of_run(tmp_path)) >= 8, what="the processes to multiply")
    runner.stop("job-1-1", 0)
    assert end_of(runner).state == "exited"
    assert of_run(tmp_path) == []


def of_run(tmp_path) -> list[int]:
    """Return the live processes that work in the run's folder."""
    pids = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.readlink(f"/proc/{entry}/cwd") == str(tmp_path / "work"):
                pids.append(int(entry))
        except OSError:
            continue
    return [pid for pid in pids if alive(pid)]


def test_it_stops_all(runner, tmp_path):
    for number in range(4):
        runner.start(spec(tmp_path, "import signal; signal.pause()", name=f"job-{number}-1"))
    runner.start(spec(tmp_path, "", name="done"))
    end_of(runner, "done")
    assert runner.stop_all(5) == []
    assert {runner.poll(f"job-{number}-1").state for number in range(4)} == {"exited"}
    assert runner.poll("done").exit_code == 0
    assert runner.stop_all(5) == []


# --- helpers --------------------------------------------------------------------------------------------------
def test_tail_returns_the_last_lines(tmp_path):
    log = tmp_path / "log"
    assert tail(log) == ""
    log.write_bytes(b"".join(b"line %d\n" % i for i in range(50_000)) + b"end \xff")
    assert tail(log, 3) == "line 49998\nline 49999\nend \ufffd"
    assert len(tail(log, 10**6)) <= 64 << 10


def test_the_setting_chooses_the_runner(settings, tmp_path):
    settings.MLP_ROOT = tmp_path
    settings.MLP_RUNNER = "local"
    assert isinstance(runners.get(), LocalRunner)
    assert runners.get() is runners.get()
    settings.MLP_RUNNER = "slurm"
    with pytest.raises(ImproperlyConfigured, match="not 'slurm'"):
        runners.get()


def test_tail_is_storable_whatever_was_written(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"bad \0\n\xed\xa0\x80")
    assert "\0" not in tail(log)
    assert tail(log).splitlines()[0] == "bad \ufffd"
    tail(log).encode()


def test_reasons_are_always_storable():
    assert RunStatus("lost", reason="evicted \0\ud800").reason == "evicted \ufffd\ufffd"


def test_runs_may_read_packages_of_another_environment_but_not_the_platforms_code(monkeypatch, tmp_path):
    shared = tmp_path / "lib" / "site-packages"
    shared.mkdir(parents=True)
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path, str(shared)])
    folders = confine.runtime(sys.executable)
    assert str(shared) in folders
    assert str(tmp_path) not in folders
    assert sys.prefix in folders


def test_a_run_whose_records_were_not_restored_is_lost_with_that_reason(runner, tmp_path):
    runner.declare_lost("job-1-1", Message("lost in %(place)s", place="a move"))
    status = runner.poll("job-1-1")
    assert (status.state, str(status.reason), status.reason.template) == ("lost", "lost in a move", "lost in %(place)s")
    assert runner.names() == ["job-1-1"]
    runner.forget("job-1-1")
    assert runner.poll("job-1-1").state == "unknown"


def test_a_run_on_record_is_not_declared_lost(runner, tmp_path):
    runner.start(spec(tmp_path, "print('done')"))
    name = runner.names()[0]
    assert end_of(runner).succeeded
    runner.declare_lost(name, Message("lost"))
    assert runner.poll(name).succeeded

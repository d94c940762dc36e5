"""The local runner with racing callers, and with every process killed at every point."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mlp.tests.tiers import later
from runners import RunnerError, local
from runners.local import LocalRunner

from .helpers import alive, end_of, eventually, number_in, spec

COUNT = "import os; os.write(os.open('count', os.O_WRONLY | os.O_APPEND | os.O_CREAT), b'x'); "
WAIT = "import os, signal; open('pid', 'w').write(f'{os.getpid()}\\n')\nwhile True: signal.pause()"


@pytest.fixture
def runner(tmp_path):
    runner = LocalRunner(tmp_path / "runs")
    yield runner
    assert runner.stop_all(0) == []


def record(tmp_path, name: str = "job-1-1") -> dict:
    """Return the run's own record of its processes, once the script has started."""
    path = tmp_path / "runs" / name / "begun.json"
    return eventually(lambda: json.loads(path.read_bytes())["script"] and json.loads(path.read_bytes()))


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()[1])


def in_child(function) -> int:
    """Fork, call the function in the child, and return the child's process id."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    return pid


def test_twenty_threads_start_one_run(runner, tmp_path):
    run = spec(tmp_path, COUNT)
    barrier, failures = threading.Barrier(20), []

    def start():
        barrier.wait()
        try:
            runner.start(run)
            assert runner.poll(run.name).state in {"running", "exited"}
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert end_of(runner).succeeded
    assert (tmp_path / "work/count").read_text() == "x"


@pytest.mark.long
def test_twenty_processes_start_one_run(runner, tmp_path):
    run = spec(tmp_path, COUNT)
    gate, opened = os.pipe()

    def start():
        os.close(opened)
        os.read(gate, 1)
        LocalRunner(tmp_path / "runs").start(run)

    children = [in_child(start) for _ in range(20)]
    os.close(opened)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 20
    os.close(gate)
    assert end_of(runner).succeeded
    assert (tmp_path / "work/count").read_text() == "x"


@pytest.mark.parametrize("step", [12, later(1)])
def test_a_start_killed_at_any_line_can_be_repeated_once(tmp_path, step):
    """Kills the caller at the n-th line of our own code, for each n-th; then another caller starts the same name."""
    runner, killed = LocalRunner(tmp_path / "runs"), True
    number = 1 - step
    while killed:
        number += step
        run = spec(tmp_path, f"open('count-{number}', 'a').write('x')", name=f"run-{number}")
        status = os.waitpid(in_child(lambda n=number, run=run: start_until_line(runner, run, n)), 0)[1]
        killed = os.WIFSIGNALED(status)
        assert killed or status == 0
        runner.start(run)
        assert end_of(runner, run.name).succeeded
        assert (tmp_path / f"work/count-{number}").read_text() == "x"
    assert number > 30  # it was really killed on the way


def start_until_line(runner, run, number: int) -> None:
    left = number

    def trace(frame, event, _):
        nonlocal left
        if frame.f_code.co_filename != local.__file__:
            return None
        if event == "line":
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    runner.start(run)
    sys.settrace(None)


def test_it_outlives_the_process_that_started_it(runner, tmp_path):
    code = "import os; os.mkfifo('go'); open('go').read(); print('still here')"
    starter = (
        "import sys; from pathlib import Path; from runners.base import RunSpec\n"
        "from runners.local import LocalRunner\n"
        f"LocalRunner(Path({str(tmp_path / 'runs')!r})).start(RunSpec('job-1-1', [sys.executable, '-c', {code!r}],"
        f" Path({str(tmp_path / 'work')!r}), {{}}, Path({str(tmp_path / 'job-1-1.log')!r})))\n"
        "import os, signal; os.killpg(0, signal.SIGKILL)"
    )
    (tmp_path / "work").mkdir()
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "mlp.settings", "MLP_ROOT": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", starter], start_new_session=True, env=environment)
    assert done.returncode == -signal.SIGKILL
    eventually((tmp_path / "work/go").exists)
    assert runner.poll("job-1-1").state == "running"
    (tmp_path / "work/go").write_text("")
    assert end_of(runner).succeeded
    assert (tmp_path / "job-1-1.log").read_text() == "still here\n"


def test_a_stop_outlives_the_process_that_requested_it(runner, tmp_path):
    runner.start(spec(tmp_path, "import signal; signal.signal(15, signal.SIG_IGN); " + WAIT))
    script = number_in(tmp_path / "work/pid")

    def ask():
        runner.stop("job-1-1", 0.3)
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(in_child(ask), 0)
    assert end_of(runner).signal == 9
    assert not alive(script)


FORKING = (
    "import os, signal\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0: open('daemon', 'w').write(f'{os.getpid()}\\n')\n"
    "    else: os._exit(0)\n"
    "else: open('pid', 'w').write(f'{os.getpid()}\\n')\n"
    "while True: signal.pause()"
)


def test_a_killed_shim_is_a_lost_run_without_remains(runner, tmp_path):
    run = spec(tmp_path, FORKING)
    runner.start(run)
    script, daemon = number_in(tmp_path / "work/pid"), number_in(tmp_path / "work/daemon")
    os.kill(record(tmp_path)["shim"], signal.SIGKILL)
    status = end_of(runner)
    # The lock is free only when all is gone, so this holds at once.
    assert not alive(script)
    assert not alive(daemon)
    assert (status.state, status.exit_code, status.signal) == ("lost", None, None)
    assert "its end was not recorded" in status.reason
    assert status.started
    runner.start(run)
    assert runner.poll("job-1-1").state == "lost"
    runner.stop("job-1-1", 0)
    runner.forget("job-1-1")
    assert runner.poll("job-1-1").state == "unknown"


def test_a_killed_guard_is_an_ended_run_without_remains(runner, tmp_path):
    runner.start(spec(tmp_path, FORKING))
    script, daemon = number_in(tmp_path / "work/pid"), number_in(tmp_path / "work/daemon")
    os.kill(parent_of(script), signal.SIGKILL)
    status = end_of(runner)
    assert (status.state, status.reason) == ("exited", "killed together with its guard process")
    assert not alive(script)
    assert not alive(daemon)


def test_shim_and_guard_killed_together_leave_nothing_after_a_poll(runner, tmp_path):
    runner.start(spec(tmp_path, FORKING))
    script, daemon = number_in(tmp_path / "work/pid"), number_in(tmp_path / "work/daemon")
    shim, guard = record(tmp_path)["shim"], parent_of(script)
    os.kill(guard, signal.SIGSTOP)  # so that it cannot see the shim's end before its own
    os.kill(shim, signal.SIGKILL)
    os.kill(guard, signal.SIGKILL)
    assert end_of(runner).state == "lost"
    eventually(lambda: not alive(script) and not alive(daemon))


def test_a_killed_script_is_an_exited_run(runner, tmp_path):
    runner.start(spec(tmp_path, FORKING))
    script, daemon = number_in(tmp_path / "work/pid"), number_in(tmp_path / "work/daemon")
    os.kill(script, signal.SIGKILL)
    status = end_of(runner)
    assert (status.state, status.signal) == ("exited", 9)
    assert not alive(daemon)


def test_a_terminated_shim_stops_its_run_gracefully(runner, tmp_path):
    runner.start(spec(tmp_path, WAIT, grace_s=20))
    number_in(tmp_path / "work/pid")
    os.kill(record(tmp_path)["shim"], signal.SIGTERM)
    status = end_of(runner)
    assert status.signal == 15
    assert status.reason.startswith("stopped because its supervisor received SIGTERM")


def test_a_stop_request_before_the_start_is_kept(runner, tmp_path):
    """The stop request is written before the shim starts, as when a stop comes during the start."""
    (tmp_path / "runs/job-1-1").mkdir(parents=True)
    (tmp_path / "runs/job-1-1/stop.json").write_text('{"grace_s": 5}')
    runner.start(spec(tmp_path, COUNT))
    status = end_of(runner)
    assert (status.state, status.reason) == ("exited", "stopped before it started")
    assert not (tmp_path / "work/count").exists()


@pytest.mark.parametrize("turns", [60, later(600)])
def test_concurrent_starts_stops_polls_and_forgets_agree(runner, tmp_path, turns):
    """Many callers, few names, all calls at once: never an error, never two runs of one name."""
    code = (
        "import fcntl, os, sys, time\n"
        "file = open(sys.argv[1], 'a')\n"
        "try: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError: open('twice', 'w')\n"
        "time.sleep(0.02)"
    )
    failures = []

    def caller(number: int) -> None:
        name = f"run-{number % 2}"
        run = spec(tmp_path, code, name=name, command=[sys.executable, "-I", "-S", "-c", code, name])
        verbs = [lambda: runner.start(run), lambda: runner.poll(name), lambda: runner.stop(name, 0)]
        try:
            for turn in range(turns):
                verbs[(turn + number) % 3]()
                if turn % 5 == 0 and runner.poll(name).state == "exited":
                    with contextlib.suppress(RunnerError):  # another caller has started it again
                        runner.forget(name)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert runner.stop_all(0) == []
    assert not (tmp_path / "work/twice").exists()


def test_a_run_that_ends_while_it_is_polled_is_not_lost(runner, tmp_path, monkeypatch):
    """The lock is read before the records: in the other order, an end between the two would look like a crash."""
    run = spec(tmp_path, WAIT)
    runner.start(run)
    pid, is_free = number_in(tmp_path / "work/pid"), local._is_free

    def ends_before_the_answer(path) -> bool:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        return eventually(lambda: is_free(path))

    monkeypatch.setattr(local, "_is_free", ends_before_the_answer)
    assert (runner.poll(run.name).state, runner.poll(run.name).signal) == ("exited", signal.SIGTERM)


def test_a_run_that_ends_during_a_poll_is_exited_or_running_but_never_lost(runner, tmp_path, monkeypatch):
    run = spec(tmp_path, WAIT)
    runner.start(run)
    pid, is_free = number_in(tmp_path / "work/pid"), local._is_free

    def ends_after_the_answer(path) -> bool:
        free = is_free(path)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        eventually(lambda: is_free(path))
        return free

    monkeypatch.setattr(local, "_is_free", ends_after_the_answer)
    assert runner.poll(run.name).state == "exited"


def test_of_a_run_whose_folder_was_deleted_no_process_stays(tmp_path):
    LocalRunner(tmp_path / "runs").start(spec(tmp_path, WAIT))
    script = number_in(tmp_path / "work/pid")
    shim = record(tmp_path)["shim"]
    shutil.rmtree(tmp_path / "runs" / "job-1-1")
    os.kill(script, signal.SIGKILL)
    eventually(lambda: not alive(shim))

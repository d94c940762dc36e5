"""The behaviour that all runners share: the same tests against each of them."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kernel.textlog.times import Times
from mlp.tests.tiers import few, later
from runners import Mount, RunnerError, RunStatus, tail
from runners.local import LocalRunner

from .helpers import ENVIRONMENT, end_of, eventually, spec


@pytest.fixture(params=["local", "kubernetes", later("kubernetes-watched")])
def runner(request, tmp_path):
    if request.param == "local":
        runner = LocalRunner(tmp_path / "runs")
        yield runner
        assert runner.stop_all(0) == []
        return
    runner = request.getfixturevalue("kubernetes")
    with runner.watch(lambda: None) if request.param == "kubernetes-watched" else nullcontext():
        yield runner


def test_it_runs_a_command_to_its_end(runner, tmp_path):
    before = time.time()
    runner.start(spec(tmp_path, "print('hello')"))
    status = end_of(runner)
    assert (status.state, status.exit_code, status.signal) == ("exited", 0, None)
    assert status.succeeded
    assert before - 1 <= status.started <= status.ended <= time.time()  # a cluster tells whole seconds
    assert (tmp_path / "job-1-1.log").read_text() == "hello\n"
    assert runner.names() == ["job-1-1"]


def test_it_is_running_meanwhile(runner, tmp_path):
    runner.start(spec(tmp_path, "import os; os.mkfifo('go'); open('go').read()"))
    eventually((tmp_path / "work/go").exists)
    assert runner.poll("job-1-1").state == "running"
    (tmp_path / "work/go").write_text("")
    assert end_of(runner).exit_code == 0


def test_it_reports_the_exit_code(runner, tmp_path):
    runner.start(spec(tmp_path, "raise SystemExit(3)"))
    status = end_of(runner)
    assert (status.exit_code, status.signal, status.reason) == (3, None, "exit code 3")
    assert not status.succeeded


def test_it_reports_the_signal(runner, tmp_path):
    runner.start(spec(tmp_path, "import os; os.kill(os.getpid(), 9)"))
    status = end_of(runner)
    assert (status.exit_code, status.signal) == (None, 9)
    assert status.reason == "killed by signal 9 (SIGKILL)"


def test_it_reports_a_missing_command(runner, tmp_path):
    runner.start(spec(tmp_path, "", command=["no-such-program"]))
    status = end_of(runner)
    assert (status.state, status.exit_code, status.signal) == ("exited", None, None)
    assert status.reason.startswith("could not start: ")
    assert "no-such-program" in status.reason


ODD = ["$(HOME)", "$$(HOME)", "a$$b", "$$$", "$", "$(NOWHERE)", "$HOME", "a $(", ""]


def test_arguments_and_variables_are_unchanged(runner, tmp_path):
    code = "import sys, os, json; print(json.dumps([sys.argv[1:], os.environ['ODD']]))"
    given = spec(tmp_path, code, environment=ENVIRONMENT | {"ODD": " ".join(ODD)})
    runner.start(replace(given, command=[*given.command, *ODD]))
    assert end_of(runner).succeeded
    assert json.loads((tmp_path / "job-1-1.log").read_text()) == [ODD, " ".join(ODD)]


def test_it_passes_the_environment_of_the_spec_only(runner, tmp_path, monkeypatch):
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    runner.start(spec(tmp_path, code, environment=ENVIRONMENT | {"GREETING": "grüß", "EMPTY": ""}, cpu=3.5))
    assert end_of(runner).succeeded
    environment = json.loads((tmp_path / "job-1-1.log").read_text())
    assert environment["GREETING"] == "grüß"
    assert environment["EMPTY"] == ""
    assert (environment["OMP_NUM_THREADS"], environment["OMP_WAIT_POLICY"]) == ("3", "passive")
    assert "DATABASE_PASSWORD" not in environment


def test_it_keeps_every_line_of_both_outputs_in_order(runner, tmp_path):
    runner.start(spec(tmp_path, "import os\nfor i in range(3000): os.write(1 + i % 2, b'%d\\n' % i)"))
    assert end_of(runner).succeeded
    assert (tmp_path / "job-1-1.log").read_text().split() == [str(i) for i in range(3000)]


def test_it_appends_to_the_log(runner, tmp_path):
    for attempt in ("1", "2"):
        run = spec(tmp_path, f"print('attempt {attempt}')", name=f"job-1-{attempt}", log=tmp_path / "a/b/job.log")
        runner.start(run)
        end_of(runner, run.name)
    assert tail(tmp_path / "a/b/job.log") == "attempt 1\nattempt 2"
    with Times((tmp_path / "a/b/job.times").open("rb")) as times:
        assert [offset for offset, _at in times.begins()] == [0, 10]
        lines = [{"offset": offset} for offset in (0, 10)]
        times.put(lines)
    ages = [datetime.now(UTC) - datetime.fromisoformat(line["at"]) for line in lines]
    assert timedelta(minutes=1) > ages[0] > ages[1] > timedelta(0)


def test_it_limits_the_log_and_keeps_its_end(runner, tmp_path):
    code = "for i in range(20_000): print('line', i)\nprint('the last word')"
    runner.start(spec(tmp_path, code, log_limit=20_000))
    assert end_of(runner).succeeded
    text = (tmp_path / "job-1-1.log").read_text()
    assert len(text) < 20_000 + (64 << 10) + 200
    assert text.startswith("line 0\nline 1\n")
    assert text.endswith("line 19999\nthe last word\n")
    assert "bytes left out here: a log is kept up to 20000 bytes" in text


def test_it_starts_a_name_once(runner, tmp_path):
    run = spec(tmp_path, "open('count', 'a').write('x')")
    runner.start(run)
    runner.start(run)
    first = end_of(runner)
    runner.start(run)
    assert runner.poll("job-1-1") == first
    assert (tmp_path / "work/count").read_text() == "x"


def test_it_starts_a_name_once_for_many_callers(runner, tmp_path):
    run = spec(tmp_path, "open('count', 'a').write('x')")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(runner.start, [run] * 8))
    assert end_of(runner).succeeded
    assert (tmp_path / "work/count").read_text() == "x"


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
    assert eventually(lambda: runner.poll("job-1-1").state == "unknown")
    assert runner.names() == []
    (tmp_path / "work/go").unlink()
    runner.start(run)
    eventually((tmp_path / "work/go").exists)
    assert runner.poll("job-1-1").state == "running"


def test_unknown_names_have_no_run(runner):
    runner.stop("nobody")
    assert runner.poll("nobody") == RunStatus("unknown", reason="no run of this name")


@pytest.mark.parametrize("name", few(["Job_1.Model", "a" * 100, "1", "x-0123456789", "A.b", "a-b"], 6))
def test_any_legal_name_names_a_run(runner, tmp_path, name):
    runner.start(spec(tmp_path, "print(1)", name=name))
    assert end_of(runner, name).succeeded
    assert runner.names() == [name]


@pytest.mark.parametrize("name", few(["", "..", ".hidden", "a/b", "a" * 101, "é", "a\n"], 7))
def test_it_refuses_a_name_that_cannot_name_a_run(runner, name):
    with pytest.raises(ValueError, match="name"):
        runner.poll(name)


# --- stopping -------------------------------------------------------------------------------------------------
def test_it_stops_with_a_signal_that_the_script_may_handle(runner, tmp_path):
    code = (
        "import signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n"  # with a handler and pause() it could be missed
        "open('ready', 'w')\n"
        "signal.sigwait({signal.SIGTERM})\n"
        "open('saved', 'w')"
    )
    runner.start(spec(tmp_path, code))
    eventually((tmp_path / "work/ready").exists)
    runner.stop("job-1-1", 30)
    runner.stop("job-1-1", 30)
    status = end_of(runner)
    assert status.state == "exited"
    assert status.reason.startswith("stopped on request")
    assert (tmp_path / "work/saved").exists()
    runner.stop("job-1-1")
    assert runner.poll("job-1-1") == status


def test_it_kills_a_script_that_ignores_the_signal(runner, tmp_path):
    code = "import signal; signal.signal(15, signal.SIG_IGN); open('ready', 'w')\nwhile True: signal.pause()"
    runner.start(spec(tmp_path, code))
    eventually((tmp_path / "work/ready").exists)
    runner.stop("job-1-1", 300)
    runner.stop("job-1-1", 0.5)
    status = end_of(runner)
    assert status.state == "exited"
    assert status.signal in {9, None}  # a cluster may have removed the pod before anybody saw how it ended
    assert status.reason.startswith("stopped on request")


def test_a_stopped_run_never_starts_again(runner, tmp_path):
    run = spec(tmp_path, "import signal; open('count', 'a').write('x'); signal.pause()")
    count = tmp_path / "work/count"
    runner.start(run)
    eventually(lambda: count.exists() and count.read_text() == "x")
    runner.stop(run.name, 0)
    first = end_of(runner)
    runner.start(run)
    assert runner.poll(run.name) == first
    assert count.read_text() == "x"


def test_it_stops_all(runner, tmp_path):
    for number in range(3):
        runner.start(spec(tmp_path, "import signal; signal.pause()", name=f"job-{number}-1"))
    runner.start(spec(tmp_path, "", name="done"))
    end_of(runner, "done")
    assert runner.stop_all(5) == []
    assert {runner.poll(f"job-{number}-1").state for number in range(3)} == {"exited"}
    assert runner.poll("done").exit_code == 0
    assert runner.stop_all(5) == []


# --- what a run finds -------------------------------------------------------------------------------------------
def test_mounts_are_at_their_paths(runner, tmp_path):
    source = tmp_path / "datasets" / "digits"
    source.mkdir(parents=True)
    (source / "train.csv").write_text("1,2,3")
    seen = runner.place(source, "/datasets/digits")
    code = "import sys; print(open(sys.argv[1] + '/train.csv').read())"
    run = spec(tmp_path, code, mounts=(Mount(source, "/datasets/digits"),), owner=7)
    runner.start(replace(run, command=[*run.command, seen]))
    assert end_of(runner).succeeded
    assert tail(tmp_path / "job-1-1.log") == "1,2,3"


def test_a_service_has_an_address_while_it_runs(runner, tmp_path):
    code = "import signal; open('ready', 'w'); signal.pause()"
    runner.start(spec(tmp_path, code, name="app-1-1", kind="service", port=31999, owner=7))
    eventually((tmp_path / "work/ready").exists)
    address = runner.address("app-1-1")
    assert (address[1] == 31999) if runner.listen else Path(address).is_socket()
    runner.stop("app-1-1", 0)
    assert end_of(runner, "app-1-1").state == "exited"
    assert runner.address("app-1-1") is None
    assert runner.address("nobody") is None


def test_a_service_that_keeps_crashing_ends_with_a_reason(runner, tmp_path):
    code = "print('falling', flush=True)\nraise SystemExit(4)"
    runner.start(spec(tmp_path, code, name="app-1-1", kind="service", port=31999, owner=7))
    status = end_of(runner, "app-1-1")
    assert tail(tmp_path / "app-1-1.log").splitlines()[-1] == "falling"
    assert (status.state, status.exit_code, status.reason) == ("exited", 4, "exit code 4")
    assert runner.poll("app-1-1") == status

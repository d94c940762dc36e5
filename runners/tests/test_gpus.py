"""The assignment of GPUs to runs. The list of devices is faked; locks and runs are real."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from runners import RunnerError
from runners.gpus import Device
from runners.local import LocalRunner

from .helpers import ENVIRONMENT, end_of, eventually, spec

WAIT = (
    "import json, os, signal\n"
    "open(os.environ['NAME'], 'w').write(json.dumps(os.environ['CUDA_VISIBLE_DEVICES']))\n"
    "signal.pause()"
)


def devices() -> list[Device]:
    return [Device(f"GPU-{number}", "made up", 1000, number) for number in range(3)]


@pytest.fixture
def runner(tmp_path):
    local = LocalRunner(tmp_path / "runs", devices=devices)
    yield local
    assert local.stop_all(0) == []


def start(runner, tmp_path, name: str, gpu: int = 1) -> None:
    run = spec(tmp_path, WAIT, name=name, gpu=gpu, environment={**ENVIRONMENT, "NAME": name})
    runner.start(run)


def devices_of(tmp_path, name: str) -> list[str]:
    path = tmp_path / "work" / name
    return json.loads(eventually(lambda: path.exists() and path.read_text())).split(",")


def begun(tmp_path, name: str) -> bool:
    """Start a run in a separate caller. Another caller may be checking or releasing a GPU at this moment."""
    try:
        start(LocalRunner(tmp_path / "runs", devices=devices), tmp_path, name)
    except RunnerError:
        return False
    return True


def test_no_two_runs_share_a_gpu(runner, tmp_path):
    names = [f"run-{number}" for number in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda name: eventually(lambda: begun(tmp_path, name)), names))
    assert sorted(devices_of(tmp_path, name)[0] for name in names) == ["GPU-0", "GPU-1", "GPU-2"]
    with pytest.raises(RunnerError, match="gpu: 1 wanted, 0 free"):
        start(LocalRunner(tmp_path / "runs", devices=devices), tmp_path, "late")
    assert runner.poll("late").state == "unknown"
    freed = devices_of(tmp_path, "run-1")
    runner.stop("run-1", 0)
    end_of(runner, "run-1")
    eventually(lambda: begun(tmp_path, "late"))
    assert devices_of(tmp_path, "late") == freed


def test_a_run_that_needs_more_gpus_than_are_free_gets_none(runner, tmp_path):
    start(runner, tmp_path, "first", gpu=2)
    with pytest.raises(RunnerError, match="gpu: 2 wanted, 1 free"):
        start(runner, tmp_path, "second", gpu=2)
    start(runner, tmp_path, "third")
    assert not {*devices_of(tmp_path, "first")} & {*devices_of(tmp_path, "third")}

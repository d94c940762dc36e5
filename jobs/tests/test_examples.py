"""Each example runs as a job does: by the local runner, in a workspace, with a job's environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from django.conf import settings

from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import later
from runners import RunSpec, RunStatus, tail
from runners.local import LocalRunner

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def job(tmp_path):
    """Run an example to its end in the workspace; return the status and its output."""
    runner = LocalRunner(tmp_path / "runs")
    workspace = tmp_path / "workspace"
    workspace.mkdir()

    def run(example: str, *arguments: str, attempt: int = 1) -> tuple[RunStatus, str]:
        name = f"job-1-{attempt}"
        environment = {
            "PATH": os.defpath,
            "HOME": str(workspace),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(ROOT / "jobs" / "report"),
            "MLP_DATASETS": str(tmp_path / "datasets"),
            "MLP_ATTEMPT": str(attempt),
        }
        command = [settings.RUN_PYTHON, str(EXAMPLES / example / "train.py"), *arguments]
        runner.start(RunSpec(name, command, workspace, environment, tmp_path / f"{name}.log", ram_mib=512))
        deadline = time.monotonic() + LIMIT_S
        while (status := runner.poll(name)).state == "running":
            assert time.monotonic() < deadline, tail(tmp_path / f"{name}.log")
            time.sleep(0.02)
        return status, (tmp_path / f"{name}.log").read_text()

    yield run
    runner.stop_all(0)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The dataset, as the example's own script writes it."""
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("written") / "digits"
    command = [settings.RUN_PYTHON, str(EXAMPLES / "digits" / "make_dataset.py"), str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture
def digits(written, tmp_path):
    """The dataset in the folder that the job of this test is given."""
    return shutil.copytree(written, tmp_path / "datasets" / "digits")


def accuracy(log: str) -> float:
    """Return the accuracy of the last epoch that the script printed."""
    (line,) = [line for line in log.splitlines() if line.startswith("epoch") and "/" in line][-1:]
    return float(line.split("accuracy")[1].split()[0])


@pytest.mark.long
def test_the_dataset_is_realistic(digits):
    files = {str(path.relative_to(digits)): path.stat().st_size for path in digits.rglob("*") if path.is_file()}
    parts = {f"{part}/digits_{kind}.csv" for part in ("train", "test") for kind in "xy"}
    assert set(files) == parts | {"README.txt", "classes.csv"}
    assert 800_000 < sum(files.values()) < 2_000_000


@pytest.mark.long
def test_torch_learns_the_digits_and_resumes_from_its_checkpoint(job, digits, tmp_path):
    torch = pytest.importorskip("torch")
    status, log = job("digits", "--epochs", "3")
    assert status.succeeded, log
    assert accuracy(log) > 0.95
    assert "epoch 3  accuracy 0.9" in log
    assert "Warning" not in log
    ckpt = tmp_path / "workspace" / "ckpt"
    assert {path.name for path in ckpt.iterdir()} == {"last.pt", "model.pt"}
    with pytest.warns(DeprecationWarning, match=r"torch\.jit\.load"):
        model = torch.jit.load(ckpt / "model.pt")
    assert model(torch.zeros(5, 64)).shape == (5, 10)

    status, log = job("digits", "--epochs", "4", attempt=2)
    assert status.succeeded, log
    assert "attempt 2 goes on after epoch 3" in log
    assert "epoch   4/4" in log
    assert "epoch   3/4" not in log


def test_torch_reports_an_invalid_dataset(job):
    pytest.importorskip("torch")
    status, log = job("digits", "--dataset", "nothing")
    assert status.exit_code == 1
    assert "nothing/train/digits_x.csv not found" in log


@pytest.mark.long
@pytest.mark.parametrize("dataset", ["digits", later("nothing")])
def test_scikit_learn_learns_the_digits(job, digits, tmp_path, dataset):
    status, log = job("sklearn_digits", "--epochs", "8", "--dataset", dataset)
    assert status.succeeded, log
    assert accuracy(log) > 0.85
    assert ("scikit-learn's own copy" in log) == (dataset == "nothing")
    assert (tmp_path / "workspace/ckpt/model.npz").exists()


def test_plain_python_learns_its_points_and_resumes(job, tmp_path):
    status, log = job("plain_python", "--epochs", "5")
    assert status.succeeded, log
    assert accuracy(log) > 0.93
    status, log = job("plain_python", "--epochs", "6", "--slow", "0.01", attempt=2)
    assert "attempt 2 goes on after epoch 5" in log
    assert log.count("/6  loss") == 1
    assert (tmp_path / "workspace/ckpt/model.json").exists()


def test_keras_learns_the_digits_and_resumes_from_its_checkpoint(job, digits, tmp_path):
    pytest.importorskip("keras")
    status, log = job("keras_digits", "--epochs", "3")
    assert status.succeeded, log
    assert accuracy(log) > 0.85
    assert {path.name for path in (tmp_path / "workspace" / "ckpt").iterdir()} == {"last.weights.h5", "model.keras"}
    status, log = job("keras_digits", "--epochs", "1", attempt=2)
    assert "attempt 2 goes on" in log

"""The snippets of the page Connect with real clients and frameworks: pasted elsewhere, and as jobs of the platform.

A whole platform is started for them. `make frameworks` runs these tests with the Python of MLP_FRAMEWORKS; `make
mlflow` runs those of the first snippet with the Pythons of MLP_MLFLOW.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from supervision.tests.running import Platform
from tracking.mlflow.snippets import FOLDER, LIBRARIES, text

FRAMEWORKS = os.environ.get("MLP_FRAMEWORKS", "")
PYTHONS = [python for python in os.environ.get("MLP_MLFLOW", "").split(":") if python]
PLAIN, *_ = LIBRARIES
SMALL = {"mlflow": "mlflow-skinny", "xgboost": "xgboost-cpu"}  # the builds that the tests' environments have
WITH_MODEL = {"sklearn", "keras", "xgboost"}  # autologging stores what was trained
JOB_S = 300
# Of each library's run: some of its parameters, and some of its metrics.
REPORTS = {
    "mlflow": ({"lr": "0.1", "epochs": "20"}, {"loss", "accuracy"}),
    "sklearn": ({"n_estimators": "50", "max_depth": "8"}, {"training_accuracy_score", "training_f1_score"}),
    "lightning": ({"lr": "0.1"}, {"train_loss", "epoch"}),
    "transformers": ({"num_train_epochs": "3", "hidden_size": "16"}, {"loss", "learning_rate", "train_loss"}),
    "keras": ({"epochs": "5", "optimizer_name": "adam"}, {"loss", "accuracy", "val_loss", "val_accuracy"}),
    "xgboost": ({"max_depth": "3", "num_boost_round": "20"}, {"test-mlogloss"}),
}

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not (FRAMEWORKS or PYTHONS), reason="MLP_FRAMEWORKS is not given: make frameworks"),
]
with_frameworks = pytest.mark.skipif(not FRAMEWORKS, reason="MLP_FRAMEWORKS is not given: make frameworks")


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    """Start a platform; its jobs run with the Python that has the frameworks where one is given."""
    given = {"MLP_RUN_PYTHON": FRAMEWORKS} if FRAMEWORKS else {}
    platform = Platform(tmp_path_factory.mktemp("connect") / "root", **given)
    platform.start()
    yield platform
    done = platform.call("--down")
    assert done.returncode == 0, done.stdout + done.stderr


class Owner:
    """A user of the platform who sees it by REST and by MLflow's calls."""

    def __init__(self, platform: Platform, name: str):
        self.name, self.address = name, f"http://127.0.0.1:{platform.base + 1}"
        self.token = ""
        self.call("POST", "/api/v1/users", {"username": name, "password": "correct horse battery"})
        basic = base64.b64encode(f"{name}:correct horse battery".encode()).decode()
        self.token = json.loads(self.call("GET", f"/api/v1/users/{name}/token", Authorization=f"Basic {basic}"))

    def call(self, method: str, path: str, body=None, **headers: str) -> bytes:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **headers}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def mlflow(self, route: str, **fields) -> dict:
        return json.loads(self.call("POST", f"/mlflow/api/2.0/mlflow/{route}", fields))

    def runs(self) -> list[dict]:
        """Return all runs, newest first."""
        projects = self.mlflow("experiments/search", max_results=100).get("experiments", [])
        keys = [project["experiment_id"] for project in projects]
        return self.mlflow("runs/search", experiment_ids=keys).get("runs", []) if keys else []

    def project_of(self, run: dict) -> str:
        key = run["info"]["experiment_id"]
        experiment = json.loads(self.call("GET", f"/mlflow/api/2.0/mlflow/experiments/get?experiment_id={key}"))
        return experiment["experiment"]["name"]


@pytest.fixture(scope="module")
def owner(platform):
    return Owner(platform, "alice")


@pytest.fixture
def one_run(owner):
    """Return a function that returns the one run which is new since the test began."""
    known = {run["info"]["run_id"] for run in owner.runs()}

    def new() -> dict:
        (run,) = [run for run in owner.runs() if run["info"]["run_id"] not in known]
        return run

    return new


def reported(run: dict, library, output: str) -> None:
    """Check that a run has what its snippet reports; its output says why it has not."""
    params, metrics = REPORTS[library.key]
    reported_params = {param["key"]: param["value"] for param in run["data"].get("params", [])}
    assert {key: reported_params.get(key) for key in params} == params, output
    assert metrics <= {metric["key"] for metric in run["data"].get("metrics", [])}, output
    models = run.get("outputs", {}).get("model_outputs", [])
    assert bool(models) == (library.key in WITH_MODEL), output


def paste(owner: Owner, library, place: str, python: str, folder: Path) -> str:
    """Run a snippet as a user does who pastes it; return its output."""
    snippet = text(library, place, owner.address).whole(owner.token)
    first, newline, rest = snippet.partition("\n")
    assert "pip install" in first
    snippet = " ".join(SMALL.get(word, word) for word in first.split(" ")) + newline + rest
    (folder / "cell.ipy").write_text(snippet)
    command = {"bash": ["bash", "-e"], "python": [python, "-"], "notebook": [python, "-m", "IPython", "cell.ipy"]}
    environment = {
        "PATH": f"{Path(python).parent}:{os.defpath}", "HOME": str(folder), "PIP_NO_INDEX": "1", "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "NO_COLOR": "1",
    }  # fmt: skip
    done = subprocess.run(
        command[place], input=None if place == "notebook" else snippet, env=environment, cwd=folder,
        capture_output=True, text=True, timeout=JOB_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("place", ["bash", "python"])
@pytest.mark.parametrize("python", PYTHONS)
def test_the_first_snippet_works_with_each_release_of_the_client(owner, one_run, python, place, tmp_path):
    output = paste(owner, PLAIN, place, python, tmp_path)
    run = one_run()
    reported(run, PLAIN, output)
    assert (run["info"]["status"], owner.project_of(run)) == ("FINISHED", "quickstart")


@with_frameworks
@pytest.mark.parametrize("place", ["bash", "python", "notebook"])
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.key)
def test_a_snippet_that_is_pasted_reports_a_run(owner, one_run, library, place, tmp_path):
    output = paste(owner, library, place, FRAMEWORKS, tmp_path)
    run = one_run()
    reported(run, library, output)
    assert (run["info"]["status"], owner.project_of(run)) == ("FINISHED", "quickstart")
    address = f"{owner.address}/mlflow/#/experiments/{run['info']['experiment_id']}/runs/{run['info']['run_id']}"
    assert address in output


@pytest.fixture(scope="module")
def jobs(platform):
    """Submit all programs as jobs; return their owner."""
    owner = Owner(platform, "jobs")
    for library in LIBRARIES:
        entry = library.program
        owner.call("PUT", f"/data/jobs/.home/{entry}", (FOLDER / entry).read_bytes())
        job = {"name": library.key, "entry": entry, "cpu": 1, "ram": 2048, "env": {"HF_HUB_OFFLINE": "1"}}
        owner.call("POST", "/api/v1/users/jobs/jobs", job)
    return owner


@with_frameworks
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.key)
def test_the_same_program_as_a_job_fills_the_jobs_own_run_and_nothing_else(jobs, library):
    address, end = f"/api/v1/users/jobs/jobs/{library.key}", time.monotonic() + JOB_S
    while (job := json.loads(jobs.call("GET", address)))["state"] not in ("finished", "error"):
        assert time.monotonic() < end, jobs.call("GET", f"{address}/log").decode()
        time.sleep(0.2)
    log = jobs.call("GET", f"{address}/log").decode()
    assert job["state"] == "finished", log
    assert "Traceback" not in log
    runs = {run["info"]["run_id"]: run for run in jobs.runs()}
    assert len(runs) == len(LIBRARIES)  # one for each job
    own = runs[job["run_id"]]
    reported(own, library, log)
    assert (own["info"]["status"], jobs.project_of(own)) == ("FINISHED", "Default")

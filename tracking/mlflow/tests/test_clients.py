"""MLflow's own clients, of both major releases, against the platform.

They are large, so they are installed apart: `make mlflow` runs these tests, which are skipped where MLP_MLFLOW, the
Pythons that have them, joined by `:`, is not given.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from accounts import lifecycle as accounts
from jobs.artifacts.space import counted
from jobs.models import ArtifactSpace, Job, Origin

PYTHONS = [python for python in os.environ.get("MLP_MLFLOW", "").split(":") if python]
SCRIPT = Path(__file__).with_name("client_script.py")
ARTIFACTS = Path(__file__).with_name("artifact_script.py")

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not PYTHONS, reason="MLP_MLFLOW is not given: make mlflow"),
]


def run(python: str, script: Path, url: str, folder: Path, **credentials: str) -> None:
    environment = {
        **credentials, "MLFLOW_TRACKING_URI": f"{url}/mlflow", "PATH": os.environ["PATH"],
        "HOME": str(folder), "MLFLOW_DISABLE_TELEMETRY": "true", "GIT_PYTHON_REFRESH": "quiet",
    }  # fmt: skip
    done = subprocess.run(
        [python, script], env=environment, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("login", ["token", "password"])
@pytest.mark.parametrize("python", PYTHONS)
def test_an_unmodified_client_does_all_that_it_can(live_server, alice, python, login, tmp_path):
    token = accounts.token_of(alice)
    credentials = {"MLFLOW_TRACKING_TOKEN": token}
    if login == "password":
        credentials = {"MLFLOW_TRACKING_USERNAME": "alice", "MLFLOW_TRACKING_PASSWORD": token}
    run(python, SCRIPT, live_server.url, tmp_path, **credentials)
    assert Job.objects.filter(user=alice, origin=Origin.CLIENT).count() == 5


@pytest.mark.parametrize("python", PYTHONS)
def test_an_unmodified_client_stores_artifacts_and_models(site, alice, python, tmp_path):
    run(python, ARTIFACTS, site.url, tmp_path, MLFLOW_TRACKING_TOKEN=accounts.token_of(alice))
    space = ArtifactSpace.objects.order_by("pk").first()
    assert space.stored == counted(space.job) > 11 << 20

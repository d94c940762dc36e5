"""MLflow's own clients in a job: the registry as its owner gave it. `make mlflow` installs the clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from accounts import lifecycle as accounts
from jobs.artifacts import files
from jobs.auth import job_token
from jobs.models import Job
from mlp.operators.tests.admin_world import put
from models_app.models import ModelVersion
from tracking.mlflow.tests.conftest import Mlflow, front, site  # noqa: F401 (fixtures)
from tracking.mlflow.tests.test_clients import PYTHONS, run
from tracking.mlflow.tests.test_tracking import experiment, start

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not PYTHONS, reason="MLP_MLFLOW is not given: make mlflow"),
]


@pytest.mark.parametrize("python", PYTHONS)
def test_a_job_fetches_a_champion_and_registers_its_own_model(site, alice, python, tmp_path):  # noqa: F811
    owner = Mlflow(accounts.token_of(alice))
    elsewhere = Job.objects.get(run_id=start(owner, experiment(owner, "elsewhere")))
    files.put_bytes(elsewhere, "artifacts/model/MLmodel", b"flavors: {}")
    owner.call("post", "registered-models/create", name="churn")
    source, name = f"runs:/{elsewhere.run_id.hex}/model", {"name": "churn"}
    owner.call("post", "model-versions/create", source=source, run_id=elsewhere.run_id.hex, **name)
    owner.call("post", "registered-models/alias", alias="champion", version="1", **name)
    job = put(Job, alice, "fit", "running")
    run(
        python, Path(__file__).with_name("registry_script.py"), site.url, tmp_path, MLFLOW_TRACKING_TOKEN=job_token(job)
    )
    assert ModelVersion.objects.get(number=2).job == job

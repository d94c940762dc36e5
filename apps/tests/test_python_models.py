"""MLflow's own PythonModel, saved by a real MLflow, is checked and served in an environment that has MLflow. `make
mlflow` installs it; the environments come from the machine's package index.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import requests

from kernel import storage
from mlp.tests.patience import LIMIT_S
from models_app import reconcile as models_reconcile
from models_app.models import Model

from .conftest import NAMES, bearer_of

PYTHON = os.environ.get("MLP_MLFLOW_SERVER", "")
MAKER = Path(__file__).resolve().parents[2] / "models_app/tests/python_model.py"
ASKED = {  # kind -> the body of /invocations, and the predictions
    "table": ({"dataframe_records": [{"x": 1.5, "name": "Ann"}]}, {"sum": [11.5], "says": ["hello Ann"]}),
    "tensor": ({"instances": [[1, 2], [3, 4]]}, [3, 7]),
    "named": ({"inputs": {"a": [2, 3], "b": [5, 7]}}, [10, 21]),
    "hints": ({"inputs": ["ab", "c"]}, ["AB", "C"]),
}

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not PYTHON, reason="MLP_MLFLOW_SERVER is not given: make mlflow"),
]


@pytest.fixture
def saved(as_alice, alice, until, home, tmp_path):
    """Return a function that saves a model of a kind by MLflow, uploads it and waits for its check."""

    def save(kind: str) -> Model:
        environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "MLFLOW_DISABLE_TELEMETRY": "true"}
        command = [PYTHON, str(MAKER), str(tmp_path / kind), kind]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        shutil.copytree(tmp_path / kind, storage.home_dir("alice") / kind)
        body = {"name": next(NAMES), "src": f"home/{kind}"}
        assert as_alice.call("post", "users/alice/models", body).status_code == 201

        def is_checked() -> bool:
            models_reconcile.run()
            return Model.objects.get(name=body["name"]).state != "creating"

        until(is_checked)
        return Model.objects.get(name=body["name"])

    return save


@pytest.mark.parametrize("kind", ASKED)
def test_it_is_served(saved, deploy, ready, front, alice, kind):
    model = saved(kind)
    assert (model.state, str(model.reason), model.format) == ("ready", "", "mlflow/pyfunc")
    assert "mlflow==" in model.requirements
    app = ready(deploy(name=next(NAMES), model_name=model.name, ram=1024))
    body, predictions = ASKED[kind]
    address = f"{front}/alice/{app.name}/invocations"
    answer = requests.post(address, json=body, headers=bearer_of(alice), timeout=LIMIT_S)
    assert (answer.status_code, answer.json()) == (200, {"predictions": predictions}), answer.text

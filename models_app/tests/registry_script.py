"""A program that uses the client of MLflow as a job does, whose token is in the environment: it fetches a model of
another project by its alias, logs one of its own, and registers it. Run by test_registry_clients.py.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import mlflow
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

client = MlflowClient()
champion = Path(mlflow.artifacts.download_artifacts("models:/churn@champion"))
assert (champion / "MLmodel").read_text() == "flavors: {}", list(champion.iterdir())
folder = Path(tempfile.mkdtemp())
(folder / "MLmodel").write_text("flavors: {python_function: {}}")
with mlflow.start_run() as run:
    mlflow.log_artifacts(str(folder), "model")
    version = mlflow.register_model(f"runs:/{run.info.run_id}/model", "churn", await_registration_for=None)
assert int(version.version) == 2
client.set_model_version_tag("churn", "2", "checked", "yes")
codes = []
try:
    client.set_registered_model_alias("churn", "champion", "2")
except MlflowException as problem:
    codes.append(problem.error_code)
assert codes == ["PERMISSION_DENIED"], codes

"""A program that stores artifacts and models with MLflow's own client, of either major release: run by
test_clients.py through the real gateway. The library scikit-learn is used where it is installed.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import mlflow
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

MAJOR = int(mlflow.__version__.partition(".")[0])
LEARNS = all(importlib.util.find_spec(name) for name in ("sklearn", "pandas"))
client = MlflowClient()
mlflow.set_experiment("artifacts")

folder = Path("things")
(folder / "deep").mkdir(parents=True)
(folder / "a.txt").write_text("a")
(folder / "deep" / "ü +%.bin").write_bytes(b"b" * 200_000)
(folder / "empty").touch()

with mlflow.start_run() as run:
    mlflow.log_artifact("things/a.txt")
    mlflow.log_artifacts("things", "all")
    mlflow.log_text("some text", "notes/one.txt")
    mlflow.log_dict({"k": [1, 2]}, "notes/two.json")
    # in parts
    os.environ |= {
        "MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD": "true", "MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE": "1000000",
        "MLFLOW_MULTIPART_UPLOAD_CHUNK_SIZE": str(5 << 20),
    }  # fmt: skip
    large = os.urandom((11 << 20) + 5)
    Path("large.bin").write_bytes(large)
    mlflow.log_artifact("large.bin", "parts")

key = run.info.run_id
assert sorted(artifact.path for artifact in client.list_artifacts(key)) == ["a.txt", "all", "notes", "parts"]
assert {artifact.path: artifact.file_size for artifact in client.list_artifacts(key, "all")} == {
    "all/a.txt": 1, "all/deep": None, "all/empty": 0,
}  # fmt: skip
assert client.list_artifacts(key, "a.txt") == []
got = Path(mlflow.artifacts.download_artifacts(run_id=key, dst_path="got"))
assert (got / "all" / "deep" / "ü +%.bin").read_bytes() == b"b" * 200_000
assert (got / "all" / "empty").read_bytes() == b""
assert (got / "parts" / "large.bin").read_bytes() == large
assert mlflow.artifacts.load_text(f"runs:/{key}/notes/one.txt") == "some text"
assert mlflow.artifacts.load_dict(f"{run.info.artifact_uri}/notes/two.json") == {"k": [1, 2]}
refused = None
try:
    mlflow.artifacts.download_artifacts(run_id=key, artifact_path="nothing/here", dst_path="none")
except (MlflowException, OSError) as problem:
    refused = problem
assert refused is not None
if MAJOR > 2:
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    get_artifact_repository(run.info.artifact_uri).delete_artifacts("notes")
    assert client.list_artifacts(key, "notes") == []

if MAJOR > 2:
    model = client.create_logged_model(
        run.info.experiment_id, name="net", source_run_id=key, params={"lr": "0.1"}, tags={"t": "v"}
    )
    client.log_model_artifacts(model.model_id, "things")
    client.finalize_logged_model(model.model_id, "READY")
    assert client.get_logged_model(model.model_id).params == {"lr": "0.1"}
    assert {artifact.path for artifact in client.list_logged_model_artifacts(model.model_id)} == {
        "a.txt",
        "deep",
        "empty",
    }
    client.log_metric(key, "acc", 0.75, model_id=model.model_id)
    models = mlflow.search_logged_models(
        [run.info.experiment_id], "metrics.acc > 0.5 AND name = 'net'", output_format="list"
    )
    assert [(logged.model_id, logged.metrics[0].value) for logged in models] == [(model.model_id, 0.75)]
    outside = mlflow.initialize_logged_model(name="outside")
    client.delete_logged_model(outside.model_id)

if LEARNS:
    from sklearn.linear_model import LinearRegression

    fitted = LinearRegression().fit([[0.0], [1.0]], [1.0, 3.0])
    with mlflow.start_run() as run:
        said = {"name": "line"} if MAJOR > 2 else {"artifact_path": "line"}
        info = mlflow.sklearn.log_model(fitted, registered_model_name="line", await_registration_for=0, **said)
    client.set_registered_model_alias("line", "champion", 1)
    for uri in (f"runs:/{run.info.run_id}/line", info.model_uri, "models:/line@champion", "models:/line/1"):
        assert mlflow.pyfunc.load_model(uri).predict([[2.0]]).round(6).tolist() == [5.0], uri
print(mlflow.__version__, "artifacts", "with models" if LEARNS else "", "ok")

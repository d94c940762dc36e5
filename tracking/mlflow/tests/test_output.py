"""A job's whole output is read as the artifacts of its run."""

from __future__ import annotations

import pytest

from jobs.artifacts import files
from jobs.models import Job
from kernel import storage
from mlp.operators.tests.admin_world import put

pytestmark = pytest.mark.django_db
LOGGED = "models/m-" + "0" * 32


def test_what_a_job_has_written_is_listed_and_read_with_what_it_has_logged(mlflow, alice):
    job = put(Job, alice, "fit", "finished")
    written = {
        "ckpt/model.pt": b"weights", "artifacts/ckpt/notes.txt": b"logged", "artifacts/model/MLmodel": b"flavors: {}",
        "models/net.onnx": b"net", f"{LOGGED}/MLmodel": b"another call's", "out.csv": b"script", "both.txt": b"script",
        "artifacts/both.txt": b"logged", "artifacts/artifacts/x": b"deep",
    }  # fmt: skip
    for path, data in written.items():
        files.put_bytes(job, path, data)
    (storage.job_dir("alice", "fit") / "link").symlink_to("/etc")
    run = job.run_id.hex

    def listed(path: str = "") -> list[tuple]:
        entries = mlflow.call("get", "artifacts/list", run_id=run, path=path)["files"]
        return [(entry["path"], entry.get("file_size", "folder")) for entry in entries]

    def read(path: str) -> bytes | int:
        address = f"/mlflow/api/2.0/mlflow-artifacts/artifacts/0/{run}/artifacts/{path}"
        answer = mlflow.get(address, HTTP_AUTHORIZATION=f"Bearer {mlflow.token}")
        return b"".join(answer.streaming_content) if answer.status_code == 200 else answer.status_code

    assert listed() == [
        ("artifacts", "folder"), ("both.txt", 6), ("ckpt", "folder"), ("model", "folder"), ("models", "folder"),
        ("out.csv", 6),
    ]  # fmt: skip
    assert listed("ckpt") == [("ckpt/model.pt", 7), ("ckpt/notes.txt", 6)]
    assert listed("models") == [("models/net.onnx", 3)]
    assert listed("artifacts") == [("artifacts/x", 4)]
    assert listed("link") == listed(LOGGED) == []
    proxied = mlflow.get(
        "/mlflow/api/2.0/mlflow-artifacts/artifacts", {"path": f"0/{run}/artifacts/ckpt"},
        HTTP_AUTHORIZATION=f"Bearer {mlflow.token}",
    )  # fmt: skip
    assert [entry["path"] for entry in proxied.json()["files"]] == ["model.pt", "notes.txt"]
    assert read("ckpt/model.pt") == b"weights"
    assert read("ckpt/notes.txt") == read("both.txt") == b"logged"
    assert read(f"{LOGGED}/MLmodel") == read("link/passwd") == read("nothing") == 404
    assert mlflow.refused("get", "artifacts/list", run_id=run, path="../x") == "INVALID_PARAMETER_VALUE"
    address = f"/mlflow/api/2.0/mlflow-artifacts/artifacts/0/{run}/artifacts/ckpt/model.pt"
    mlflow.delete(address, HTTP_AUTHORIZATION=f"Bearer {mlflow.token}")
    assert read("ckpt/model.pt") == b"weights"  # what a script has written is not deleted by this call

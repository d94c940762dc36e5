"""The import of logged models, and what is said of traces."""

from __future__ import annotations

from uuid import UUID

import pytest

from jobs.artifacts import files
from jobs.models import Job, LoggedModel
from kernel import storage
from models_app.models import Model, ModelVersion
from models_app.transfer.source import Source

from .test_mlflow_import import START, tags, world  # noqa: F401 (a fixture)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.long
def test_logged_models_arrive_with_all_that_they_have_and_are_those_of_versions(world, alice):  # noqa: F811
    call, digits = world.bob.call, world.experiment("digits")
    run = world.run(digits, "fit")
    given = {"params": [{"key": "depth", "value": "3"}], "tags": tags(team="red"), "model_type": "sklearn"}
    logged = call("post", "logged-models", experiment_id=digits, name="net", source_run_id=run, **given)
    key = logged["model"]["info"]["model_id"]
    files.put_bytes(Job.objects.get(run_id=UUID(run)), f"models/{key}/MLmodel", b"flavors: {}")
    point = {"key": "acc", "value": 0.5, "timestamp": START, "step": 1, "model_id": key}
    call("post", "runs/log-batch", run_id=run, metrics=[point])
    call("post", "runs/outputs", run_id=run, models=[{"model_id": key, "step": 2}])
    call("patch", f"logged-models/{key}", status="LOGGED_MODEL_READY")
    call("post", "registered-models/create", name="churn")
    call("post", "model-versions/create", name="churn", source=f"models:/{key}", run_id=run, model_id=key)
    Model.objects.update(state="ready")
    report = world.take()
    assert report["complete"], report
    model = LoggedModel.objects.get(user=alice)
    assert (model.name, model.model_type, model.status) == ("net", "sklearn", "LOGGED_MODEL_READY")
    assert (model.params, model.tags, model.metrics["acc"]["value"]) == ({"depth": "3"}, {"team": "red"}, 0.5)
    assert model.metrics["acc"]["run_id"] == model.job.run_id.hex
    assert [(use.job_id, use.kind, use.step) for use in model.uses.all()] == [(model.job_id, "output", 2)]
    version = ModelVersion.objects.get(registered__user=alice)
    assert (version.source, version.logged_model) == (f"models:/{model.key}", model.key)
    assert version.model is not None
    folder = storage.job_dir("alice", model.job.name) / "models" / model.key
    assert (folder / "MLmodel").read_bytes() == b"flavors: {}"
    assert world.take()["counts"]["logged models"] == {"unchanged": 1}


def test_traces_are_named_with_their_experiment(world, monkeypatch):  # noqa: F811
    answers = world.experiment("answers")
    monkeypatch.setattr(Source, "traces", lambda self, key: (7, True) if key == answers else (0, False))
    report = world.take()
    assert not report["complete"]
    assert [(loss["what"].partition(": ")[2], loss["why"]) for loss in report["not_copied"]] == [
        ("7 or more traces", "traces are not copied")
    ]

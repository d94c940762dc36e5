"""Scorers by MLflow's calls: versions, what is refused, and who sees them."""

from __future__ import annotations

import json

import pytest

from jobs.models import Project, Scorer, ScorerVersion
from tracking.evaluations import mlflow_scorers
from tracking.mlflow.tests.test_shared import share
from tracking.traces.tests.conftest import mlflow3, mlflow3_of_bob

__all__ = ["mlflow3", "mlflow3_of_bob"]

pytestmark = pytest.mark.django_db
CODE = json.dumps(
    {"name": "exact", "call_source": "import os\nos.system('touch /tmp/x')", "call_signature": "(outputs)"}
)


@pytest.fixture
def vision(alice):
    return Project.objects.create(user=alice, name="vision")


def test_each_registration_is_a_version(mlflow3, vision):
    key = str(vision.pk)
    for number in (1, 2, 3):
        said = mlflow3.call("post", "scorers/register", experiment_id=key, name="exact 好", serialized_scorer=CODE)
        assert (said["version"], said["experiment_id"], said["serialized_scorer"]) == (number, key, CODE)
    mlflow3.call("post", "scorers/register", experiment_id=key, name="other", serialized_scorer="{}")
    about = {"experiment_id": key, "name": "exact 好"}
    assert [one["scorer_version"] for one in mlflow3.call("get", "scorers/versions", **about)["scorers"]] == [1, 2, 3]
    listed = mlflow3.call("get", "scorers/list", experiment_id=key)["scorers"]
    assert [(one["scorer_name"], one["scorer_version"]) for one in listed] == [("exact 好", 3), ("other", 1)]
    assert len(mlflow3.call("get", "scorers/list")["scorers"]) == 2
    assert mlflow3.call("get", "scorers/get", **about)["scorer"]["scorer_version"] == 3
    one = mlflow3.call("get", "scorers/get", **about, version="1")["scorer"]
    assert (one["scorer_version"], one["experiment_id"], one["scorer_id"]) == (1, vision.pk, said["scorer_id"])
    mlflow3.call("delete", "scorers/delete", **about, version=3)
    assert mlflow3.call("get", "scorers/get", **about)["scorer"]["scorer_version"] == 2
    for number in ("3", "0", "99999999999"):
        assert mlflow3.refused("get", "scorers/get", **about, version=number) == "RESOURCE_DOES_NOT_EXIST"
    mlflow3.call("delete", "scorers/delete", **about)
    assert mlflow3.refused("delete", "scorers/delete", **about) == "RESOURCE_DOES_NOT_EXIST"
    mlflow3.call("delete", "scorers/delete", experiment_id=key, name="other", version=1)
    assert not Scorer.objects.exists()
    assert not ScorerVersion.objects.exists()


def test_what_is_no_scorer_is_refused_and_no_scorer_is_run(mlflow3, vision):
    about = {"experiment_id": str(vision.pk), "name": "exact"}
    wrongs = [{}, *({"serialized_scorer": text} for text in ("{", "[]", "[" * 100_000))]
    for wrong in (*wrongs, *({"name": name, "serialized_scorer": "{}"} for name in ("  ", "x" * 256))):
        assert mlflow3.refused("post", "scorers/register", **{**about, **wrong}) == "INVALID_PARAMETER_VALUE", wrong
    assert not Scorer.objects.exists()
    mlflow3.call("post", "scorers/register", **about, serialized_scorer=CODE)
    assert mlflow3.call("get", "scorers/online-configs", scorer_ids=Scorer.objects.get().key) == {"configs": []}
    assert mlflow3.refused("put", "scorers/online-config", **about, sample_rate=0.5) == "INVALID_PARAMETER_VALUE"
    assert mlflow3.call("put", "scorers/online-config", **about, sample_rate=0)["config"]["sample_rate"] == 0


def test_a_scorer_is_seen_by_who_reads_its_project(mlflow3, mlflow3_of_bob, vision, bob):
    about = {"experiment_id": str(vision.pk), "name": "exact"}
    mlflow3.call("post", "scorers/register", **about, serialized_scorer=CODE)
    assert mlflow3_of_bob.refused("get", "scorers/get", **about) == "RESOURCE_DOES_NOT_EXIST"
    assert mlflow3_of_bob.call("get", "scorers/list") == {"scorers": []}
    assert mlflow3_of_bob.call("get", "scorers/list", experiment_ids=[str(vision.pk)]) == {"scorers": []}
    share(vision, bob)
    assert mlflow3_of_bob.call("get", "scorers/get", **about)["scorer"]["serialized_scorer"] == CODE
    assert len(mlflow3_of_bob.call("get", "scorers/list", experiment_ids=[str(vision.pk)])["scorers"]) == 1
    assert mlflow3_of_bob.refused("delete", "scorers/delete", **about) == "PERMISSION_DENIED"
    vision.delete()
    assert not ScorerVersion.objects.exists()


def test_more_than_an_answer_has_room_for_is_refused_before_it_is_read(mlflow3, vision, monkeypatch):
    monkeypatch.setattr(mlflow_scorers, "MAX_ANSWER", len(CODE) + 10)
    about = {"experiment_id": str(vision.pk), "name": "exact"}
    for number in (1, 2):
        mlflow3.call("post", "scorers/register", **about, serialized_scorer=CODE)
        listed = mlflow3.call("get", "scorers/list", experiment_id=str(vision.pk))["scorers"]
        assert [one["scorer_version"] for one in listed] == [number]
    assert mlflow3.refused("get", "scorers/versions", **about) == "INVALID_PARAMETER_VALUE"
    mlflow3.call("delete", "scorers/delete", **about, version=1)
    assert len(mlflow3.call("get", "scorers/versions", **about)["scorers"]) == 1

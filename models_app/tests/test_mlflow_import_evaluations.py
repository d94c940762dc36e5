"""The import of evaluation datasets and scorers from a server, which is this platform as another user."""

from __future__ import annotations

import json

import pytest

from jobs.models import EvaluationDataset, EvaluationRecord, ScorerVersion
from models_app.transfer.server import Server, ServerError
from tracking.evaluations import datasets

from .test_mlflow_import import world  # noqa: F401 (a fixture)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.long
def test_datasets_and_scorers_arrive_once_with_all_that_they_have(world, alice, bob, monkeypatch):  # noqa: F811
    monkeypatch.setattr("models_app.transfer.evaluations_in.PAGE", 2)
    digits, other = world.experiment("digits"), world.experiment("other")

    def call(method: str, route: str, **fields) -> dict:
        headers = {"HTTP_AUTHORIZATION": f"Bearer {world.bob.token}"}
        send = getattr(world.bob, method)
        answer = send(f"/mlflow/api/3.0/mlflow/{route}", fields, content_type="application/json", **headers)
        assert answer.status_code == 200, answer.content
        return answer.json()

    made = call("post", "datasets/create", name="qa", experiment_ids=[digits, other], tags='{"team": "red"}')
    key = made["dataset"]["dataset_id"]
    call("post", "datasets/create", name="free")
    source = {"source_type": "TRACE", "source_data": {"trace_id": "tr-1"}}
    given = [{"inputs": {"n": n, "t": "\ud800 é"}, "outputs": None, "expectations": {"a": n}, "source": source}
             for n in range(5)]  # fmt: skip
    call("post", f"datasets/{key}/records", records=json.dumps(given))
    for text in ("{}", '{"v": 2}', '{"v": 3}'):
        call("post", "scorers/register", experiment_id=digits, name="exact", serialized_scorer=text)
    call("delete", "scorers/delete", experiment_id=digits, name="exact", version=2)
    assert world.take("--dry-run")["counts"]["evaluation datasets"] == {"new": 2}
    report = world.take()
    assert report["complete"], report
    assert report["counts"]["evaluation datasets"] == {"new": 2}
    mine = EvaluationDataset.objects.get(user=alice, name="qa")
    assert (mine.records_kept, mine.tags) == (5, {"team": "red"})
    assert sorted(mine.projects.values_list("name", flat=True)) == ["digits", "other"]
    fields = ("inputs", "outputs", "expectations", "source", "source_id")
    theirs = EvaluationRecord.objects.filter(user=bob).order_by("pk").values(*fields)
    assert list(EvaluationRecord.objects.filter(user=alice).order_by("pk").values(*fields)) == list(theirs)
    found = ScorerVersion.objects.filter(user=alice).order_by("number").values_list("number", "serialized")
    assert list(found) == [(1, "{}"), (3, '{"v": 3}')]
    again = world.take()
    assert (again["complete"], again["counts"]["evaluation datasets"]) == (True, {"unchanged": 2})
    assert again["counts"]["versions of scorers"] == {"unchanged": 2}
    call("post", f"datasets/{key}/records", records=json.dumps([{"inputs": {"new": 1}}]))
    assert world.take()["counts"]["evaluation datasets"] == {"changed": 1, "unchanged": 1}
    assert EvaluationDataset.objects.get(pk=mine.pk).records_kept == 6
    datasets.delete(mine)
    assert world.take()["counts"]["evaluation datasets"] == {"left out": 1, "unchanged": 1}
    assert EvaluationDataset.objects.filter(user=alice).count() == 1


def test_what_the_server_cannot_send_is_named_and_an_older_server_has_none(world, monkeypatch):  # noqa: F811
    digits, real = world.experiment("digits"), Server.ask_3
    codes = {"records": 500}

    def answer(self, method, route, **fields):
        if route == "datasets/search" and digits in fields.get("experiment_ids", ()):
            return {"datasets": [{"dataset_id": "d-1", "name": "questions"}]}
        if route.endswith("/records"):
            raise ServerError("it is broken", codes["records"])
        if route == "scorers/list":
            raise ServerError("no such call", 404)
        return real(self, method, route, **fields)

    monkeypatch.setattr(Server, "ask_3", answer)
    report = world.take("--experiments", "digits")
    assert [(loss["what"].partition(": ")[2], loss["why"]) for loss in report["not_copied"]] == [
        ("evaluation dataset questions", "it is broken")
    ]

"""Evaluation datasets by MLflow's calls: what is stored, merged, searched, refused, and who sees it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from django.db.models import F

from accounts import lifecycle as accounts
from jobs.auth import job_token
from jobs.models import EvaluationDataset, EvaluationRecord, Job, Project
from kernel import stored
from mlp.operators.tests.admin_world import put
from tracking.mlflow.tests.test_shared import share
from tracking.traces.tests.conftest import Mlflow3, mlflow3, mlflow3_of_bob

from .. import datasets, mlflow_datasets, records

__all__ = ["mlflow3", "mlflow3_of_bob"]

pytestmark = pytest.mark.django_db
DEEP = f'[{{"inputs": {{"a": {"[" * 200}{"]" * 200}}}}}]'


@pytest.fixture
def vision(alice):
    return Project.objects.create(user=alice, name="vision")


@pytest.fixture
def key(mlflow3, vision):
    """The id of a dataset in the project vision."""
    made = mlflow3.call("post", "datasets/create", name="qa", experiment_ids=[str(vision.pk)], tags='{"team": "red"}')
    return made["dataset"]["dataset_id"]


def merge(client: Mlflow3, key: str, *given: dict) -> tuple[int, int]:
    said = client.call("post", f"datasets/{key}/records", records=json.dumps(given))
    return said["inserted_count"], said["updated_count"]


def read(client: Mlflow3, key: str, **page) -> list[dict]:
    found, token = [], ""
    while True:
        said = client.call("get", f"datasets/{key}/records", page_token=token, **page)
        found += json.loads(said["records"])
        token = said.get("next_page_token", "")
        if not token:
            return found


def test_a_dataset_is_made_changed_and_deleted(mlflow3, key, vision, alice):
    other = Project.objects.create(user=alice, name="other")
    said = mlflow3.call("get", f"datasets/{key}")["dataset"]
    assert (said["name"], json.loads(said["tags"]), said["created_by"]) == ("qa", {"team": "red"}, "alice")
    assert "profile" not in said
    assert "schema" not in said
    assert mlflow3.call("get", f"datasets/{key}/experiment-ids") == {"experiment_ids": [str(vision.pk)]}
    mlflow3.call("post", f"datasets/{key}/add-experiments", experiment_ids=[str(other.pk)])
    mlflow3.call("post", f"datasets/{key}/remove-experiments", experiment_ids=[str(vision.pk), "77777777"])
    assert mlflow3.call("get", f"datasets/{key}/experiment-ids") == {"experiment_ids": [str(other.pk)]}
    mlflow3.call("patch", f"datasets/{key}/tags", tags=json.dumps({"team": None, "n": 1, "字": "好\x00"}))
    mlflow3.call("delete", f"datasets/{key}/tags/n")
    changed = mlflow3.call("get", f"datasets/{key}")["dataset"]
    assert json.loads(changed["tags"]) == {"字": "好\ufffd"}
    assert changed["digest"] != said["digest"]
    assert merge(mlflow3, key, {"inputs": {"q": 1}}) == (1, 0)
    assert mlflow3.call("delete", f"datasets/{key}") == {}
    assert mlflow3.call("delete", f"datasets/{key}") == {}
    assert mlflow3.refused("get", f"datasets/{key}") == "RESOURCE_DOES_NOT_EXIST"
    assert not EvaluationRecord.objects.exists()


def test_records_with_the_same_inputs_are_merged(mlflow3, key):
    first = {"inputs": {"q": "why 即使", "n": 1}, "expectations": {"a": 1}, "tags": {"mlflow.user": "ann"}}
    assert merge(mlflow3, key, first, {"inputs": {"q": "how"}, "outputs": "so"}) == (2, 0)
    second = {"inputs": {"n": 1, "q": "why 即使"}, "outputs": None, "expectations": {"b": 2}, "tags": {"x": "y"}}
    third = {"inputs": {"q": "new"}, "source": {"source_type": "trace", "source_data": {"trace_id": "tr-1"}}}
    assert merge(mlflow3, key, second, third, {"inputs": {"q": "new"}, "expectations": {"c": [1]}}) == (1, 2)
    why, how, new = read(mlflow3, key, max_results=1)
    assert (why["expectations"], why["tags"]) == ({"a": 1, "b": 2}, {"mlflow.user": "ann", "x": "y"})
    assert "outputs" not in why
    assert (why["created_by"], why["dataset_id"]) == ("ann", key)
    assert (how["outputs"], how["last_update_time"]) == ("so", how["created_time"])
    assert (new["source_id"], new["source_type"], new["expectations"]) == ("tr-1", "TRACE", {"c": [1]})
    assert why["last_update_time"] > why["created_time"]
    said = mlflow3.call("get", f"datasets/{key}")["dataset"]
    assert json.loads(said["profile"]) == {"num_records": 3}
    assert json.loads(said["schema"]) == {
        "inputs": {"q": "string", "n": "integer"}, "outputs": "string",
        "expectations": {"a": "integer", "b": "integer", "c": "array"}, "version": "1.0",
    }  # fmt: skip
    gone = mlflow3.call("delete", f"datasets/{key}/records", dataset_record_ids=[why["dataset_record_id"], "dr-none"])
    assert gone == {"deleted_count": 1}
    assert [one["inputs"]["q"] for one in read(mlflow3, key)] == ["how", "new"]
    assert json.loads(mlflow3.call("get", f"datasets/{key}")["dataset"]["profile"]) == {"num_records": 2}


def test_what_json_in_postgresql_cannot_have_comes_back_as_it_was(mlflow3, key):
    """NaN, NUL and halves of surrogate pairs; and NaN where pandas has no expectations."""
    text = '[{"inputs": {"z": NaN, "a\\u0000": "\\ud800 é", "i": -Infinity, "b": 1e400}, "expectations": NaN}]'
    for count in ((1, 0), (0, 1)):
        said = mlflow3.call("post", f"datasets/{key}/records", records=text)
        assert (said["inserted_count"], said["updated_count"]) == count
    [row] = read(mlflow3, key)
    assert list(row["inputs"]) == ["z", "a\x00", "i", "b"]
    assert row["inputs"]["z"] != row["inputs"]["z"]
    assert row["inputs"]["a\x00"] == "\ud800 é"
    assert "expectations" not in row


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ("[", "JSON list"), ("{}", "JSON list"), ("[1]", "records[0]"), ('[{"inputs": {}}, {}]', "records[1].inputs"),
        ('[{"inputs": "text"}]', "records[0].inputs"), ('[{"inputs": {}, "expectations": [1]}]', "expectations"),
        ('[{"inputs": {}, "source": {"source_type": "DREAM"}}]', "source.source_type"), ("[" * 100_000, "JSON list"),
        ("[" + "1," * 600_000 + "1]", "values"), (DEEP, "100 deep"),
        (json.dumps([{"inputs": {}}] * 10_001), "10000 records"),
    ],
)  # fmt: skip
def test_wrong_records_are_refused_and_none_is_stored(mlflow3, key, given, what):
    answer = mlflow3.send("post", f"datasets/{key}/records", {"records": given})
    assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert what in answer.json()["message"]
    assert not EvaluationRecord.objects.exists()


def test_large_records_come_in_pages_that_fit(mlflow3, key, monkeypatch):
    monkeypatch.setattr(mlflow_datasets, "MAX_PAGE", 3000)
    monkeypatch.setattr(datasets, "ROOM", 3000)
    given = [{"inputs": {"n": number, "text": "x" * (4000 if number == 2 else 900)}} for number in range(6)]
    assert merge(mlflow3, key, *given) == (6, 0)
    assert merge(mlflow3, key, *given) == (0, 6)
    first = mlflow3.call("get", f"datasets/{key}/records")
    assert len(json.loads(first["records"])) == 2
    assert [one["inputs"]["n"] for one in read(mlflow3, key)] == list(range(6))
    for token in ("!", "LTE=", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5"):
        assert mlflow3.refused("get", f"datasets/{key}/records", page_token=token) == "INVALID_PARAMETER_VALUE"


def test_a_record_of_ten_megabytes_comes_back(mlflow3, key):
    text = "words and more 北京 " * 450_000
    assert merge(mlflow3, key, {"inputs": {"text": text}}, {"inputs": {"n": 1}}) == (2, 0)
    assert [one["inputs"].get("text") == text for one in read(mlflow3, key)] == [True, False]


def test_limits_are_kept(mlflow3, key, alice, monkeypatch):
    monkeypatch.setattr(datasets, "MAX_KEPT", 2)
    monkeypatch.setattr(datasets, "MAX_DATASETS", 1)
    monkeypatch.setattr(records, "MAX_RECORD", 1000)
    send = f"datasets/{key}/records"
    merge(mlflow3, key, {"inputs": {"n": 1}}, {"inputs": {"n": 2}})
    for given in ([{"inputs": {"n": 3}}], [{"inputs": {"n": 1}, "outputs": "x" * 1000}]):
        assert mlflow3.refused("post", send, records=json.dumps(given)) == "INVALID_PARAMETER_VALUE"
    assert merge(mlflow3, key, {"inputs": {"n": 1}}) == (0, 1)
    assert mlflow3.refused("post", "datasets/create", name="more") == "INVALID_PARAMETER_VALUE"
    tags = {str(number): "x" for number in range(101)}
    assert mlflow3.refused("patch", f"datasets/{key}/tags", tags=json.dumps(tags)) == "INVALID_PARAMETER_VALUE"
    before = stored.used(alice.pk)
    assert before > 0
    mlflow3.call("delete", f"datasets/{key}")
    assert stored.used(alice.pk) < before


def test_a_search_finds_by_name_tags_times_and_project(mlflow3, key, vision):
    for name in ("b", "a'c"):
        mlflow3.call("post", "datasets/create", name=name, tags=json.dumps({"n": name}))

    def names(text: str = "", **more) -> list[str]:
        said = mlflow3.call("post", "datasets/search", filter_string=text, **more)
        return [one["name"] for one in said.get("datasets", [])]

    created = EvaluationDataset.objects.get(key=key).created
    at = records.milliseconds(created)
    assert names() == ["a'c", "b", "qa"]
    assert names(order_by=["name ASC"]) == ["a'c", "b", "qa"]
    assert names('name = "a\'c"') == ["a'c"]
    assert names("name LIKE 'q%' AND tags.team = 'red'") == ["qa"]
    assert names("tags.n IS NOT NULL", order_by=["created_time ASC"]) == ["b", "a'c"]
    assert names(f"created_time = {at} AND name = 'qa'") == ["qa"]
    assert names(f"created_time > {at - 1} AND created_by = 'alice'", order_by=["last_update_time DESC"]) != []
    assert names(f"created_time > {at + 1_000_000}") == []
    assert names(experiment_ids=[str(vision.pk)]) == ["qa"]
    first = mlflow3.call("post", "datasets/search", max_results=2)
    assert names(page_token=first["next_page_token"], max_results=2) == ["qa"]
    for wrong in ("size = 1", "created_time = 'x'", "name >", "metrics.a = 1"):
        assert mlflow3.refused("post", "datasets/search", filter_string=wrong) == "INVALID_PARAMETER_VALUE", wrong


def test_who_reads_a_project_reads_its_datasets_and_changes_none(mlflow3, mlflow3_of_bob, key, vision, bob):
    merge(mlflow3, key, {"inputs": {"q": 1}})
    assert mlflow3_of_bob.refused("get", f"datasets/{key}") == "RESOURCE_DOES_NOT_EXIST"
    assert mlflow3_of_bob.call("delete", f"datasets/{key}") == {}
    assert mlflow3_of_bob.refused("post", "datasets/create", name="x", experiment_ids=[str(vision.pk)]) == (
        "RESOURCE_DOES_NOT_EXIST"
    )
    share(vision, bob)
    assert read(mlflow3_of_bob, key)[0]["inputs"] == {"q": 1}
    found = mlflow3_of_bob.call("post", "datasets/search", experiment_ids=[str(vision.pk)])
    assert [one["dataset_id"] for one in found["datasets"]] == [key]
    assert mlflow3_of_bob.call("post", "datasets/search") == {"datasets": []}
    for method, route in (("delete", ""), ("post", "/records"), ("patch", "/tags"), ("delete", "/records")):
        assert mlflow3_of_bob.refused(method, f"datasets/{key}{route}", tags="{}", records="[]") == "PERMISSION_DENIED"
    assert EvaluationDataset.objects.get().records_kept == 1


def test_a_job_has_the_datasets_of_its_project_and_deletes_none(mlflow3, key, vision, alice):
    job = put(Job, alice, "fit", "running")
    Job.objects.filter(pk=job.pk).update(project=vision)
    elsewhere = mlflow3.call("post", "datasets/create", name="elsewhere")["dataset"]["dataset_id"]
    inner = Mlflow3(job_token(job))
    made = inner.call("post", "datasets/create", name="made")["dataset"]
    assert made["experiment_ids"] == [str(vision.pk)]
    assert merge(inner, key, {"inputs": {"n": 1}}) == (1, 0)
    assert [one["name"] for one in inner.call("post", "datasets/search")["datasets"]] == ["made", "qa"]
    assert inner.refused("get", f"datasets/{elsewhere}") == "RESOURCE_DOES_NOT_EXIST"
    about = {"experiment_id": str(vision.pk), "name": "exact"}
    inner.call("post", "scorers/register", **about, serialized_scorer="{}")
    assert inner.call("get", "scorers/get", **about)["scorer"]["scorer_version"] == 1
    for route in (f"datasets/{key}", f"datasets/{key}/records", "scorers/delete"):
        assert inner.refused("delete", route, **about) == "PERMISSION_DENIED"


def test_a_dataset_outlives_its_project(key, vision):
    vision.delete()
    assert EvaluationDataset.objects.get(key=key).projects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_two_merges_and_a_deletion_at_the_same_time(alice):
    """Each record is there once with what both have said; after a deletion nothing is left."""
    row = datasets.create(alice, "qa", [], {})
    token = accounts.token_of(alice)

    def send(number: int) -> int:
        try:
            given = [{"inputs": {"n": n}, "expectations": {f"e{number}": n}} for n in range(200)]
            return (
                Mlflow3(token).send("post", f"datasets/{row.key}/records", {"records": json.dumps(given)}).status_code
            )
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(send, range(3))) == [200] * 3
    assert EvaluationRecord.objects.count() == EvaluationDataset.objects.get().records_kept == 200
    said = [json.loads(text) for text in EvaluationRecord.objects.values_list("expectations", flat=True)]
    assert all(one == {f"e{number}": one["e0"] for number in range(3)} for one in said)

    def remove() -> int:
        try:
            return Mlflow3(token).send("delete", f"datasets/{row.key}").status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as pool:
        sent, removed = [pool.submit(send, number) for number in (4, 5)], pool.submit(remove)
        assert removed.result() == 200
        assert {one.result() for one in sent} <= {200, 404}
    assert not EvaluationRecord.objects.exclude(dataset__user=F("user")).exists()
    assert not EvaluationDataset.objects.exists()
    assert not EvaluationRecord.objects.exists()

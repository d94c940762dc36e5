"""What is done with records: found, opened, exported, written to a dataset; feedback of callers by request id."""

from __future__ import annotations

import csv
import json

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps import keys
from apps.models import Application, Feedback, Record
from apps.records import datasets as record_datasets
from apps.records import feedback as caller_feedback
from apps.records import retention, rows
from datasets import copies
from datasets.models import Dataset
from datasets.webdav.gate import internal_key
from kernel import storage
from mlp.tests.page_world import visible_text, visitor

pytestmark = pytest.mark.django_db


@pytest.fixture
def three(app, ask, listed, record):
    """Three stored records: a, b, which was refused, and c, whose model has failed."""
    record()
    for request_id, status in (("a", 200), ("b", 400), ("c", 500)):
        ask(status=status, headers={"x-request-id": request_id})
    listed()
    for minute, request_id in enumerate("abc"):
        Record.objects.filter(request_id=request_id).update(at=f"2026-05-17T10:0{minute}:00Z")
    return app


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", "cba"),
        ("?status=ok", "a"),
        ("?status=refused", "b"),
        ("?status=failed", "c"),
        ("?status=400", "b"),
        ("?id=b", "b"),
        ("?model=adder", "cba"),
        ("?model=other", ""),
        ("?key=shop", ""),
        ("?since=2026-05-17T10:01:00Z", "cb"),
        ("?until=2026-05-17T10:01:00Z", "a"),
        ("?since=2026-05-17&until=2026-05-17T12:01:00%2B02:00", "a"),
        ("?limit=1&offset=1", "b"),
    ],
)
def test_records_are_found(three, listed, query, found):
    assert "".join(each["id"] for each in listed(query)) == found


@pytest.mark.parametrize(
    "query", ["since=yesterday", "until=2026-13-01", "status=odd", "since=9999-12-31T23:59:59-23:59"]
)
def test_wrong_filters_are_refused_by_name(three, as_alice, query):
    assert as_alice.refused("get", f"users/alice/apps/{three.name}/records?{query}").startswith(query.partition("=")[0])


def test_one_record_and_the_export(three, listed, as_alice, as_bob):
    first = listed()[0]
    path = f"users/alice/apps/{three.name}/records"
    assert as_alice.call("get", f"{path}/{first['number']}").json() == first
    assert as_alice.refused("get", f"{path}/{first['number'] + 1000}")
    assert as_alice.refused("get", f"{path}/x")
    lines = b"".join(as_alice.call("get", f"{path}:export?status=ok").streaming_content).splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["a"]
    assert as_bob.refused("get", f"{path}:export")


def test_records_of_an_application_in_the_trash_are_not_shown_but_deleted(three, listed, as_alice):
    path = f"users/alice/apps/{three.name}"
    (number, *_others) = [row["number"] for row in listed()]
    Application.objects.update(trashed="2026-05-17T12:00:00Z")
    for call in ("records", f"records/{number}", "records:export"):
        assert as_alice.refused("get", f"{path}/{call}") == "application: no such application", call
    assert as_alice.refused("post", f"{path}/records:dataset", {"name": "answers"})
    assert as_alice.call("get", f"{path}/recording").status_code == 200
    assert as_alice.call("delete", f"{path}/records").status_code == 200
    assert not Record.objects.exists()


def test_many_records_are_deleted_in_pieces_by_several_requests(three, as_alice, monkeypatch):
    """Each statement deletes a few rows, and each request takes a bounded time: the next one goes on."""
    for number in range(5):
        Feedback.objects.create(app=three, user=three.user, request_id=f"f{number}", value=number)
    monkeypatch.setattr(retention, "MANY", 2)
    with monkeypatch.context() as patch:
        patch.setattr(retention, "REQUEST_S", 0.0)
        answer = as_alice.call("delete", f"users/alice/apps/{three.name}/records")
        assert (answer.status_code, answer.json()) == (
            503, {"msg": "not all records are deleted yet; delete them again"}
        )  # fmt: skip
        assert (Record.objects.count(), Feedback.objects.count()) == (1, 5)
        page = visitor(three.user)
        said = page.post(f"/apps/{three.name}/records/change", {"do": "delete"}, follow=True)
        assert "not all records are deleted yet" in visible_text(said)
        assert (Record.objects.count(), Feedback.objects.count()) == (0, 5)
    with CaptureQueriesContext(connection) as seen:
        assert as_alice.call("delete", f"users/alice/apps/{three.name}/records").status_code == 200
    assert sum('DELETE FROM "app_feedback"' in query["sql"] for query in seen) == 3
    assert not Feedback.objects.exists()


def give(client, app, body, token: str = "") -> tuple[int, dict]:
    headers = {"X-App-User": "alice", "X-App-Name": app.name, "X-Internal-Key": internal_key()}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    answer = client.post("/internal/apps/feedback", body, "application/json", headers=headers)
    return answer.status_code, answer.json()


def test_feedback_is_shown_beside_the_record(three, client, listed):
    key = keys.create(app=three, name="shop", by="alice")[1]
    assert give(client, three, {"id": "a", "value": 1, "comment": "bought"}, key) == (201, {"stored": True})
    assert give(client, three, {"id": "a", "value": "wrong"}, key)[0] == 201
    assert give(client, three, {"id": "b", "value": False}, key)[0] == 201
    said = listed("?id=a")[0]["feedback"]
    assert [(one["value"], one["comment"], one["key"]) for one in said] == [
        (1, "bought", "shop"),
        ("wrong", "", "shop"),
    ]
    assert listed("?id=b")[0]["feedback"][0]["value"] is False
    assert give(client, three, {"id": "a", "value": 1})[0] == 401
    Application.objects.update(public=True)
    assert give(client, three, {"id": "a", "value": 1})[0] == 401  # anybody is a caller of a public one


def test_feedback_on_unknown_ids_is_refused_and_on_new_ones_kept(three, ask, client, record):
    key = keys.create(app=three, name="shop", by="alice")[1]
    status, answer = give(client, three, {"id": "nobody", "value": 1}, key)
    assert status == 404
    assert "no recorded request has this id" in answer["error"]
    ask(headers={"x-request-id": "new"})  # it is in the file of its run, not yet in the database
    assert give(client, three, {"id": "new", "value": 1}, key)[0] == 201
    record(on=False)
    assert "records no requests" in give(client, three, {"id": "nobody", "value": 1}, key)[1]["error"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "send"),
        ([], "send"),
        ({"id": "a"}, "send"),
        ({"id": "a", "value": 1, "more": 1}, "send"),
        ({"id": "a b", "value": 1}, "id: must"),
        ({"id": 1, "value": 1}, "id: must"),
        ({"id": "a", "value": None}, "value: must"),
        ({"id": "a", "value": [1]}, "value: must"),
        ({"id": "a", "value": ""}, "value: must"),
        ({"id": "a", "value": 10**400}, "value: must"),
        ({"id": "a", "value": 1, "comment": "x" * 2001}, "comment: must"),
    ],
)
def test_wrong_feedback_is_refused_by_name(three, body, words):
    with pytest.raises(caller_feedback.Refused) as refused:
        caller_feedback.give(three.pk, None, body)
    assert str(refused.value.msg).startswith(words)


def test_an_answer_takes_a_limited_number_of_feedback(three, monkeypatch):
    monkeypatch.setattr(caller_feedback, "MAX_OF_ONE", 2)
    for _ in range(2):
        caller_feedback.give(three.pk, None, {"id": "a", "value": 1})
    with pytest.raises(caller_feedback.Refused, match="at most 2"):
        caller_feedback.give(three.pk, None, {"id": "a", "value": 1})
    assert Feedback.objects.count() == 2


def test_feedback_on_a_record_that_is_deleted_meanwhile_is_refused(three, monkeypatch):
    monkeypatch.setattr(caller_feedback.stored, "require", lambda _user: Record.objects.all().delete())
    with pytest.raises(caller_feedback.Unknown):
        caller_feedback.give(three.pk, None, {"id": "a", "value": 1})
    assert not Feedback.objects.exists()


def test_an_export_has_all_feedback(three, as_alice):
    Feedback.objects.bulk_create(
        Feedback(app=three, user=three.user, request_id=request_id, value=number)
        for request_id in "abc"
        for number in range(500)
    )
    export = as_alice.call("get", f"users/alice/apps/{three.name}/records:export")
    found = [json.loads(line)["feedback"] for line in b"".join(export.streaming_content).splitlines()]
    assert [[one["value"] for one in said] for said in found] == [list(range(500))] * 3


def written(name: str) -> dict[str, bytes]:
    folder = storage.dataset_dir("alice", name)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_records_become_a_dataset(three, as_alice, monkeypatch):
    caller_feedback.give(three.pk, None, {"id": "a", "value": 1, "comment": '=1+1,"'})
    path = f"users/alice/apps/{three.name}/records:dataset"
    answer = as_alice.call("post", path, {"name": "answers", "until": "2026-05-17T10:02:00Z"})
    assert answer.status_code == 201, answer.content
    row = Dataset.objects.get()
    copies.copy(row.pk, follow=False)
    copies.copy(row.pk, follow=False)  # the message has come twice
    row.refresh_from_db()
    assert (row.state, row.stored, row.size) == ("ready", row.size, sum(map(len, written("answers").values())))
    lines = [json.loads(line) for line in written("answers")["records-00000.ndjson"].splitlines()]
    assert [(line["id"], line["output"], len(line["feedback"])) for line in lines] == [
        ("a", {"y": [2.0, 3.0]}, 1), ("b", {"y": [2.0, 3.0]}, 0),
    ]  # fmt: skip
    monkeypatch.setattr(record_datasets, "PART_BYTES", 1)
    assert as_alice.call("post", path, {"name": "table", "format": "csv"}).status_code == 201
    copies.copy(Dataset.objects.get(name="table").pk, follow=False)
    assert list(written("table")) == [f"records-0000{number}.csv" for number in range(3)]
    (first,) = csv.DictReader(written("table")["records-00000.csv"].decode("utf-8-sig").splitlines())
    assert (first["id"], json.loads(first["input"])) == ("a", {"x": [1.0, 2.0]})


def test_a_dataset_says_what_was_deleted_while_it_was_written(three, as_alice, monkeypatch):
    monkeypatch.setattr(rows, "PAGE", 1)
    path = f"users/alice/apps/{three.name}/records:dataset"
    assert as_alice.call("post", path, {"name": "answers"}).status_code == 201
    line = rows.line
    monkeypatch.setattr(rows, "line", lambda row: Record.objects.exclude(request_id="a").delete() and line(row))
    copies.copy(Dataset.objects.get().pk, follow=False)
    row = Dataset.objects.get()
    assert (row.state, str(row.reason)) == (
        "ready", "records that were deleted while it was written are left out: 2",
    )  # fmt: skip


def test_a_dataset_of_nothing_is_refused(three, as_alice):
    path = f"users/alice/apps/{three.name}/records:dataset"
    assert "no records" in as_alice.refused("post", path, {"name": "none", "since": "2027-01-01"})
    assert as_alice.refused("post", path, {"name": "none", "since": "x"}).startswith("since")
    assert as_alice.refused("post", path, {"name": "none", "format": "xml"}).startswith("format")
    assert as_alice.call("post", path, {"name": "late"}).status_code == 201
    Record.objects.all().delete()
    copies.copy(Dataset.objects.get().pk, follow=False)
    assert "deleted before they were written" in Dataset.objects.get().reason


def test_a_dataset_that_is_cancelled_or_killed_leaves_nothing(three, as_alice, monkeypatch):
    path = f"users/alice/apps/{three.name}/records:dataset"
    as_alice.call("post", path, {"name": "answers"})
    row = Dataset.objects.get()
    killed = storage.dataset_dir("alice", ".answers.0123456789ab.part")
    killed.mkdir(parents=True)
    (killed / "records-00000.ndjson").write_bytes(b"half")
    copies.copy(row.pk, follow=False)
    assert not killed.exists()
    assert list(written("answers")) == ["records-00000.ndjson"]


def test_the_page_sets_shows_exports_and_deletes(three, alice, as_bob):
    page, base = visitor(alice), f"/apps/{three.name}/records"
    caller_feedback.give(three.pk, None, {"id": "a", "value": "<b>right</b>"})
    shown = visible_text(page.get(base))
    assert "100 % of the requests are recorded, for 30 days" in shown
    assert "<b>right</b>" in shown
    number = Record.objects.get(request_id="a").pk
    assert f"{base}/{number}" in page.get(f"{base}?status=ok").content.decode()
    assert "No record matches." in visible_text(page.get(f"{base}?id=zzz"))
    assert "must be a time" in visible_text(page.get(f"{base}?since=zzz"))
    one = visible_text(page.get(f"{base}/{number}"))
    assert "adder" in one
    assert "<b>right</b>" in one
    assert '"x": [' in one
    given = {"do": "record", "percent": "12.5", "days": "3", "record_kib": "2", "most_mib": "9", "mask": "email\n$.a"}
    assert page.post(f"{base}/change", given).status_code == 302
    row = three.recording
    row.refresh_from_db()
    assert (row.share, row.days, row.record_kib, row.most_mib, row.mask) == (0.125, 3, 2, 9, ["email", "$.a"])
    wrong = page.post(f"{base}/change", {**given, "percent": "200", "days": "x"})
    assert wrong.status_code == 400 or "must be" in visible_text(wrong)
    assert b'"a"' in b"".join(page.get(f"{base}/download?id=a").streaming_content)
    assert page.post(f"{base}/change", {"do": "dataset", "name": "answers"}).headers["Location"] == "/datasets/answers"
    page.post(f"{base}/change", {"do": "stop"})
    page.post(f"{base}/change", {"do": "delete"})
    assert "Requests are not recorded." in visible_text(page.get(base))
    assert not Record.objects.exists()

"""Records are stored once, whatever is killed; deleted by age, size and their owner; nothing hostile gets in."""

from __future__ import annotations

import json
import os
from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from apps import launching, lifecycle, reconcile, runs
from apps.models import Application, AppRun, Feedback, Record, Recording
from apps.records import collecting, plan, retention
from kernel import stored
from resources.models import Tenant

from .conftest import RUN

pytestmark = pytest.mark.django_db


def files(app) -> list[str]:
    return sorted(name for name in os.listdir(launching.folder(app)) if name.startswith("records-"))


def end_run(app) -> None:
    AppRun.objects.filter(app=app).update(ended=timezone.now() - collecting.LEAVING - timedelta(seconds=1))


def test_each_record_is_stored_once(app, ask, listed, record):
    record()
    ask(headers={"x-request-id": "a"})
    run = AppRun.objects.get(name=RUN)
    assert [each["id"] for each in listed()] == ["a"]
    collecting.collect_run(run)  # another process has read the files at the same time
    assert len(listed()) == 1
    ask(headers={"x-request-id": "b"})
    assert [each["id"] for each in listed()] == ["b", "a"]
    assert Recording.objects.get().stored == sum(Record.objects.values_list("size", flat=True))


def test_a_process_that_was_killed_leaves_whole_records(app, ask, listed, record):
    record()
    ask(headers={"x-request-id": "a"})
    path = launching.folder(app) / files(app)[0]
    line = path.read_bytes()
    path.write_bytes(line + line.replace(b'"a"', b'"b"')[:-20])  # killed while it wrote
    assert [each["id"] for each in listed()] == ["a"]
    with path.open("ab") as file:  # the process goes on after all
        file.write(line.replace(b'"a"', b'"b"')[-20:])
    assert [each["id"] for each in listed()] == ["b", "a"]
    path.write_bytes(path.read_bytes() + b'{"id": "torn"')
    path.with_name(f"records-{RUN}-2.ndjson").write_bytes(line.replace(b'"a"', b'"c"'))  # of the process after it
    assert [each["id"] for each in listed()] == ["c", "b", "a"]
    assert files(app) == [f"records-{RUN}-2.ndjson"]
    end_run(app)
    collecting.collect()
    assert (files(app), AppRun.objects.get(name=RUN).records) == ([], None)


def test_a_new_process_of_a_run_goes_on_behind_the_files(app, ask, listed, record):
    record()
    ask()
    ask.recorder.spool.segments.clear()
    ask()
    assert files(app) == [f"records-{RUN}-1.ndjson", f"records-{RUN}-2.ndjson"]
    assert len(listed()) == 2


def test_files_are_bounded_while_nobody_collects(app, ask, listed, record, monkeypatch):
    record()
    monkeypatch.setattr(ask.module, "SEGMENT", 1)
    monkeypatch.setattr(ask.module, "MAX_SEGMENTS", 3)
    for number in range(6):
        ask(headers={"x-request-id": f"r{number}"})
    assert len(files(app)) == 3
    assert {each["id"] for each in listed()} == {"r0", "r1", "r2"}
    ask(headers={"x-request-id": "later"})
    assert listed()[0]["id"] == "later"
    assert Recording.objects.get().dropped == 3


def test_hostile_files_store_nothing_and_stop_nothing(app, ask, listed, record, tmp_path):
    record()
    ask()
    path = launching.folder(app) / files(app)[0]
    good = json.loads(path.read_bytes())
    odd = [b"", b"[]", b"5", b"nonsense", b"\xff\xfe", b'{"dropped": -1}', b'{"dropped": 1e400}', b"[" * 10_000]
    for field, value in (("at", float("nan")), ("at", "x"), ("status", -1), ("ms", True), ("id", ""), ("input", [])):
        odd.append(json.dumps({**good, field: value}).encode())
    odd.append(json.dumps({**good, "output": {**good["output"], "kept": "evil"}}).encode())
    evil = {**good, "key": "nobody's", "arm": "<b>", "id": "x\x00\ud800" * 100, "at": 4e9, "whole": "yes"}
    evil["input"] = {**good["input"], "text": "\x00\ud800" * 100_000}
    path.write_bytes(b"\n".join([*odd, json.dumps(evil).encode(), json.dumps(good).encode()]) + b"\n")
    found = listed()
    assert len(found) == 2
    ((worst),) = [each for each in found if each["id"] != good["id"]]
    assert (worst["key"], worst["canary"], len(worst["id"]), worst["complete"]) == ("", "", 64, False)
    assert len(worst["input"].encode()) <= plan.MAX_KIB << 10
    assert Recording.objects.get().dropped == len(odd)
    secret = tmp_path / "secret"
    secret.write_bytes(json.dumps(good).encode() + b"\n")
    (launching.folder(app) / f"records-{RUN}-2.ndjson").symlink_to(secret)
    (launching.folder(app) / f"records-{RUN}-3.ndjson").mkdir()
    collecting.collect()
    end_run(app)
    collecting.collect()
    collecting.collect()
    assert len(listed()) == 2
    assert secret.exists()


def test_a_run_that_many_others_have_followed_loses_no_records(app, ask, listed, record, adder, monkeypatch):
    monkeypatch.setattr(runs, "KEPT", 1)
    record()
    ask(headers={"x-request-id": "a"})
    end_run(app)
    for number in range(3):  # before reconcile comes by
        runs.begin(app, f"app-8-{number}", adder)
    assert [each["id"] for each in listed()] == ["a"]
    collecting.collect()
    runs.begin(app, "app-8-4", adder)
    assert not AppRun.objects.filter(name=RUN).exists()


def test_a_process_without_threads_or_files_answers_and_goes_on(ask, listed, record, monkeypatch):
    record()
    spool = ask.recorder.spool
    spool.thread = None
    with monkeypatch.context() as patch:
        patch.setattr(ask.module.threading.Thread, "start", failing(RuntimeError("can't start new thread")))
        ask(headers={"x-request-id": "a"}, write=False)
        patch.setattr(ask.module.Path, "iterdir", failing(OSError(24, "Too many open files")))
        spool.write()
        patch.setattr(ask.module.Exchange, "entry", failing(TypeError("odd")))
        ask(headers={"x-request-id": "b"}, write=False)
    assert (spool.thread, spool.dropped, ask.passed) == (None, 2, [ask.answer])
    spool.thread = object()
    ask(headers={"x-request-id": "c"})
    assert [each["id"] for each in listed()] == ["c"]
    assert Recording.objects.get().dropped == 2


def failing(problem: Exception):
    def fail(*_given):
        raise problem

    return fail


def test_a_flood_of_lines_is_read_a_few_at_a_time(app, ask, listed, record, monkeypatch):
    monkeypatch.setattr(collecting, "ROUND_LINES", 10)
    record()
    ask(headers={"x-request-id": "a"})
    path = launching.folder(app) / files(app)[0]
    path.write_bytes(b"\n" * 25 + path.read_bytes() + b"\n" * 4)
    path.with_name(f"records-{RUN}-2.ndjson").write_bytes(path.read_bytes().strip() + b"\n")
    dropped = []
    for _round in range(5):
        found = listed()
        dropped.append(Recording.objects.get().dropped)
    assert dropped == [10, 20, 29, 29, 29]
    assert [each["id"] for each in found] == ["a", "a"]
    assert files(app) == [f"records-{RUN}-2.ndjson"]


def test_a_round_without_time_leaves_runs_to_the_next_ones(app, ask, listed, record, monkeypatch):
    record()
    ask(headers={"x-request-id": "a"})
    for number in range(3):
        AppRun.objects.create(app=app, name=f"other{number}", model_name="adder", ordered=timezone.now(), records={})
    read = []
    monkeypatch.setattr(collecting, "ROUND_S", 0)
    monkeypatch.setattr(collecting, "collect_run", lambda run: read.append(run.name))
    while len(set(read)) < 4:  # each of them has its turn
        before = len(read)
        collecting.collect()
        assert len(read) == before + 1


def test_a_user_without_room_records_no_more(app, ask, listed, record, as_alice, monkeypatch):
    record()
    monkeypatch.setattr(settings, "DATABASE_LIMIT_MIB", 0)
    stored._sums.clear()
    ask()
    assert listed() == []
    answer = as_alice.call("get", f"users/alice/apps/{app.name}/recording").json()
    assert answer["dropped"] == 1
    assert "MLP_DATABASE_LIMIT_MIB" in answer["reason"]


def test_a_nearly_full_disk_keeps_records_in_their_files(ask, listed, record, monkeypatch):
    record()
    ask()
    monkeypatch.setattr(settings, "DISK_MINIMUM_MIB", 1 << 40)
    assert listed() == []
    monkeypatch.undo()
    assert len(listed()) == 1


def aged(app, **days: int) -> None:
    for request_id, age in days.items():
        row = Record.objects.filter(app=app).order_by("-pk").first()
        row.pk, row.request_id, row.at = None, request_id, timezone.now() - timedelta(days=age)
        row.save(force_insert=True)
        Feedback.objects.create(app=app, user=app.user, request_id=request_id, value=1)
        Feedback.objects.filter(request_id=request_id).update(at=row.at)
    total = sum(Record.objects.filter(app=app).values_list("size", flat=True))
    Recording.objects.filter(app=app).update(stored=total)


def test_old_records_are_deleted(app, ask, listed, record):
    record(days=30)
    ask(headers={"x-request-id": "now"})
    listed()
    aged(app, old=31, week=8)
    retention.run(timezone.now())
    assert {each["id"] for each in listed()} == {"now", "week"}
    Tenant.objects.update(record_days=7)
    reconcile.run()
    assert {each["id"] for each in listed()} == {"now"}
    assert not Feedback.objects.exists()
    assert Recording.objects.get().stored == Record.objects.get().size


def test_the_oldest_go_when_there_are_too_many(app, ask, listed, record, monkeypatch):
    record()
    monkeypatch.setattr(retention, "MANY", 1)
    ask(headers={"x-request-id": "now"})
    listed()
    aged(app, old=9, older=10, oldest=11)
    monkeypatch.setattr(retention, "MIB", 2 * Record.objects.first().size)
    Recording.objects.update(most_mib=1)
    for row in Record.objects.all():
        retention.delete(Record.objects.none())
        assert row.size
    monkeypatch.setattr(retention, "delete", lambda rows, most=1, real=retention.delete: real(rows, 1))
    retention.run(timezone.now())
    assert {each["id"] for each in listed()} == {"now", "old"}


def test_all_are_deleted_on_request_and_with_the_application(app, ask, listed, record, as_alice, as_bob):
    record()
    ask()
    assert len(listed()) == 1
    path = f"users/alice/apps/{app.name}/records"
    assert as_bob.refused("delete", path)
    assert as_alice.call("delete", path).status_code == 200
    assert (listed(), Recording.objects.get().stored) == ([], 0)
    ask()
    assert len(listed()) == 1
    lifecycle.delete_app(user=app.user, name=app.name, by="alice")
    Application.objects.filter(pk=app.pk).update(run_name="", not_before=None)
    launching.erase(app.pk, follow=False)
    assert not Record.objects.exists()
    assert not Application.objects.exists()

"""The follower publishes lines after the commit that stores them; on real NATS and PostgreSQL."""

from __future__ import annotations

import psycopg
import pytest
from django.db import connection

from aiops.intake import accept, follow
from aiops.models import FollowedFile, LogLine, ModelVersion
from aiops.services import raw_logs
from aiops.services.housekeeping import Housekeeping
from aiops.wire import kv, payloads, subjects
from kernel import bus

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def log_file(tmp_path):
    folder = tmp_path / "log" / "web"
    folder.mkdir(parents=True)
    return folder / "web.log"


def add(path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def texts() -> list[str]:
    return list(LogLine.objects.order_by("pk").values_list("log", flat=True))


@pytest.fixture
def reader(tmp_path):
    return follow.Follower(tmp_path, accept.store)


def test_lines_and_offset_are_committed_before_the_lines_are_published(reader, log_file, peer, monkeypatch):
    send, seen = bus.send, []

    def look_and_send(messages, *args):
        with psycopg.connect(**connection.get_connection_params()) as other:
            rows = other.execute('SELECT count(*), (SELECT max("offset") FROM aiops_followed_file) FROM aiops_log')
            seen.append(rows.fetchone())
        send(messages, *args)

    monkeypatch.setattr(bus, "send", look_and_send)
    peer.listen(subjects.STORED_LOGS)
    add(log_file, "one\ntwo\n")
    assert reader.poll() == 2
    assert seen == [(2, 8)]
    assert [item.log for item in payloads.decode(peer.wait(subjects.STORED_LOGS)[0])] == ["one", "two"]


def test_nothing_is_published_when_the_transaction_is_rolled_back(reader, log_file, peer, monkeypatch):
    def fail(*_args, **_kwargs):
        raise OSError("no space left")

    add(log_file, "zero\n")
    reader.poll()
    peer.listen(subjects.STORED_LOGS)
    add(log_file, "one\n")
    with monkeypatch.context() as patch:
        patch.setattr(FollowedFile, "save", fail)
        with pytest.raises(OSError, match="no space"):
            reader.poll()
    assert texts() == ["zero"]
    assert reader.poll() == 1
    peer.publish(subjects.STORED_LOGS, b"last")
    assert [data == b"last" for data in peer.wait(subjects.STORED_LOGS, 2)] == [False, True]


def test_lines_not_forwarded_by_a_killed_process_are_forwarded_by_the_sweep(
    reader, log_file, tmp_path, peer, monkeypatch
):
    def die(*_args):
        raise SystemExit(137)

    kv.ensure()
    kv.put_watched({"local": {"platform": ["web"]}})
    ModelVersion.objects.create(version="v1", serving=True)
    add(log_file, "one\n")
    with monkeypatch.context() as patch:
        patch.setattr(bus, "send", die)
        with pytest.raises(SystemExit):
            reader.poll()
    assert texts() == ["one"]
    assert follow.Follower(tmp_path, accept.store).poll() == 0  # the offset is behind them
    monkeypatch.setattr("aiops.services.housekeeping.UNJUDGED_AFTER_S", -60)
    peer.listen(subjects.STORED_LOGS)
    keeper = Housekeeping()
    assert keeper.sweep() == 1
    keeper.stop()
    assert [item.log for item in payloads.decode(peer.wait(subjects.STORED_LOGS)[0])] == ["one"]


def test_lines_go_out_as_opnis_preprocessing_expects_them_where_it_stands_in_for_ours(peer, settings):
    settings.AIOPS_SUBJECT = subjects.RAW_LOGS
    peer.listen(subjects.RAW_LOGS), peer.listen(subjects.STORED_LOGS)
    accept.store([accept.line(text, id=text, namespace="shop", deployment="web") for text in ("one", "two")])
    items = [payloads.decode_one(data) for data in peer.wait(subjects.RAW_LOGS, 2)]
    assert [(item._id, item.log, item.deployment) for item in items] == [("one", "one", "web"), ("two", "two", "web")]
    assert peer.until_now(subjects.STORED_LOGS) == []


def test_lines_are_stored_once_though_they_come_back_on_that_subject(peer, settings):
    settings.AIOPS_SUBJECT = subjects.RAW_LOGS
    peer.listen(subjects.RAW_LOGS)
    accept.store([accept.line("one", id="one", at_ms=1_700_000_000_000)])
    raw_logs.Intake().raw(peer.wait(subjects.RAW_LOGS))
    assert list(LogLine.objects.values_list("log", "time")) == [("one", 1_700_000_000_000)]

"""Log intake on real NATS: the file follower, raw_logs, write-back of verdicts, counts and the sweep."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta

import pytest

from aiops import logstore
from aiops.conftest import payload
from aiops.intake import accept, follow
from aiops.models import FollowedFile, LogLine, ModelVersion, Template
from aiops.services.housekeeping import Housekeeping
from aiops.services.raw_logs import Intake
from aiops.services.writeback import WriteBack
from aiops.wire import kv, payloads, subjects
from kernel import bus
from kernel import sent_times as times
from kernel.errors import Fault
from kernel.tests.nats_tools import until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def log_file(tmp_path):
    folder = tmp_path / "log" / "web"
    folder.mkdir(parents=True)
    return folder / "web.log"


@pytest.fixture
def follower(tmp_path):
    """Return a function that creates a follower without state, as after a restart."""
    return lambda: follow.Follower(tmp_path, logstore.get().append)


def texts() -> list[str]:
    return list(LogLine.objects.order_by("pk").values_list("log", flat=True))


def add(path, text: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


class TestFollower:
    def test_files_that_come_into_folders_of_long_ago_are_read(self, follower, log_file, tmp_path):
        run = tmp_path / "jobs" / "alice" / "one" / "log"
        run.mkdir(parents=True)
        add(run / "job.log", "one\n")
        for folder in (run.parents[1], run.parents[2], log_file.parent, log_file.parents[1]):
            os.utime(folder, (1e9, 1e9))
        reader = follower()
        assert reader.poll() == 1
        add(log_file.with_name("second.log"), "two\n")
        later = run.parents[1] / "later" / "log"
        later.mkdir(parents=True)
        add(later / "job.log", "three\n")
        add(run / "job.log", "four\n")
        assert reader.poll() == 3
        assert sorted(texts()) == ["four", "one", "three", "two"]

    def test_complete_lines_are_read_as_they_are_written(self, follower, log_file):
        add(log_file, "one\ntwo\nhal")
        reader = follower()
        assert reader.poll() == 2
        add(log_file, "f\n\n")
        assert reader.poll() == 1
        assert reader.poll() == 0
        assert texts() == ["one", "two", "half"]
        row = LogLine.objects.first()
        assert (row.cluster, row.namespace, row.deployment, row.pod) == ("local", "platform", "web", "web.log")

    def test_after_a_restart_no_line_is_lost_or_duplicated(self, follower, log_file):
        add(log_file, "one\ntwo\n")
        follower().poll()
        add(log_file, "three\n")
        assert follower().poll() == 1
        assert texts() == ["one", "two", "three"]

    def test_killed_before_storing_the_offset_it_rereads_without_duplicates(self, follower, log_file):
        add(log_file, "one\ntwo\n")
        reader = follower()
        reader.poll()
        FollowedFile.objects.update(offset=0, tail="")  # the mark was never written
        assert follower().poll() == 2
        assert texts() == ["one", "two"]

    def test_killed_during_the_first_lines_it_rereads_them_with_the_same_ids(self, tmp_path, log_file):
        """The log store is not part of the database's transaction."""
        stored, killed = {}, []

        def take(lines):
            stored.update({line["_id"]: line["log"] for line in lines})
            if killed:
                raise KeyboardInterrupt

        for text in ("one\ntwo\n", "one\n"):  # then cut off, with the same first line
            log_file.write_text(text)
            killed.append(True)
            with pytest.raises(KeyboardInterrupt):
                follow.Follower(tmp_path, take).poll()
            killed.clear()
            follow.Follower(tmp_path, take).poll()
        assert list(stored.values()) == ["one", "two", "one"]

    def test_an_unavailable_store_is_retried(self, tmp_path, log_file):
        calls = []

        def take(lines):
            calls.append(len(lines))
            if len(calls) == 1:
                raise Fault("away")
            logstore.get().append(lines)

        add(log_file, "one\n")
        with pytest.raises(Fault):
            follow.Follower(tmp_path, take).poll()
        follow.Follower(tmp_path, take).poll()
        assert texts() == ["one"]

    def test_after_rotation_the_old_file_is_read_to_its_end_and_the_new_one_from_its_start(self, follower, log_file):
        add(log_file, "one\n")
        reader = follower()
        reader.poll()
        add(log_file, "two\n")
        log_file.rename(log_file.with_name("web.log.1"))
        add(log_file, "three\n")
        for file in (reader, follower()):
            file.poll()
        assert sorted(texts()) == ["one", "three", "two"]

    def test_a_truncated_file_is_read_from_its_start(self, follower, log_file):
        add(log_file, "one\ntwo\nthree\n")
        reader = follower()
        reader.poll()
        log_file.write_text("four\n")
        reader.poll()
        assert texts() == ["one", "two", "three", "four"]

    @pytest.mark.parametrize("restarted", [False, True], ids=["continued", "restarted"])
    @pytest.mark.parametrize(
        "later",
        ["begin\nfour\n", "begin\nfour\nfive\nsix\n", "begin\nTWO\nTHREE\n"],
        ids=["shorter", "longer", "as long"],
    )
    def test_a_file_rewritten_with_the_same_first_line_loses_no_line(self, follower, log_file, later, restarted):
        add(log_file, "begin\ntwo\nthree\n")
        reader = follower()
        reader.poll()
        log_file.write_text(later)
        os.utime(log_file, (1, 1))  # by now its time has changed, whatever the file system's clock
        (follower() if restarted else reader).poll()
        assert texts() == ["begin", "two", "three", *later.split()]

    def test_a_new_file_with_the_inode_of_a_removed_one_is_read_completely(self, follower, log_file):
        """As when a job is deleted and created again: the file system reuses the inode number."""
        add(log_file, "begin\none\n")
        reader = follower()
        reader.poll()
        kept = log_file.parents[2] / "kept"
        log_file.rename(kept)  # out of sight, so that the number is surely the same
        reader.poll(), reader.poll()
        assert not FollowedFile.objects.exists()
        kept.rename(log_file)
        reader.poll()
        assert texts() == ["begin", "one"] * 2

    def test_a_file_renamed_during_the_scan_is_not_forgotten(self, follower, log_file, monkeypatch):
        add(log_file, "one\n")
        reader = follower()
        reader.poll()
        add(log_file, "two\n")
        log_file.rename(log_file.with_name("web.log.1"))
        with monkeypatch.context() as patch:
            patch.setattr(reader, "sources", ())
            reader.poll()
        reader.poll()
        assert texts() == ["one", "two"]

    def test_no_file_is_forgotten_when_a_folder_cannot_be_listed(self, follower, log_file, monkeypatch):
        add(log_file, "one\n")
        reader = follower()
        reader.poll()
        with monkeypatch.context() as patch:
            patch.setattr(follow, "_folders", lambda folder: [])
            reader.poll(), reader.poll(), reader.poll()
        add(log_file, "two\n")
        reader.poll()
        assert texts() == ["one", "two"]

    def test_another_file_with_the_same_inode_is_a_new_file(self, follower, log_file):
        add(log_file, "one\ntwo\n")
        follower().poll()
        log_file.write_text("six\nseven\neight\n")  # the same inode, longer than before
        follower().poll()
        assert texts() == ["one", "two", "six", "seven", "eight"]

    def test_jobs_and_applications_are_workloads_of_their_users(self, follower, tmp_path):
        for kind, name in (("jobs", "job.log"), ("apps", "app.log")):
            folder = tmp_path / kind / "alice" / "fit" / "log"
            folder.mkdir(parents=True)
            add(folder / name, f"{kind} speaks\n")
        follower().poll()
        assert set(LogLine.objects.values_list("namespace", "deployment", "log")) == {
            ("alice", "fit", "jobs speaks"),
            ("alice", "fit", "apps speaks"),
        }

    def test_links_long_lines_and_invalid_bytes(self, follower, tmp_path, log_file):
        (tmp_path / "secret").write_text("of the platform\n")
        (log_file.parent / "link.log").symlink_to(tmp_path / "secret")
        add(log_file, b"\xff\x00 odd\n" + b"x" * (3 * follow.LONGEST_LINE) + b"\nlast\n")
        reader = follower()
        while reader.poll():
            pass
        stored = texts()
        assert "of the platform" not in stored
        assert stored[0] == "\ufffd\ufffd odd"
        assert stored[-1] == "last"
        assert max(map(len, stored)) <= accept.MAX_CHARACTERS

    def test_a_line_that_begins_with_a_timestamp_keeps_it(self, follower, log_file):
        add(log_file, "2026-11-21T08:00:00.250Z up\n2026-11-21 08:00:01,5 well\nnow\n")
        follower().poll()
        times = list(LogLine.objects.order_by("pk").values_list("time", flat=True))
        assert times[:2] == [1795248000250, 1795248001500]
        assert times[2] > times[1] - 1000 * 86400 * 365 * 10

    def test_the_services_own_log_is_not_followed(self, follower, tmp_path):
        (tmp_path / "log" / "aiops").mkdir(parents=True)
        add(tmp_path / "log" / "aiops" / "aiops.log", "a line is dropped\n")
        assert follower().poll() == 0


class TestStore:
    def test_lines_are_stored_and_then_forwarded(self, peer):
        peer.listen(subjects.STORED_LOGS)
        lines = [accept.line(f"line {number}", deployment="web", namespace="shop") for number in range(3)]
        assert accept.store(lines) == 3
        items = payloads.decode(peer.wait(subjects.STORED_LOGS)[0])
        assert [(item._id, item.log, item.cluster_id) for item in items] == [
            (line["_id"], line["log"], "local") for line in lines
        ]
        again = [accept.line("line 9", id="fresh"), {**lines[0], "log": "another text"}, accept.line("", id="fresh")]
        assert accept.store(again) == 1
        (item,) = payloads.decode(peer.wait(subjects.STORED_LOGS, 2)[1])  # what was stored, and nothing else
        assert (item._id, item.log) == ("fresh", "line 9")
        assert accept.store(lines) == 0

    def test_without_nats_nothing_is_acknowledged_or_stored(self, monkeypatch):
        def away(*_):
            raise Fault("the message bus is not available")

        monkeypatch.setattr(bus, "check", away)
        with pytest.raises(Fault):
            accept.store([accept.line("x")])
        assert not LogLine.objects.exists()

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            (1700000000, 0), (1700000000.5, 500), (1700000000000, 0), (1700000000000000, 0),
            ("1700000000000000000", 0), ("1700000000.25", 250), ("2023-11-14T22:13:20Z", 0),
            ("2023-11-14T22:13:20", 0), ("2023-11-14 22:13:20,123", 123), ("2023/11/14 22:13:20", 0),
            ("15/Nov/2023:06:13:20 +0800", 0), ("[14/Nov/2023:22:13:20 +0000]", 0),
            ("Tue, 14 Nov 2023 22:13:20 GMT", 0), ("Tue Nov 14 22:13:20 2023", 0),
            ("2023-11-14 22:13:20.5 +0000 UTC m=+0.1", 500), ("2023年11月14日 22:13:20", 0),
            ("soon", None), ("", None), ("²", None), ("٣", None), (True, None), (None, None), ({}, None), (-5, None),
            (float("nan"), None), (10**400, None), ("9" * 400, None), ("2023-11-14 22:13:20 CST", None),
            ("99/Nov/2023:22:13:20 +0000", None),
        ],
        ids=lambda value: str(value)[:40],
    )  # fmt: skip
    def test_timestamps_of_every_unit_and_form(self, given, expected):
        assert times.milliseconds(given) == (expected if expected is None else 1700000000000 + expected)

    def test_a_time_without_a_year_is_in_the_last_twelve_months(self):
        now = datetime.now(UTC)
        for days in (0, 1, 100, 300):
            at = (now - timedelta(days=days)).replace(microsecond=0)
            assert times.milliseconds(f"{at:%b} {at.day:2} {at:%H:%M:%S}") == at.timestamp() * 1000


class TestServices:
    def test_lines_on_raw_logs_are_stored_and_invalid_messages_dropped(self, served, peer):
        served(Intake())
        for data in (
            b"\xff\xff",
            payload(1).SerializeToString(),
            b"",
            payload(2).SerializeToString(),
            payload(1).SerializeToString(),
        ):
            peer.publish(subjects.RAW_LOGS, data)
        until(lambda: LogLine.objects.count() == 2)
        assert set(LogLine.objects.values_list("line_id", flat=True)) == {"id1", "id2"}

    def test_verdicts_templates_and_explanations_are_written_back(self, served, peer):
        logstore.get().append([accept.document(payload(1)), accept.document(payload(2))])
        served(WriteBack())
        judged = payload(1, anomaly_level="Anomaly", inference_model="opnilog", opnilog_confidence=0.25)
        judged.masked_log, judged.template_matched, judged.template_cluster_id = "connected", "<*>", 7
        hit = payload(2, masked_log="connected to <ip>", anomaly_level="Normal", inference_model="drain")
        peer.publish(subjects.INFERENCED, b"\xff")
        peer.publish(subjects.INFERENCED, payloads.encode([judged, hit]))
        peer.publish(
            subjects.TEMPLATES_INDEX, payloads.encode([payload(7, _id="7", template_matched="connected to <*>")])
        )
        for wrong in (b"{", b"[" * 200_000):
            peer.publish(subjects.EXPLANATIONS, wrong)
        names = {"cluster_id": "c1", "namespace_name": "shop"}
        peer.publish(subjects.EXPLANATIONS, json.dumps([{"_id": "id1", **names, "unexpected": [[2, "<ip>"]]}]).encode())
        until(lambda: Template.objects.exists() and LogLine.objects.filter(unexpected__isnull=False).exists())
        until(lambda: LogLine.objects.exclude(level="").count() == 2)
        one, two = LogLine.objects.order_by("line_id")
        assert (one.level, one.confidence, one.template_id, one.unexpected) == ("Anomaly", 0.25, 7, [[2, "<ip>"]])
        assert (two.level, two.confidence, two.model) == ("Normal", None, "drain")

    def test_a_stored_line_is_not_overwritten_by_one_with_the_same_id(self, served, peer):
        """On the bus the sender chooses the id: the first line with an id is stored."""
        served(Intake(), WriteBack())
        logstore.get().append([accept.line("hers", namespace="alice", id="id1")])
        peer.publish(subjects.RAW_LOGS, payload(1).SerializeToString())
        judged = [payload(1, masked_log="theirs", anomaly_level="Anomaly"), payload(2, anomaly_level="Anomaly")]
        words = [
            {"_id": "id1", "cluster_id": "c1", "namespace_name": "shop", "unexpected": [[0, "theirs"]]},
            {"_id": "id1", "cluster_id": "local", "namespace_name": "alice", "unexpected": [[0, "hers"]]},
        ]
        logstore.get().append([accept.document(payload(2))])
        peer.publish(subjects.INFERENCED, payloads.encode(judged))
        peer.publish(subjects.EXPLANATIONS, json.dumps(words).encode())
        until(lambda: LogLine.objects.filter(level="Anomaly").exists() and LogLine.objects.exclude(unexpected=None))
        alice_page = LogLine.objects.get(line_id="id1")
        assert (alice_page.log, alice_page.masked, alice_page.level, alice_page.unexpected) == (
            "hers",
            "",
            "",
            [[0, "hers"]],
        )

    def test_the_counts_are_kept_in_the_key(self):
        kv.ensure()
        logstore.get().append([accept.document(payload(number)) for number in range(3)])
        keeper = Housekeeping()
        keeper.count()
        keeper.stop()
        assert kv.aggregation() == {"c1": {"shop": {"web": 3}}}

    def test_lines_without_a_verdict_are_forwarded_again(self, peer, monkeypatch):
        kv.ensure()
        kv.put_watched({"c1": {"shop": ["web"]}})
        monkeypatch.setattr("aiops.services.housekeeping.UNJUDGED_AFTER_S", -60)
        logstore.get().append([accept.document(payload(1)), accept.document(payload(2, deployment="db"))])
        logstore.get().append([accept.document(payload(3))])
        logstore.get().update_many([("id3", {"anomaly_level": "Normal"})])
        peer.listen(subjects.STORED_LOGS)
        keeper = Housekeeping()
        assert keeper.sweep() == 0  # no model serves: nobody could judge
        ModelVersion.objects.create(version="v1", serving=True)
        assert keeper.sweep() == 1
        done = [work() for _seconds, work in keeper.ticks]
        assert not any(done)  # nothing that would be published
        keeper.stop()
        assert {item._id for item in payloads.decode(peer.wait(subjects.STORED_LOGS)[0])} == {"id1"}


def test_two_followers_store_each_line_once(follower, log_file):
    add(log_file, "".join(f"line {number}\n" for number in range(100)))
    one, two = follower(), follower()
    one.poll(), two.poll()
    add(log_file, "more\n")
    two.poll(), one.poll()
    assert len(texts()) == 101
    assert os.path.getsize(log_file) == FollowedFile.objects.get().offset

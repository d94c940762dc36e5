"""Preprocessing and DRAIN over real NATS; the other side sends golden payloads."""

from __future__ import annotations

import json
import logging
import time
from types import SimpleNamespace

import pytest

from aiops import logstore
from aiops.conftest import payload
from aiops.intake import accept
from aiops.models import LogLine
from aiops.services import base
from aiops.services.drain import WorkloadDrain
from aiops.services.preprocess import Preprocessing
from aiops.services.writeback import WriteBack
from aiops.wire import kv, payloads, subjects
from kernel.tests.nats_tools import until

pytestmark = pytest.mark.django_db(transaction=True)

WATCHED = {"c1": {"shop": ["web"]}}
GOLDEN = payloads.encode([payload(1, masked_log="connected to <ip>")])


def lists(messages: list[bytes]) -> list[payloads.Payload]:
    return [item for data in messages for item in payloads.decode(data)]


def watchlist_update(kind: str, workloads: dict) -> bytes:
    return json.dumps({"workloads": workloads, "status_type": kind}).encode()


class Active:
    """A fake of the database's lock: this replica is active, or it is not."""

    def __init__(self, yes: bool = True):
        self.yes = yes

    def hold(self) -> bool:
        return self.yes

    def is_undisturbed(self) -> bool:
        return self.yes

    def release(self) -> None:
        self.yes = False


# --- preprocessing ---------------------------------------------------------------------------------------------------
def test_raw_logs_are_single_payloads_masked_and_sorted(served, peer):
    kv.put_parameters("u", WATCHED)
    peer.listen("preprocessed_logs_workload")
    peer.listen("preprocessed_logs_pretrained_model")
    served(Preprocessing())
    peer.publish("raw_logs", payload(1).SerializeToString())
    peer.publish("raw_logs", payload(2, deployment="other").SerializeToString())
    peer.publish("raw_logs", payload(3, log_type="controlplane", namespace_name="").SerializeToString())
    (item,) = lists(peer.wait("preprocessed_logs_workload"))
    assert (item._id, item.masked_log, item.log) == ("id1", "connected to <ip>", "connected to 10.0.0.1")
    (other,) = lists(peer.wait("preprocessed_logs_pretrained_model"))
    assert (other._id, other.log_type) == ("id3", "controlplane")


def test_payloads_of_our_intake_are_lists(served, peer):
    kv.put_parameters("u", WATCHED)
    peer.listen("preprocessed_logs_workload")
    served(Preprocessing())
    peer.publish("mlp.aiops.stored_logs", payloads.encode([payload(number) for number in range(5)]))
    assert [item._id for item in lists(peer.wait("preprocessed_logs_workload"))] == [f"id{n}" for n in range(5)]


def test_every_replica_gets_the_watchlist_and_one_replica_each_line(served, peer):
    """Bug 11: with the message in a queue group, one replica keeps the old watchlist."""
    first, second = Preprocessing(), Preprocessing()
    served(first), served(second)
    peer.publish("model_workload_parameters", watchlist_update("train", WATCHED))
    until(lambda: first.watched == second.watched == {("c1", "shop", "web")})
    peer.listen("preprocessed_logs_workload")
    for number in range(60):
        peer.publish("raw_logs", payload(number).SerializeToString())
    until(lambda: len(lists(peer.heard["preprocessed_logs_workload"])) >= 60)
    received = sorted(item._id for item in lists(peer.heard["preprocessed_logs_workload"]))
    assert received == sorted(f"id{number}" for number in range(60))
    peer.publish("model_workload_parameters", watchlist_update("reset", {}))
    until(lambda: first.watched == second.watched == set())


def test_a_watchlist_with_swapped_names_matches_nothing():
    """Bug 16: a namespace with the name of a deployment is another workload."""
    service = Preprocessing()
    service.parameters(watchlist_update("update", WATCHED))
    assert service.sort([payload(namespace_name="web", deployment="shop")]) == []
    assert len(service.sort([payload()])) == 1


def test_many_large_lines_are_split_below_the_servers_limit():
    """Related to bug 13: nothing in the original keeps a list below max_payload."""
    service = Preprocessing()
    service.parameters(watchlist_update("update", WATCHED))
    messages = service.sort([payload(number, log="word " * 60_000) for number in range(80)])
    assert len(messages) >= 3
    assert all(len(data) <= subjects.MAX_PAYLOAD for _, data in messages)
    assert len(lists([data for _, data in messages])) == 80


def test_the_reasons_of_many_anomalies_are_split_below_the_limit_too(caplog):
    rows = [{"_id": f"id{number}", "masked_log": "wörd " * 6000, "unexpected": []} for number in range(600)]
    messages = base.json_lists(subjects.EXPLANATIONS, [*rows, {"_id": "huge", "masked_log": "x" * (9 << 20)}])
    assert len(messages) > 1
    assert all(len(data) <= subjects.MAX_PAYLOAD for _, data in messages)
    assert [row["_id"] for _, data in messages for row in json.loads(data)] == [row["_id"] for row in rows]
    assert "too large" in caplog.text
    assert base.json_lists(subjects.EXPLANATIONS, []) == []


# --- DRAIN -----------------------------------------------------------------------------------------------------------
def drain(*, active: bool = True) -> WorkloadDrain:
    service = WorkloadDrain(Active(active))
    service.poll()
    return service


def test_a_miss_is_scored_by_the_model_and_cached(served, peer):
    for subject in ("opnilog_workload_logs", "inferenced_logs", "templates_index"):
        peer.listen(subject)
    served(drain())
    peer.publish("preprocessed_logs_workload", GOLDEN)
    (missed,) = lists(peer.wait("opnilog_workload_logs"))
    assert (missed._id, missed.masked_log, missed.anomaly_level) == ("id1", "connected to <ip>", "")
    missed.opnilog_confidence, missed.anomaly_level, missed.inference_model = 0.25, "Anomaly", "opnilog"
    peer.publish("model_inferenced_workload_logs", payloads.encode([missed]))
    (judged,) = lists(peer.wait("inferenced_logs"))
    assert (judged.inference_model, judged.anomaly_level, judged.opnilog_confidence) == ("opnilog", "Anomaly", 0.25)
    assert judged.template_matched
    (template,) = lists(peer.wait("templates_index"))
    assert template._id == str(judged.template_cluster_id) == str(template.template_cluster_id)
    assert (template.template_matched, template.log) == (judged.template_matched, "connected to 10.0.0.1")
    peer.publish("preprocessed_logs_workload", payloads.encode([payload(2, masked_log="connected to <ip>")]))
    hit = lists(peer.wait("inferenced_logs", 2))[-1]
    assert (hit._id, hit.inference_model, hit.anomaly_level) == ("id2", "drain", "Anomaly")
    assert len(peer.until_now("opnilog_workload_logs")) == 1


def test_the_explanation_of_an_anomaly_stays_with_its_text(served, peer, alice):
    """Also of the next lines of the text, which no model sees, and after a restart; a user's label has none."""
    logstore.get().append([accept.line("odd thing", namespace="alice", id=name) for name in ("id1", "id2", "id3")])
    active, names = drain(), {"cluster_id": "local", "namespace_name": "alice", "masked_log": "odd thing"}
    served(active), served(WriteBack())
    judged = payload(1, **names, anomaly_level="Anomaly", inference_model="opnilog", opnilog_confidence=0.25)
    words = [{"_id": "id1", **names, "unexpected": [[0, "odd"]]}]
    peer.publish("mlp.aiops.explanations", json.dumps(words).encode())
    peer.publish("model_inferenced_workload_logs", payloads.encode([judged]))
    until(lambda: active.cache.match_many(["odd thing"])[0] is not None and not active.cache.early)

    def explained(id: str) -> bool:
        row = LogLine.objects.get(line_id=id)
        return (row.level, row.confidence, row.unexpected) == ("Anomaly", 0.25, [[0, "odd"]])

    peer.publish("preprocessed_logs_workload", payloads.encode([payload(2, **names)]))
    until(lambda: explained("id2"))
    active.cache.load(active.cache.dump())
    peer.publish("preprocessed_logs_workload", payloads.encode([payload(3, **names)]))
    until(lambda: explained("id3"))
    active.cache.learn([("odd thing", "Anomaly", "odd thing")], from_feedback=True)
    assert active.cache.match_many(["odd thing"])[0][3:] == (None, None)


@pytest.mark.parametrize(("kind", "kept"), [("train", False), ("reset", False), ("update", True)])
def test_train_and_reset_clear_the_cache_but_update_does_not(kind, kept):
    service = drain()
    service.learn([payloads.encode([payload(masked_log="connected to <ip>", anomaly_level="Normal")])])
    service.parameters(watchlist_update(kind, WATCHED))
    ((subject, _data),) = service.judge([GOLDEN])
    assert subject == ("inferenced_logs" if kept else "opnilog_workload_logs")


def test_a_new_model_invalidates_verdicts_but_a_started_training_does_not():
    service = drain()
    service.learn([payloads.encode([payload(masked_log="connected to <ip>", anomaly_level="Normal")])])
    service.model_update(b'{"status": "training"}')
    assert service.judge([GOLDEN])[0][0] == "inferenced_logs"
    service.model_update(b'{"bucket": "opni-nulog-models", "bucket_files": {}}')
    assert service.judge([GOLDEN])[0][0] == "opnilog_workload_logs"


def test_templates_are_learned_from_all_texts_and_keep_their_numbers_with_a_new_model():
    service = drain()
    users = ["".join(chr(97 + int(digit)) * 2 for digit in str(number)) for number in range(40)]
    texts = [f"user {user} opened the page" for user in users]
    service.learn([payloads.encode([payload(masked_log=text, anomaly_level="Normal") for text in texts])])
    ((subject, data),) = service.poll()
    (template,) = payloads.decode(data)
    assert (subject, template.template_matched) == ("templates_index", "user <*> opened the page")
    service.parameters(watchlist_update("train", WATCHED))
    service.model_update(b'{"bucket": "opni-nulog-models", "bucket_files": {}}')
    new = payload(masked_log="user zoe opened the page", anomaly_level="Normal")
    ((subject, data),) = service.learn([payloads.encode([new])])
    assert subject == "inferenced_logs"  # and nothing about a new template
    assert payloads.decode(data)[0].template_cluster_id == template.template_cluster_id


def test_the_passive_replica_takes_over_the_active_ones_state():
    """Bug 13: no state lives only in a process; template numbers stay unique."""
    first, second = drain(), drain(active=False)
    first.learn([payloads.encode([payload(masked_log="connected to <ip>", anomaly_level="Normal")])])
    assert second.judge([GOLDEN]) == []
    first.stop()
    second.active.yes = True
    second.poll()
    assert second.judge([GOLDEN])[0][0] == "inferenced_logs"


def test_a_passive_replica_neither_learns_nor_publishes():
    """Otherwise it would create templates with numbers that the active one gives to others."""
    passive = drain(active=False)
    judged = payloads.encode([payload(masked_log="connected to <ip>", anomaly_level="Anomaly")])
    assert passive.learn([judged]) == []
    assert passive.feedback(judged) == []
    assert passive.poll() == []
    passive.stop()
    passive.active.yes = True
    passive.poll()
    assert passive.judge([GOLDEN])[0][0] == "opnilog_workload_logs"


def test_a_replica_that_lost_the_lock_is_passive():
    service = drain()
    judged = payloads.encode([payload(masked_log="connected to <ip>", anomaly_level="Anomaly")])
    service.active.yes = False
    service.poll()
    assert service.judge([GOLDEN]) == service.learn([judged]) == service.feedback(judged) == []


def test_a_message_of_labels_or_models_makes_the_next_look_due():
    service = drain()

    def calm() -> None:
        service.news.stirred, service.news.looked = float("-inf"), time.monotonic() + 3600

    calm()
    assert not service.is_poll_due()
    service.feedback(b"")
    assert service.is_poll_due()
    calm()
    service.model_update(b'{"status": "training"}')
    assert service.is_poll_due()
    calm()
    service.learn([payloads.encode([payload(masked_log="connected to <ip>", anomaly_level="Normal")])])
    assert service.is_poll_due()
    calm()
    service.active.yes = False
    assert service.is_poll_due()


def test_a_users_label_overrides_the_models_verdict():
    service = drain()
    service.learn([payloads.encode([payload(masked_log="connected to <ip>", anomaly_level="Anomaly")])])
    service.feedback(payloads.encode([payload(9, masked_log="connected to <ip>", anomaly_level="Normal")]))
    ((_, data),) = service.judge([GOLDEN])
    assert lists([data])[0].anomaly_level == "Normal"


# --- wrong payloads --------------------------------------------------------------------------------------------------
WRONG = [b"", b"{}", b"hello", b"\xff\xfe" * 20]


@pytest.mark.parametrize(
    ("make", "subject", "good", "out"),
    [
        (lambda: SimpleNamespace(service=Preprocessing()), "raw_logs", payload().SerializeToString(), None),
        (lambda: SimpleNamespace(service=Preprocessing()), "mlp.aiops.stored_logs", payloads.encode([payload()]), None),
        (lambda: SimpleNamespace(service=drain()), "preprocessed_logs_workload", GOLDEN, "opnilog_workload_logs"),
        (
            lambda: SimpleNamespace(service=drain()),
            "model_inferenced_workload_logs",
            payloads.encode([payload(anomaly_level="Normal", masked_log="x")]),
            "inferenced_logs",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_invalid_payload_is_logged_with_its_subject_and_dropped(served, peer, caplog, make, subject, good, out):
    kv.put_parameters("u", WATCHED)
    out = out or "preprocessed_logs_workload"
    peer.listen(out)
    served(make().service)
    with caplog.at_level(logging.WARNING):
        for wrong in (*WRONG[1:], GOLDEN[:-3]):
            peer.publish(subject, wrong)
        peer.publish(subject, good)
        assert lists(peer.wait(out))[0]._id == "id1"
    assert sum(subject in record.getMessage() for record in caplog.records) >= 4


@pytest.mark.parametrize("wrong", [b"", b"no json", b"[]", b'{"status_type": "never"}', b'{"workloads": 5}'])
def test_an_invalid_watchlist_changes_nothing(served, peer, caplog, wrong):
    kv.put_parameters("u", WATCHED)
    service, cache = Preprocessing(), drain()
    cache.learn([payloads.encode([payload(masked_log="connected to <ip>", anomaly_level="Normal")])])
    served(service, cache)
    with caplog.at_level(logging.WARNING):
        peer.publish("model_workload_parameters", wrong)
        until(lambda: any("model_workload_parameters" in record.getMessage() for record in caplog.records))
    assert service.watched == {("c1", "shop", "web")}
    assert cache.judge([GOLDEN])[0][0] == "inferenced_logs"

"""Lines whose text was judged before are stored with their verdict, over real NATS; all others are judged later."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from accounts.models import User
from aiops.conftest import payload
from aiops.intake import accept, known
from aiops.judging import feedback
from aiops.models import LogLine
from aiops.services.tests.test_values import by_the_model, line, serve_a_model
from aiops.services.tests.test_wire_logs import WATCHED, drain, lists
from aiops.wire import kv, payloads, subjects
from kernel.telemetry import meters
from kernel.tests.nats_tools import until
from opnilog.masking import mask

pytestmark = pytest.mark.django_db(transaction=True)

WEB = {"cluster": "c1", "namespace": "shop", "deployment": "web"}
ASKED, STORED = "mlp.aiops.known_verdicts", "mlp.aiops.stored_logs"


@pytest.fixture
def heard(peer):
    for subject in ("inferenced_logs", ASKED, STORED):
        peer.listen(subject)
    return peer


@pytest.fixture
def judging(heard, served):
    """Return `judging(payload, …, watched=…)`: DRAIN serves, watches workloads, and has learned these verdicts."""

    def start(*items: payloads.Payload, watched: dict = WATCHED):
        kv.put_parameters("u", watched)
        service = drain()
        served(service)
        for item in items:
            heard.publish("model_inferenced_workload_logs", payloads.encode([item]))
        heard.wait("inferenced_logs", len(items))
        return service

    return start


def send(*texts: str, **where) -> list[LogLine]:
    """Store the lines as they arrive, and return them."""
    known_ones = set(LogLine.objects.values_list("pk", flat=True))
    accept.store([accept.line(text, **{**WEB, **where}) for text in texts])
    return list(LogLine.objects.exclude(pk__in=known_ones).order_by("pk"))


def forwarded(heard) -> list[str]:
    return [item.log for item in lists(heard.until_now(STORED))]


def scored(text: str, level: str = "Normal", confidence: float = 0.9, number: int = 1) -> payloads.Payload:
    fields = {"anomaly_level": level, "opnilog_confidence": confidence, "inference_model": "opnilog"}
    return payload(number, log=text, masked_log=mask(text), **fields)


def test_a_line_of_a_known_text_is_stored_with_its_verdict_and_not_forwarded(heard, judging):
    judging(scored("connected to 10.0.0.1"))
    [row] = send("connected to 10.0.0.77")
    assert (row.level, row.masked, row.template, row.model) == (
        "Normal", "connected to <ip>", "connected to <ip>", "drain",
    )  # fmt: skip
    assert (row.template_id, row.confidence) == (1, 0.9)
    assert forwarded(heard) == []


def test_of_several_lines_those_of_other_texts_are_forwarded(heard, judging):
    judging(scored("connected to 10.0.0.1"))
    rows = send("connected to 10.0.0.7", "never seen", "connected to 10.0.0.8")
    assert [row.level for row in rows] == ["Normal", "", "Normal"]
    assert forwarded(heard) == ["never seen"]


def test_an_anomaly_is_stored_with_the_words_that_were_not_expected(judging, heard):
    service = judging(scored("disk on fire", "Anomaly", 0.2))
    reason = {"_id": "id1", "cluster_id": "c1", "namespace_name": "shop", "masked_log": "disk on fire"}
    heard.publish("mlp.aiops.explanations", json.dumps([{**reason, "unexpected": [[2, "fire"]]}]).encode())
    until(lambda: service.cache.match("disk on fire").unexpected)
    [row] = send("disk on fire")
    assert (row.level, row.confidence, row.unexpected) == ("Anomaly", 0.2, [[2, "fire"]])


def test_lines_of_workloads_that_are_not_watched_have_no_verdict_and_are_not_asked_about_again(judging, heard):
    judging(scored("connected to 10.0.0.1"))
    for number in range(3):
        [row] = send(f"connected to 10.0.0.{number}", deployment="other")
        assert row.level == ""
    assert len(heard.until_now(ASKED)) == 1
    assert len(forwarded(heard)) == 3


def test_lines_of_a_workload_that_is_watched_from_now_on_have_verdicts(judging, heard, monkeypatch):
    judging(scored("connected to 10.0.0.1"))
    assert send("connected to 10.0.0.2", deployment="other")[0].level == ""
    watched = {"c1": {"shop": ["web", "other"]}}
    kv.put_parameters("u", watched)  # which is read now and then, too
    update = {"workloads": watched, "status_type": "update"}
    heard.publish("model_workload_parameters", json.dumps(update).encode())
    clock = known.time.monotonic() + known.UNWATCHED_S
    monkeypatch.setattr(known, "time", SimpleNamespace(monotonic=lambda: clock))
    assert send("connected to 10.0.0.3", deployment="other")[0].level == "Normal"


def test_a_line_with_an_unusual_value_is_judged_after_it_is_stored(judging, heard, tmp_path):
    serve_a_model(tmp_path)
    judging(by_the_model(line()))
    rows = send(line(304), line(500), line(200, 30), line(200, 0.2))
    assert [row.level for row in rows] == ["Normal", "", "", "Normal"]
    assert forwarded(heard) == [line(500), line(200, 30)]


def test_values_that_are_usual_by_now_are_so_for_lines_that_are_stored_with_verdicts_too(judging, heard, tmp_path):
    """Muting counts the lines that DRAIN never sees: of 452 a ninth is unusual, which is too few."""
    serve_a_model(tmp_path)
    service = judging(by_the_model(line()))
    send(*[line(200)] * 400)
    masked = mask(line())
    for _ in range(52):
        [found, *_others] = service.values.unusual(masked, line(500))
        assert found.value == "500"


@pytest.mark.parametrize("administrator", [True, False], ids=["for all lines", "of the namespace"])
def test_a_users_label_counts(judging, heard, alice, administrator):
    User.objects.filter(pk=alice.pk).update(is_staff=administrator, is_superuser=administrator)
    alice.refresh_from_db()
    own = {"cluster": "local", "namespace": alice.username, "deployment": "web"}
    service = judging(scored("connected to 10.0.0.1"), watched={**WATCHED, "local": {alice.username: ["web"]}})
    [before] = send("connected to 10.0.0.5", **own)
    assert before.level == "Normal"
    labelled = {"_id": before.line_id, "log": before.log, "namespace_name": alice.username, "cluster_id": "local"}
    feedback.record([labelled], "Anomaly", alice)
    until(lambda: service.owned.levels or service.cache.is_labelled("connected to <ip>"))
    known.ask_again()
    [mine], [other] = send("connected to 10.0.0.6", **own), send("connected to 10.0.0.7")
    assert (mine.level, mine.confidence) == ("Anomaly", None)
    assert other.level == ("Anomaly" if administrator else "Normal")


def test_without_an_answer_lines_are_forwarded_and_nothing_is_asked_for_a_while(heard):
    kv.put_parameters("u", WATCHED)
    for number in range(3):
        assert send(f"connected to 10.0.0.{number}")[0].level == ""
    assert len(heard.until_now(ASKED)) == 1
    assert len(forwarded(heard)) == 3


def test_a_replica_that_is_not_active_does_not_answer(heard, served):
    kv.put_parameters("u", WATCHED)
    active = drain()
    served(active), served(drain(active=False))
    heard.publish("model_inferenced_workload_logs", payloads.encode([scored("connected to 10.0.0.1")]))
    heard.wait("inferenced_logs")
    assert send("connected to 10.0.0.2")[0].level == "Normal"


@pytest.mark.parametrize("answer", [b"", b"{", b"5", b"[]", b"[7]", b"[[1]]", b'[[["Normal"]]]', b"[[]]"])
def test_a_wrong_answer_is_none(peer, answer):
    peer.listen(STORED)
    peer.listen(ASKED, answer=lambda _data: answer)
    assert send("connected to 10.0.0.2")[0].level == ""
    assert forwarded(peer) == ["connected to 10.0.0.2"]


@pytest.mark.parametrize(
    "data", [b"5", b"[5]", b'[["c1","shop"]]', b'[["c1","shop","web",["a"],[]]]', b"[[1,2,3,4,5]]"]
)
def test_a_wrong_question_is_dropped(judging, heard, data, caplog):
    judging(scored("connected to 10.0.0.1"))
    heard.publish(ASKED, data)
    assert send("connected to 10.0.0.2")[0].level == "Normal"
    assert f"{ASKED}: dropped" in caplog.text


def test_where_opnis_preprocessing_runs_nothing_is_asked(judging, heard, settings):
    settings.AIOPS_SUBJECT = subjects.RAW_LOGS
    judging(scored("connected to 10.0.0.1"))
    assert send("connected to 10.0.0.2")[0].level == ""
    assert heard.until_now(ASKED) == []


def test_lines_stored_with_a_verdict_are_counted_as_judged(judging):
    judging(scored("connected to 10.0.0.1"))
    counter = meters.LOG_LINES_JUDGED.labels("drain", "Normal")
    before = counter._value.get()
    send("connected to 10.0.0.2", "connected to 10.0.0.3")
    assert counter._value.get() == before + 2


def test_an_answer_is_kept_for_a_second_and_the_lines_that_had_it_are_told(judging, heard, monkeypatch):
    service = judging(scored("connected to 10.0.0.1"))
    clock = [known.time.monotonic()]
    monkeypatch.setattr(known, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    for _ in range(3):
        assert [row.level for row in send("connected to 10.0.0.2", "connected to 10.0.0.3")] == ["Normal", "Normal"]
    assert len(heard.until_now(ASKED)) == 1
    clock[0] += known.KEPT_S
    send("connected to 10.0.0.4")
    assert [json.loads(data)[0][4] for data in heard.until_now(ASKED)] == [[2], [5]]
    assert service.cache.texts["connected to <ip>"].count == 8


def test_a_text_without_a_verdict_is_asked_about_again_after_a_second(judging, heard, monkeypatch):
    judging()
    clock = [known.time.monotonic()]
    monkeypatch.setattr(known, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    assert send("connected to 10.0.0.2")[0].level == ""
    heard.publish("model_inferenced_workload_logs", payloads.encode([scored("connected to 10.0.0.1")]))
    heard.wait("inferenced_logs")
    assert send("connected to 10.0.0.2")[0].level == ""
    clock[0] += known.KEPT_S
    assert send("connected to 10.0.0.2")[0].level == "Normal"


def test_a_line_that_is_sent_again_is_neither_judged_nor_counted_again(judging, heard):
    judging()
    first = accept.line("connected to 10.0.0.2", id="same", **WEB)
    assert accept.store([first]) == 1
    heard.publish("model_inferenced_workload_logs", payloads.encode([scored("connected to 10.0.0.1")]))
    heard.wait("inferenced_logs")
    assert accept.store([first]) == 0
    assert LogLine.objects.get().level == ""

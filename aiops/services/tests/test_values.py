"""Lines whose text is normal but whose values are not, over real NATS: the verdict, its reason, and what overrides."""

from __future__ import annotations

import json
import random

import pytest

from aiops.conftest import payload
from aiops.wire import folders, payloads
from opnilog.masking import mask
from opnilog.store import NEEDED, Versions
from opnilog.usual_values import FILE, learn

from .test_wire_logs import drain, lists

pytestmark = pytest.mark.django_db(transaction=True)

TEXT = "GET <path> status = <num> took <duration>"


def line(status: int = 200, took: float = 0.1) -> str:
    return f"GET /cart status={status} took {took:.3f} s"


def serve_a_model(tmp_path) -> None:
    """Let a version serve that has learned values; its network is never loaded here."""
    chance = random.Random(1)
    known = [{"log": line(chance.choice([200, 304]), chance.uniform(0.01, 0.5))} for _ in range(400)]
    folder = tmp_path / "model"
    folder.mkdir()
    for name in NEEDED:
        (folder / name).write_text("{}")
    (folder / FILE).write_text(json.dumps(learn(known)))
    versions = Versions(folders.models())
    versions.serve(versions.add(folder))


@pytest.fixture
def judge(served, peer):
    """Return `judge(line, …)`, which sends lines with a known text and returns them judged."""
    for subject in ("inferenced_logs", "opnilog_workload_logs", "mlp.aiops.explanations"):
        peer.listen(subject)
    service = drain()
    served(service)
    sent = []

    def judged(*texts: str) -> list[payloads.Payload]:
        items = [payload(len(sent) + number, log=text, masked_log=mask(text)) for number, text in enumerate(texts)]
        sent.extend(items)
        peer.publish("preprocessed_logs_workload", payloads.encode(items))
        names = {item._id for item in items}
        while True:
            result = [item for item in lists(peer.heard["inferenced_logs"]) if item._id in names]
            if len(result) == len(items):
                return result
            peer.wait("inferenced_logs", len(peer.heard["inferenced_logs"]) + 1)

    judged.service = service
    judged.learn = lambda item: peer.publish("model_inferenced_workload_logs", payloads.encode([item]))
    return judged


def by_the_model(text: str, number: int = 900) -> payloads.Payload:
    fields = {"anomaly_level": "Normal", "opnilog_confidence": 1.0, "inference_model": "opnilog"}
    return payload(number, log=text, masked_log=mask(text), **fields)


def test_an_unusual_value_makes_a_line_of_a_normal_text_an_anomaly(judge, peer, tmp_path):
    serve_a_model(tmp_path)
    peer.publish("model_update", json.dumps({"bucket": "aiops-models"}).encode())
    judge.learn(by_the_model(line()))
    peer.wait("inferenced_logs")
    good, bad, slow, again = judge(line(304), line(500), line(200, 30), line(200, 0.2))
    assert [item.anomaly_level for item in (good, bad, slow, again)] == ["Normal", "Anomaly", "Anomaly", "Normal"]
    assert max(bad.opnilog_confidence, slow.opnilog_confidence) < 0.7
    assert good.opnilog_confidence == 1.0
    reasons = {
        row["_id"]: row["unexpected"] for data in peer.wait("mlp.aiops.explanations") for row in json.loads(data)
    }
    assert reasons[bad._id] == [[4, "500", "200, 304"]]
    assert reasons[slow._id][0][:2] == [6, "30.000 s"]
    assert set(reasons) == {bad._id, slow._id}


def test_the_first_line_of_a_text_is_looked_at_as_well(judge, peer, tmp_path):
    """The model knows nothing of values: its verdict on the text is kept, that on the line is another."""
    serve_a_model(tmp_path)
    peer.publish("model_update", json.dumps({"bucket": "aiops-models"}).encode())
    judge.learn(by_the_model(line(500)))
    [first] = lists(peer.wait("inferenced_logs"))
    assert (first.anomaly_level, first.inference_model) == ("Anomaly", "opnilog")
    [second] = judge(line(200))
    assert second.anomaly_level == "Normal"


def test_who_labels_the_text_normal_is_told_of_no_value_of_it(judge, peer, tmp_path):
    serve_a_model(tmp_path)
    peer.publish("model_update", json.dumps({"bucket": "aiops-models"}).encode())
    judge.learn(by_the_model(line()))
    peer.wait("inferenced_logs")
    assert judge(line(500))[0].anomaly_level == "Anomaly"
    label = payload(950, log=line(500), masked_log=mask(line()), anomaly_level="Normal")
    peer.publish("mlp.aiops.feedback", payloads.encode([label]))
    assert judge(line(500))[0].anomaly_level == "Normal"


def test_a_model_without_values_and_a_damaged_file_judge_texts_only(judge, peer, tmp_path, caplog):
    serve_a_model(tmp_path)
    (folders.models() / "v000001" / FILE).write_text("{")
    peer.publish("model_update", json.dumps({"bucket": "aiops-models"}).encode())
    judge.learn(by_the_model(line()))
    peer.wait("inferenced_logs")
    assert judge(line(500))[0].anomaly_level == "Normal"
    assert "the usual values of model version v000001 cannot be read" in caplog.text

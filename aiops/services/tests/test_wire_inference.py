"""Inference over real NATS: offers to the GPU controller, scoring on the CPU, and invalid messages."""

from __future__ import annotations

import logging

from aiops.conftest import payload
from aiops.services.inference import Inference
from aiops.wire import payloads
from kernel import bus
from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S

from .test_wire_logs import GOLDEN, lists


class Model:
    """A fake model: the texts it was given are normal, all others anomalies."""

    version = "v1"

    def __init__(self, *normal: str):
        self.normal, self.asked = set(normal), []
        self.scorer = self

    def poll(self) -> bool:
        return False

    def judge(self, items):
        self.asked.append([item.masked_log for item in items])
        for item in items:
            good = item.masked_log in self.normal
            item.opnilog_confidence, item.anomaly_level = (1.0, "Normal") if good else (0.25, "Anomaly")
            item.inference_model = "opnilog"
        return [("model_inferenced_workload_logs", payloads.encode(items))]


def inference(*normal: str, ask=bus.request) -> Inference:
    service = Inference(ask)
    service.model = Model(*normal)
    return service


def test_only_after_a_yes_the_gpu_controller_gets_the_batch(served, peer):
    service = inference("connected to <ip>", ask=lambda subject, data, _seconds: bus.request(subject, data, LIMIT_S))
    served(service)
    peer.listen("model_inferenced_workload_logs")
    words = [b"NO", b"YES", b"No", b"NO"]
    peer.listen("gpu_service_inference", answer=lambda data: words[len(peer.heard["gpu_service_inference"]) - 1])
    for number in range(4):
        peer.publish(
            "opnilog_workload_logs", payloads.encode([payload(number, masked_log=f"connected to <ip> {number}")])
        )
        peer.wait("gpu_service_inference", number + 1)
    until(lambda: len(service.model.asked) == 3)
    scored = [item._id for item in lists(peer.wait("model_inferenced_workload_logs", 3))]
    assert scored == ["id0", "id2", "id3"]
    assert payloads.decode(peer.heard["gpu_service_inference"][0])[0]._id == "id0"


def test_without_a_gpu_controller_lines_are_scored_locally(served, peer):
    """Bug 5: without a training controller the original's process died."""
    served(inference("connected to <ip>"))
    peer.listen("model_inferenced_workload_logs")
    peer.publish("opnilog_workload_logs", GOLDEN)
    (item,) = lists(peer.wait("model_inferenced_workload_logs"))
    assert (item.anomaly_level, item.opnilog_confidence, item.inference_model) == ("Normal", 1.0, "opnilog")
    peer.publish("opnilog_workload_logs", payloads.encode([payload(2, masked_log="never seen")]))
    assert lists(peer.wait("model_inferenced_workload_logs", 2))[1].anomaly_level == "Anomaly"


def test_after_a_time_out_lines_are_scored_locally_without_further_waits(served, peer):
    service = inference("connected to <ip>")
    served(service)
    peer.listen("gpu_service_inference")
    peer.listen("model_inferenced_workload_logs")
    for number in range(3):
        peer.publish("opnilog_workload_logs", payloads.encode([payload(number, masked_log="connected to <ip>")]))
        peer.wait("model_inferenced_workload_logs", number + 1)
    assert len(peer.until_now("gpu_service_inference")) == 1


def test_offers_have_at_most_512_items():
    offers = []

    def ask(subject, data, timeout):
        offers.append(len(payloads.decode(data)))
        return b"YES"

    service = inference(ask=ask)
    service.infer([payloads.encode([payload(number, masked_log="x") for number in range(1300)])])
    assert offers == [512, 512, 276]


def test_without_a_model_nothing_is_called_normal():
    """Issue 306 of the original: a line is not shown as normal before it is judged."""
    service = Inference(ask=lambda *_: b"NO")
    assert service.infer([GOLDEN]) == []


def test_the_last_model_serves_while_the_next_trains(monkeypatch):
    """Bug 6: on `training` the original deleted the model, and no line was judged until the next was ready."""
    looked = []
    service = inference("connected to <ip>", ask=lambda *_: b"NO")
    monkeypatch.setattr(service.model, "poll", lambda: looked.append(1), raising=False)
    service.model_update(b'{"status": "training"}')
    ((_, data),) = service.infer([GOLDEN])
    assert lists([data])[0].anomaly_level == "Normal"


def test_an_invalid_payload_is_logged_with_its_subject_and_dropped(served, peer, caplog):
    served(inference("connected to <ip>", ask=lambda *_: b"NO"))
    peer.listen("model_inferenced_workload_logs")
    with caplog.at_level(logging.WARNING):
        for wrong in (b"{}", b"hello", b"\xff\xfe" * 20, GOLDEN[:-3]):
            peer.publish("opnilog_workload_logs", wrong)
        peer.publish("opnilog_workload_logs", GOLDEN)
        assert lists(peer.wait("model_inferenced_workload_logs"))[0]._id == "id1"
    assert sum("opnilog_workload_logs" in record.getMessage() for record in caplog.records) == 4

"""The training and GPU controllers over real NATS: both generations of messages, every decision, lost messages."""

from __future__ import annotations

import json
import time
import uuid

import pytest

from aiops import lifecycle, logstore
from aiops.conftest import js, payload
from aiops.models import TrainingRun
from aiops.services import training_controller
from aiops.services.gpu_controller import GpuController
from aiops.services.training_controller import TrainingController
from aiops.training import decisions, requests
from aiops.wire import kv, lease, payloads
from kernel import keyvalue
from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S

pytestmark = pytest.mark.django_db(transaction=True)

UUID = "0f0e7a1c-6f6e-4c5e-9f0a-5a1d1c1b1a19"
WORKLOADS = {"c1": {"shop": ["cart", "web"]}}
SUBJECTS = (
    "train",
    "gpu_service_training_internal",
    "gpu_trainingjob_status",
    "model_update",
    "model_workload_parameters",
)


class Store:
    """A fake log store: every query matches the same number of lines."""

    lines = 7

    def __init__(self):
        self.asked = []

    def count(self, body):
        self.asked.append(body)
        return self.lines


@pytest.fixture(autouse=True)
def store(monkeypatch):
    made = Store()
    monkeypatch.setattr(logstore, "get", lambda: made)
    return made


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(training_controller, "STEP_EVERY_S", 0.1)
    monkeypatch.setattr(training_controller, "LOOK_EVERY_S", 0.1)


@pytest.fixture
def listening(peer):
    for subject in SUBJECTS:
        peer.listen(subject)
    return peer


@pytest.fixture
def gpu_side(listening):
    """A GPU controller played by the test: it is running, and does nothing else."""
    listening.listen("gpu_service_running", answer=lambda data: b"running" if data == b"check-up" else None)
    return listening


def g3(workloads=None, request=UUID) -> bytes:
    """Send a request as Opni's last gateway does: it has written its key before, and Go omits an empty map."""
    kv.put_parameters(request, workloads or {})
    return json.dumps({"uuid": request, **({"workloads": workloads} if workloads else {})}).encode()


def order(request=UUID, workloads=None) -> dict:
    body = {
        "max_size": 1000,
        "count": 7,
        "parameters": {"uuid": request, "workloads": workloads or WORKLOADS},
        "query": {"query": {"bool": {"filter": [{"range": {"time": {"gte": 1, "lte": 2}}}]}}},
    }
    return {"source": "drain", "model": "nulog-train", "payload": body}


def train_from(body: dict) -> bytes:
    return json.dumps(body["payload"]).encode()


# --- train_model -----------------------------------------------------------------------------------------------------
def test_a_new_watchlist_is_trained_and_each_message_is_as_opni_sends_it(served, gpu_side):
    served(TrainingController())
    before = int(time.time() * 1000)
    assert gpu_side.ask("train_model", g3(WORKLOADS)) == b"training job submitted"
    train = js(gpu_side.wait("train")[0])
    assert set(train) == {"max_size", "count", "parameters", "query"}
    assert train["parameters"] == {"uuid": UUID, "workloads": WORKLOADS}
    assert train["count"] == 7
    assert isinstance(train["max_size"], int)
    window = train["query"]["query"]["bool"]["filter"][0]["range"]["time"]
    assert isinstance(window["gte"], int)
    assert before <= window["lte"] <= before + 60_000
    assert window["gte"] < window["lte"]
    assert js(gpu_side.wait("gpu_service_training_internal")[0]) == {
        "source": "drain", "model": "nulog-train", "payload": train,
    }  # fmt: skip
    assert gpu_side.wait("gpu_trainingjob_status") == [b"JobStart"]
    update = js(gpu_side.wait("model_workload_parameters")[0])
    assert update == {"workloads": WORKLOADS, "status_type": "train"}
    assert kv.model_status()["status"] == "training"


def test_the_query_matches_the_workloads_and_excludes_errors(served, gpu_side, store):
    """Bugs 3, 4 and 16: phrases are phrases, the level's field is the keyword itself, names stay in their fields."""
    served(TrainingController())
    gpu_side.ask("train_model", g3(WORKLOADS))
    query = js(gpu_side.wait("train")[0])["query"]["query"]["bool"]
    assert store.asked[0] == {"query": {"bool": query}}
    assert query["minimum_should_match"] == 1
    assert [part["query_string"]["query"] for part in query["should"]] == [
        'cluster_id:"c1" AND namespace_name.keyword:"shop" AND deployment.keyword:"cart"',
        'cluster_id:"c1" AND namespace_name.keyword:"shop" AND deployment.keyword:"web"',
    ]
    level, words = query["must_not"]
    assert level == {"match": {"anomaly_level": "Anomaly"}}
    assert words["query_string"]["default_field"] == "log"
    assert " or " not in words["query_string"]["query"]
    assert {"error", '"connection refused"', '"out of disk"'} <= set(words["query_string"]["query"].split(" OR "))


def test_a_g1_request_without_envelope_gets_the_same_reply(served, gpu_side):
    served(TrainingController())
    assert gpu_side.ask("train_model", json.dumps(WORKLOADS).encode()) == b"training job submitted"
    assert js(gpu_side.wait("train")[0])["parameters"]["workloads"] == WORKLOADS
    assert kv.parameters().workloads == WORKLOADS
    assert js(gpu_side.ask("workload_parameters", b"model_training_parameters")) == WORKLOADS


def test_without_a_request_the_watchlist_is_empty_and_there_is_no_model(served, peer):
    served(TrainingController())
    assert peer.ask("workload_parameters", b"model_training_parameters") == b"{}"
    assert peer.ask("model_status", b"model_status") == b"not started"


def test_model_status_follows_the_training(served, gpu_side):
    served(TrainingController())
    gpu_side.ask("train_model", g3(WORKLOADS))
    gpu_side.wait("gpu_trainingjob_status")
    assert gpu_side.ask("model_status", b"model_status") == b"training"
    kv.put_last_trained(order())
    gpu_side.publish("gpu_trainingjob_status", b"JobEnd")
    until(lambda: gpu_side.ask("model_status", b"model_status") == b"completed")


@pytest.mark.parametrize("body", [b"{}", json.dumps({"uuid": UUID}).encode()])
def test_a_reset_in_both_forms(served, listening, body):
    kv.put_parameters(UUID, {})
    kv.put_last_trained(order())
    kv.put_model_status({"status": "no model trained", "statistics": None})
    served(TrainingController())
    assert listening.ask("train_model", body) == b"model reset"
    assert js(listening.wait("model_update")[0]) == {"status": "reset"}
    assert js(listening.wait("model_workload_parameters")[0]) == {"workloads": {}, "status_type": "reset"}
    until(lambda: keyvalue.get_json("model-training-parameters", "lastModelTrained")[0] == {})
    assert kv.model_status()["status"] == "no model trained"
    assert listening.until_now("train") == []


def test_removing_workloads_only_updates(served, gpu_side):
    """Issue 1344 of the original: removing a deployment left the status at `training` for ever."""
    kv.put_last_trained(order())
    served(TrainingController())
    assert gpu_side.ask("train_model", g3({"c1": {"shop": ["web"]}}, str(uuid.uuid4()))) == b"training job submitted"
    update = js(gpu_side.wait("model_workload_parameters")[0])
    assert update == {"workloads": {"c1": {"shop": ["web"]}}, "status_type": "update"}
    until(lambda: (kv.model_status() or {}).get("status") == "completed")
    assert kv.last_trained().workloads == WORKLOADS
    assert gpu_side.until_now("train") == []


def test_adding_a_workload_starts_a_training(served, gpu_side):
    kv.put_last_trained(order())
    served(TrainingController())
    more = {"c1": {"shop": ["cart", "new", "web"]}}
    gpu_side.ask("train_model", g3(more, str(uuid.uuid4())))
    assert js(gpu_side.wait("train")[0])["parameters"]["workloads"] == more


def test_the_same_watchlist_is_retrained_when_requested(served, gpu_side):
    kv.put_last_trained(order())
    served(TrainingController())
    requests.request_training(WORKLOADS)
    until(lambda: kv.decision().get("state") == "done")
    assert gpu_side.until_now("train") == []
    requests.request_training(WORKLOADS, retrain=True)
    assert js(gpu_side.wait("train")[0])["parameters"]["workloads"] == WORKLOADS


def test_a_request_made_while_no_controller_ran_is_handled_at_its_start(served, gpu_side):
    g3(WORKLOADS)
    served(TrainingController())
    assert js(gpu_side.wait("train")[0])["parameters"]["uuid"] == UUID


def test_a_completed_request_is_not_trained_again_at_the_start(served, gpu_side):
    g3(WORKLOADS)
    kv.put_last_trained(order())
    served(TrainingController())
    until(lambda: kv.decision().get("state") == "done")
    assert gpu_side.until_now("train") == []


def test_without_a_gpu_controller_the_training_fails_with_a_reason(served, listening, monkeypatch):
    monkeypatch.setattr(decisions, "GPU_TRIES", 3)
    monkeypatch.setattr(decisions, "GPU_PAUSE_S", 0.05)
    served(TrainingController())
    assert listening.ask("train_model", g3(WORKLOADS)) == b"training job submitted"
    until(lambda: (kv.model_status() or {}).get("status") == "training failed")
    assert "GPU controller" in requests.state()["reason"]
    assert listening.until_now("train") == []


def test_a_request_during_a_training_waits_for_its_end(served, gpu_side):
    """Bug 14: it was refused silently, but the watchlist was switched and the status stayed `training`."""
    served(TrainingController())
    gpu_side.ask("train_model", g3(WORKLOADS))
    gpu_side.wait("gpu_trainingjob_status")
    until(lambda: kv.decision().get("state") == "done")
    other, more = str(uuid.uuid4()), {"c2": {"shop": ["web"]}}
    assert gpu_side.ask("train_model", g3(more, other)) == b"training job submitted"
    assert requests.state()["queued"]
    assert len(gpu_side.until_now("model_workload_parameters")) == 1
    gpu_side.publish("gpu_trainingjob_status", b"JobEnd")
    assert js(gpu_side.wait("train", 2)[1])["parameters"] == {"uuid": other, "workloads": more}


def test_two_controllers_have_the_effect_of_one(served, gpu_side, rounds):
    controllers = TrainingController(), TrainingController()
    served(controllers[0]), served(controllers[1])
    assert gpu_side.ask("train_model", g3(WORKLOADS)) == b"training job submitted"
    gpu_side.wait("gpu_service_training_internal")
    until(lambda: kv.decision().get("state") == "done")
    rounds(*controllers)  # for the second one to do something, which it must not
    assert [len(gpu_side.until_now(subject)) for subject in SUBJECTS[:3]] == [1, 1, 1]


def test_a_restart_during_a_training_keeps_the_count_right(served, gpu_side):
    """Bug 1: the counter restarted at 0, JobEnd made it -1, and no model could be trained any more."""
    assert lease.acquire(UUID, "somebody", 60)
    g3(WORKLOADS)
    kv.put_last_trained(order())
    served(TrainingController())
    assert gpu_side.ask("model_status", b"") == b"training"
    gpu_side.publish("gpu_trainingjob_status", b"JobEnd")
    gpu_side.publish("gpu_training_job_status", b"JobEnd")
    until(lambda: gpu_side.ask("model_status", b"") == b"completed")
    gpu_side.ask("train_model", g3({"c9": {"n": ["d"]}}, str(uuid.uuid4())))
    gpu_side.wait("gpu_service_training_internal")


def test_a_trainer_that_goes_silent_loses_its_lease(served, gpu_side, rounds):
    """Bug 2 and issue 90: the page stayed in `training` for ever, and the GPU was never free again."""
    kv.put_model_status({"status": "training", "statistics": None})
    lease.acquire("", "another", 0.3)
    controller = TrainingController()
    served(controller)
    assert gpu_side.wait("gpu_trainingjob_status") == [b"JobEnd"]
    until(lambda: (kv.model_status() or {}).get("status") == "training failed")
    assert "lease" in requests.state()["reason"]
    rounds(controller)
    assert gpu_side.until_now("gpu_trainingjob_status") == [b"JobEnd"]


def test_a_manually_published_train_message_is_handled_once(served, gpu_side, handled):
    served(TrainingController())
    gpu_side.publish("train", train_from(order()))
    gpu_side.wait("gpu_service_training_internal")
    gpu_side.publish("train", train_from(order()))
    gpu_side.publish("train", train_from(order(str(uuid.uuid4()))))
    handled("train")
    assert gpu_side.ask("model_status", b"") == b"training"
    assert len(gpu_side.until_now("gpu_service_training_internal")) == 1


@pytest.mark.parametrize(
    ("subject", "wrong"),
    [
        ("train_model", b"no json"),
        ("train_model", b'{"c1": {"shop": "web"}}'),
        ("train_model", b"[]"),
        ("train", b"{}"),
        ("train", b'{"query": {"query": {"bool": {"filter": []}}}}'),
        ("gpu_trainingjob_status", b"JobMiddle"),
        ("gpu_service_inference", b"hello"),
    ],
)
def test_an_invalid_payload_is_logged_and_the_controller_survives(served, listening, caplog, subject, wrong):
    served(TrainingController())
    listening.publish(subject, wrong)
    until(lambda: any(f": {subject}: dropped" in record.getMessage() for record in caplog.records))
    assert listening.ask("model_status", b"") == b"not started"
    assert listening.until_now("gpu_service_training_internal") == []


# --- offers ----------------------------------------------------------------------------------------------------------
BATCH = payloads.encode([payload(1, masked_log="x"), payload(2, masked_log="y")])


def test_without_a_gpu_offers_are_declined(served, gpu_side):
    gpu_side.listen("gpu_service_inference_internal")
    served(TrainingController())
    assert gpu_side.ask("gpu_service_inference", BATCH) == b"NO"
    assert gpu_side.until_now("gpu_service_inference_internal") == []


def test_with_a_free_gpu_the_offer_is_forwarded_unchanged(served, gpu_side, monkeypatch):
    monkeypatch.setattr("aiops.wire.gpu_info.has_gpus", lambda: True)
    gpu_side.listen("gpu_service_inference_internal")
    controller = TrainingController()
    served(controller)
    until(lambda: controller.gpu_ready)
    assert gpu_side.ask("gpu_service_inference", BATCH) == b"YES"
    assert gpu_side.wait("gpu_service_inference_internal") == [BATCH]


def test_during_a_training_offers_are_declined_without_asking(served, gpu_side, monkeypatch, silence):
    monkeypatch.setattr("aiops.wire.gpu_info.has_gpus", lambda: True)
    controller = TrainingController(silence.ask)
    served(controller)
    until(lambda: controller.gpu_ready)
    gpu_side.publish("gpu_trainingjob_status", b"JobStart")
    until(lambda: controller.busy)
    silence.begin()
    assert [gpu_side.ask("gpu_service_inference", BATCH) for _ in range(5)] == [b"NO"] * 5
    silence.end()


def test_a_silent_gpu_controller_does_not_delay_the_answer(served, peer, monkeypatch, silence):
    """Bug 5: the original waited five seconds for it, but its caller waits for one."""
    monkeypatch.setattr("aiops.wire.gpu_info.has_gpus", lambda: True)
    silence.begin()
    served(TrainingController(silence.ask))
    assert silence.asked.wait(LIMIT_S)
    assert [peer.ask("gpu_service_inference", BATCH) for _ in range(5)] == [b"NO"] * 5
    silence.end()


# --- GPU controller --------------------------------------------------------------------------------------------------
def test_the_gpu_controller_always_answers_the_liveness_check(served, peer):
    """Bug 8: the original's event loop was busy with the training."""
    served(GpuController())
    assert peer.ask("gpu_service_running", b"check-up") == b"running"


def test_an_order_starts_one_training_however_often_it_is_delivered(served, listening, caplog):
    caplog.set_level("INFO")
    served(GpuController()), served(GpuController())
    for _ in range(2):
        listening.publish("gpu_service_training_internal", json.dumps(order()).encode())
    assert js(listening.wait("model_update")[0]) == {"status": "training"}
    until(lambda: "is known already" in caplog.text)
    run = TrainingRun.objects.get()
    assert (str(run.uuid), run.workloads, run.state) == (UUID, WORKLOADS, "training")


def test_g1_orders_without_uuid_are_handled_once(served, listening, handled):
    served(GpuController())
    body = order()
    del body["payload"]["parameters"], body["payload"]["count"]
    for _ in range(2):
        listening.publish("gpu_service_training_internal", json.dumps(body).encode())
    handled("gpu_service_training_internal")
    assert len(listening.wait("model_update")) == TrainingRun.objects.count() == 1


@pytest.mark.parametrize("wrong", [b"no json", b'{"model": "nulog-train"}', b'{"model": "other", "payload": {}}'])
def test_an_invalid_order_starts_no_training(served, listening, handled, wrong):
    served(GpuController())
    listening.publish("gpu_service_training_internal", wrong)
    listening.publish("gpu_service_inference_internal", wrong)
    handled("gpu_service_training_internal")
    assert listening.ask("gpu_service_running", b"check-up") == b"running"
    assert not TrainingRun.objects.exists()


def test_a_jobend_of_another_trainer_does_not_end_our_training(served, gpu_side, handled):
    lease.acquire(UUID, "ours", 60)
    lifecycle.create_run(order=order(), by="test")
    served(TrainingController())
    gpu_side.publish("gpu_trainingjob_status", b"JobEnd")
    handled("gpu_trainingjob_status")
    assert gpu_side.ask("model_status", b"") == b"training"

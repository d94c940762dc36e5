"""The training calls over REST: Opni's paths in Opni's JSON, ours by the contract; permissions and refusals."""

from __future__ import annotations

import base64
import json

import pytest

from accounts import lifecycle as accounts
from aiops import lifecycle, logstore
from aiops.models import TrainingRun
from aiops.services.training_controller import TrainingController
from aiops.training import requests
from aiops.wire import kv, lease
from kernel import keyvalue
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db(transaction=True)

ITEMS = [
    {"clusterId": "c1", "namespace": "shop", "deployment": "cart"},
    {"clusterId": "c1", "namespace": "shop", "deployment": "web"},
]
WORKLOADS = {"c1": {"shop": ["cart", "web"]}}
GOLDEN = (
    '{"status":"training","statistics":{"timeElapsed":"27","percentageCompleted":"7","remainingTime":"337",'
    '"currentEpoch":"1","modelAccuracy":0,"stage":"train"}}'
)
REPORT = {
    "status": "training",
    "statistics": {
        "stage": "train", "percentageCompleted": 7, "timeElapsed": 27, "remainingTime": 337, "currentEpoch": 1,
    },
}  # fmt: skip
STORED = {
    "status": "training",
    "statistics": {
        "timeElapsed": "27", "percentageCompleted": "7", "remainingTime": "337", "currentEpoch": "1", "stage": "train",
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(requests, "REPLY_WITHIN_S", 0.3)


@pytest.fixture
def controller(served, peer, monkeypatch):
    class Empty:
        def count(self, body):
            return 0

    monkeypatch.setattr(logstore, "get", Empty)
    peer.listen("train")
    served(TrainingController())
    return peer


class Opni:
    """A client of Opni's paths."""

    def __init__(self, client, token: str = ""):
        self.client, self.headers = client, {"HTTP_AUTHORIZATION": f"Bearer {token}"} if token else {}

    def __call__(self, method: str, path: str, body=None, **headers):
        data = {} if body is None else {"data": body if isinstance(body, str) else json.dumps(body)}
        if data:
            data["content_type"] = "application/json"
        return getattr(self.client, method)(f"/ModelTraining/{path}", **data, **{**self.headers, **headers})


@pytest.fixture
def opni(client, staff):
    return Opni(client, accounts.token_of(staff))


def key(name: str):
    return keyvalue.get_json("model-training-statistics" if name == "modelTrainingStatus" else PARAMETERS, name)[0]


PARAMETERS = "model-training-parameters"


# --- Opni's paths ----------------------------------------------------------------------------------------------------
def test_training_is_requested_as_opnis_page_does(opni, controller):
    answer = opni("post", "model/train", {"items": ITEMS})
    assert (answer.status_code, answer.json()) == (200, {"response": "training job submitted"})
    assert answer["Content-Type"] == "application/json"
    asked = key("modelTrainingParameters")
    assert set(asked) == {"uuid", "workloads"}
    assert asked["workloads"] == WORKLOADS
    assert key("modelTrainingStatus") == {"status": "training", "statistics": {"stage": "fetching data"}}
    assert opni("get", "model/training_parameters").json() == {"items": ITEMS}


def test_an_empty_list_resets(opni, controller):
    answer = opni("post", "model/train", {"items": []})
    assert answer.json() == {"response": "model reset"}
    assert "workloads" not in key("modelTrainingParameters")
    assert key("modelTrainingStatus") == {"status": "no model trained"}
    assert opni("get", "model/training_parameters").json() == {"items": []}


def test_without_a_training_controller_nothing_is_kept_of_the_request(opni):
    kv.put_parameters("before", WORKLOADS)
    kv.put_model_status({"status": "completed", "statistics": None})
    answer = opni("post", "model/train", {"items": ITEMS[:1]})
    assert (answer.status_code, answer.json()["code"]) == (503, 14)
    assert key("modelTrainingParameters") == {"uuid": "before", "workloads": WORKLOADS}
    assert key("modelTrainingStatus") == {"status": "completed"}


def test_the_golden_status(opni, client, as_staff):
    assert opni("put", "model/current_status", REPORT).json() == {}
    assert key("modelTrainingStatus") == STORED
    answer = opni("get", "model/status")
    assert answer.json() == json.loads(GOLDEN)
    for accept in ("*/*", "application/json", "application/octet-stream"):
        assert opni("get", "model/status", HTTP_ACCEPT=accept).json() == json.loads(GOLDEN)


def test_numbers_may_come_as_strings_as_protobuf_writes_them(opni):
    opni("put", "model/current_status", STORED)
    assert key("modelTrainingStatus") == STORED


def test_a_method_that_a_path_does_not_have_is_the_callers_mistake(opni, caplog):
    assert opni("delete", "model/status").status_code == 501  # as grpc-gateway answers
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_older_progress_reports_are_plain_statistics(opni):
    """Generations G1 and G2."""
    assert opni("put", "model/statistics", REPORT["statistics"]).json() == {}
    assert key("modelTrainingStatus") == STORED


def test_at_first_there_is_no_status(opni):
    assert opni("get", "model/status").json() == {"status": "", "statistics": None}
    assert opni("get", "model/training_parameters").json() == {"items": []}
    missing = opni("get", "workload_aggregation/c1")
    assert (missing.status_code, missing.json()["code"]) == (404, 5)


def test_unset_statistics_are_null(opni):
    """As in Opni's issue 1622: values have the types that the contract declares."""
    opni("put", "model/current_status", {"status": "completed", "statistics": {}})
    assert set(opni("get", "model/status").json()["statistics"].values()) == {"0", 0, ""}
    opni("put", "model/current_status", {"status": "completed"})
    assert opni("get", "model/status").json() == {"status": "completed", "statistics": None}


def test_log_counts_are_strings_and_an_unknown_cluster_is_an_empty_list(opni):
    kv.put_aggregation({"c1": {"shop": {"web": 12}}})
    stored = keyvalue.get_json("os-workload-aggregation", "aggregation")[0]
    web = {"deployment_name": "web", "doc_count": 12}
    assert stored == {"ByCluster": {"c1": {"ByNamespace": {"shop": {"ByDeployment": {"web": web}}}}}}
    row = {"clusterId": "c1", "namespace": "shop", "deployment": "web", "logCount": "12"}
    assert opni("get", "workload_aggregation/c1").json() == {"items": [row]}
    assert opni("get", "workload_aggregation/other").json() == {"items": []}


def test_gpus_are_reported_as_kubernetes_does(opni, monkeypatch):
    assert opni("get", "gpu_info").json() == {"items": []}
    gpu = {"name": "nvidia.com/gpu", "capacity": "2", "allocatable": "2"}
    monkeypatch.setattr("aiops.wire.gpu_info.info", lambda: [gpu])
    assert opni("get", "gpu_info").json() == {"items": [gpu]}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    few(
        [
            ("post", "model/train", "no json", 400, 3),
            ("post", "model/train", {"items": ITEMS, "extra": 1}, 400, 3),
            ("post", "model/train", {"items": [{**ITEMS[0], "extra": 1}]}, 400, 3),
            ("post", "model/train", {"items": [{"clusterId": "c1"}]}, 400, 3),
            ("put", "model/current_status", {"status": "training", "loss": 1}, 400, 3),
            ("put", "model/current_status", {"statistics": {"stage": 5}}, 400, 3),
            ("put", "model/current_status", {"statistics": {"timeElapsed": "x"}}, 400, 3),
            ("put", "model/statistics", '{"modelAccuracy": NaN}', 400, 3),
            ("put", "model/statistics", {"modelAccuracy": int("9" * 400)}, 400, 3),
            ("get", "model/train", None, 501, 12),
        ],
        4,
    ),
)
def test_refusals_have_the_form_of_grpc_gateway(opni, method, path, body, status, code):
    answer = opni(method, path, body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert set(answer.json()) == {"code", "message", "details"}


def test_a_token_is_required_and_only_operators_and_services_write(client, alice, staff):
    """Bug 17: anybody in the cluster could overwrite the status."""
    assert Opni(client)("put", "model/current_status", REPORT).status_code == 401
    assert Opni(client, "mlp_u1_" + "x" * 43)("get", "model/status").status_code == 401
    mine = Opni(client, accounts.token_of(alice))
    assert mine("put", "model/current_status", REPORT).status_code == 403
    assert mine("post", "model/train", {"items": []}).status_code == 403
    assert mine("get", "model/status").status_code == 200
    basic = base64.b64encode(f"x:{accounts.token_of(staff)}".encode()).decode()
    assert Opni(client)("get", "model/status", HTTP_AUTHORIZATION="Basic \xff").status_code == 401
    answer = Opni(client)("put", "model/current_status", REPORT, HTTP_AUTHORIZATION=f"Basic {basic}")
    assert answer.status_code == 200


def test_a_foreign_trainers_report_keeps_its_lease(opni):
    lease.acquire("", "another", 1)
    opni("put", "model/current_status", REPORT)
    assert lease.current()["until"] > lease.current()["since"] + 60


# --- ours ------------------------------------------------------------------------------------------------------------
def test_our_paths_follow_the_contract(as_staff, controller):
    answer = as_staff.call("post", "aiops/model/train", {"items": ITEMS})
    assert (answer.status_code, answer.json()) == (200, {"response": "training job submitted"})
    assert as_staff.call("get", "aiops/model/training_parameters").json() == ITEMS
    as_staff.call("put", "aiops/model/current_status", REPORT)
    status = as_staff.call("get", "aiops/model/status").json()
    assert status["status"] == "training"
    assert status["statistics"]["timeElapsed"] == 27
    kv.put_aggregation({"c1": {"shop": {"web": 12}}})
    rows = as_staff.call("get", "aiops/workload_aggregation/c1")
    assert rows.json() == [{**ITEMS[1], "logCount": 12}]
    assert rows["X-Total-Count"] == "1"
    assert as_staff.call("get", "aiops/gpu_info").json() == []


def test_a_list_is_paged(as_staff):
    kv.put_parameters("u", WORKLOADS)
    answer = as_staff.call("get", "aiops/model/training_parameters?limit=1&offset=1")
    assert answer.json() == ITEMS[1:]
    assert answer["X-Total-Count"] == "2"


def test_trainings_and_versions_are_listed(as_staff):
    order = {"source": "drain", "model": "nulog-train", "payload": {"parameters": {"workloads": WORKLOADS}}}
    run, _ = lifecycle.create_run(order=order, by="test")
    lifecycle.complete(run.pk, version="v1", manifest={"lines": 3}, by="test")
    lifecycle.deactivate()
    (row,) = as_staff.call("get", "aiops/trainings?state=completed").json()
    assert (row["uuid"], row["state"], row["percent"]) == (str(run.uuid), "completed", 100)
    (version,) = as_staff.call("get", "aiops/versions").json()
    assert (version["version"], version["serving"], version["manifest"]) == ("v1", False, {"lines": 3})
    assert "version" in as_staff.refused("put", "aiops/versions/v9:serve")
    assert TrainingRun.objects.count() == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "word"),
    few(
        [
            ("post", "aiops/model/train", {"items": ITEMS, "more": 1}, "more"),
            ("post", "aiops/model/train", {"items": [{**ITEMS[0], "more": 1}]}, "more"),
            ("post", "aiops/model/train", {"items": [{"clusterId": "c1"}]}, "namespace"),
            ("post", "aiops/model/train", {}, "items"),
            ("put", "aiops/model/current_status", {"status": 5}, "status"),
            ("put", "aiops/model/current_status", {"status": "x", "statistics": {"timeElapsed": "5"}}, "timeElapsed"),
            ("put", "aiops/model/statistics", {"loss": 1}, "loss"),
            ("get", "aiops/model/status?x=1", None, "x"),
        ],
        3,
    ),
)
def test_refusals_name_the_field(as_staff, method, path, body, word):
    assert word in as_staff.refused(method, path, body)


def test_users_can_read_the_status_only(as_alice, as_anonymous):
    assert as_alice.call("get", "aiops/model/status").status_code == 200
    assert as_alice.call("get", "aiops/gpu_info").status_code == 200
    for method, path, body in (
        ("post", "aiops/model/train", {"items": []}),
        ("put", "aiops/model/current_status", REPORT),
        ("get", "aiops/trainings", None),
    ):
        assert "token" in as_alice.refused(method, path, body)
        assert "not authenticated" in as_anonymous.refused(method, path, body)


def test_without_a_controller_it_is_a_503(as_staff):
    answer = as_staff.call("post", "aiops/model/train", {"items": ITEMS})
    assert answer.status_code == 503
    assert "training controller" in answer.json()["msg"]

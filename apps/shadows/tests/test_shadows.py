"""A shadow through its life, with processes: copies, comparison, promotion, end, and what callers notice: nothing."""

from __future__ import annotations

import pytest
import requests

import runners
from apps.models import Application, AppRun, Rollout, Shadow
from apps.tests.conftest import NAMES, adder, bearer_of, deploy, front, nothing_left, ready, until
from datasets.tests.live import servers, service
from kernel import storage
from kernel.models import history_of
from mlp.tests.patience import LIMIT_S
from models_app.models import Model
from resources.models import Tenant

__all__ = ["adder", "deploy", "front", "nothing_left", "ready", "servers", "service", "until"]
pytestmark = pytest.mark.django_db(transaction=True)

# Adds one as the other does, but not to 5; fails for 9, and ends its process for 13.
OTHER = """
import os

class Predictor:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1]}]

    def predict(self, inputs):
        (x,) = inputs
        data = [float(v) for v in x["data"]]
        if 13.0 in data:
            os._exit(3)
        if 9.0 in data:
            raise RuntimeError("nine")
        return [{"name": "y", "datatype": "FP32", "shape": x["shape"], "data": [v + 1 + (v == 5) for v in data]}]
"""


@pytest.fixture
def other(alice):
    folder = storage.model_dir("alice", "other")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "predictor.py").write_text(OTHER)
    return Model.objects.create(
        user=alice, tenant=alice.tenant, name="other", src="home/p.py", size=1, state="ready", reserved=False
    )


class Shadowed:
    """An application with a shadow that is up."""

    def __init__(self, app, as_alice, ask, until):
        self.app, self.as_alice, self.ask, self.until = app, as_alice, ask, until

    def call(self, method: str, path: str, body=None) -> dict:
        answer = self.as_alice.call(method, f"users/alice/apps/{self.app.name}{path}", body)
        assert answer.status_code == 200, answer.content
        return answer.json()

    def compared(self, **counts: int) -> dict:
        """Wait until so much was counted, and return what was."""

        def is_counted() -> bool:
            found = self.call("get", "/shadow")
            return all(found[name] >= number for name, number in counts.items())

        self.until(is_counted)
        return self.call("get", "/shadow")


@pytest.fixture
def shadowed(front, alice, deploy, ready, other, as_alice, until):
    """Return an application, whose requests are copied to the other model."""
    app = ready(deploy(next(NAMES)))

    def ask(x: int = 1) -> requests.Response:
        where = f"{front}/alice/{app.name}/predict"
        return requests.post(where, json={"x": [x]}, headers=bearer_of(alice), timeout=LIMIT_S)

    one = Shadowed(app, as_alice, ask, until)
    assert one.call("put", "/shadow", {"model_name": "other"})["rollout"]["phase"] == "starting"
    until(lambda: Rollout.objects.filter(app=app, phase="shadow").exists())
    until(lambda: ask().status_code == 200 and one.call("get", "/shadow")["compared"] > 0)  # the gateway knows it
    return one


def test_answers_are_compared_and_the_shadow_is_promoted(shadowed):
    one = shadowed
    shown = one.call("get", "")
    assert (shown["model_name"], shown["rollout"]["phase"], shown["rollout"]["percent"]) == ("adder", "shadow", None)
    assert {one.ask(x).json()["y"][0] for x in (1, 5, 9)} == {2.0, 6.0, 10.0}  # the application's own
    found = one.compared(different=1, status=1)
    assert (found["failed"], found["dropped"], found["unfit"], found["serves"]) == (0, 0, 0, "adder")
    assert found["equal"] >= 2
    assert found["base"]["p95_ms"] > 0 < found["shadow"]["p95_ms"]
    failed, pair = one.call("get", "/shadow/pairs")
    assert (failed["kind"], failed["base_status"], failed["shadow_status"]) == ("status", 200, 500)
    assert (pair["kind"], pair["where"], pair["input"]) == ("different", "$.y[0]", '{"x": [5]}')
    assert (pair["base_output"], pair["shadow_output"]) == ('{"y":[6.0]}', '{"y":[7.0]}')
    assert one.call("put", "/shadow:promote", {})["model_name"] == "other"
    one.until(lambda: not Rollout.objects.filter(app=one.app).exists())
    one.until(lambda: one.ask(5).json() == {"y": [7.0]})
    assert one.call("get", "/shadow")["outcome"] == "promoted"
    assert "now serves the model other" in " ".join(str(change.reason) for change in history_of(one.app))
    assert AppRun.objects.get(app=one.app, model_name="adder").outcome == "replaced"
    assert float(Tenant.objects.get(name="default").cpu_inuse) == pytest.approx(0.1)


@pytest.mark.long
def test_a_shadow_that_dies_costs_no_caller_anything(shadowed):
    one = shadowed
    assert one.ask(13).json() == {"y": [14.0]}
    one.until(lambda: Rollout.objects.get(app=one.app).phase == "failed")
    assert one.ask(1).json() == {"y": [2.0]}
    found = one.call("get", "/shadow")
    assert found["outcome"] == "failed"
    assert found["failed"] >= 1  # copies of earlier requests may be on their way beside it
    assert Application.objects.get(pk=one.app.pk).failures == 0
    one.call("delete", "/rollout")
    assert runners.get().names() == [Application.objects.get(pk=one.app.pk).run_name]


@pytest.mark.long
def test_a_shadow_is_ended_and_gives_back_what_it_used(shadowed):
    one = shadowed
    one.call("delete", "/shadow")
    one.until(lambda: not Rollout.objects.filter(app=one.app).exists())
    assert one.ask(5).json() == {"y": [6.0]}
    assert Shadow.objects.get().outcome == "ended"
    assert runners.get().names() == [Application.objects.get(pk=one.app.pk).run_name]
    assert float(Tenant.objects.get(name="default").cpu_inuse) == pytest.approx(0.1)
    assert one.call("delete", "/shadow")["rollout"] is None  # again


@pytest.mark.long
def test_no_caller_gets_the_copies_of_others(shadowed, front, alice):
    where = f"{front}/alice/{shadowed.app.name}/-copies"
    for token in ("", "x", "0" * 64):
        answer = requests.get(where, headers=bearer_of(alice) | {"X-App-Copies": token}, timeout=LIMIT_S)
        assert answer.status_code == 404

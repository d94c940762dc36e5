"""A move to another model that begins with a share of the requests: steps, rules, and the way back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import requests
from django.utils import timezone

import runners
from accounts.tenancy import members
from apps.models import Application, AppRun, Rollout
from conftest import Api
from kernel import storage
from kernel.models import history_of
from mlp.tests.page_world import visible_text
from mlp.tests.patience import LIMIT_S
from models_app.models import Model
from resources.models import Tenant

from .conftest import NAMES, bearer_of

pytestmark = pytest.mark.django_db(transaction=True)

# Adds a constant; the input 9 is an error, and 8 takes three times as long as the rule allows.
OTHER = """
import time

class Predictor:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    concurrency = 64

    def predict(self, inputs):
        (x,) = inputs
        if 8 in list(x["data"]):
            time.sleep(0.3)
        if 9 in list(x["data"]):
            raise ValueError("nine")
        return [{"name": "y", "datatype": "FP32", "shape": x["shape"], "data": [v + 2 for v in x["data"]]}]
"""
OLD, NEW = {"y": [2.0]}, {"y": [3.0]}


@pytest.fixture
def other(alice):
    """Another ready model, which adds two."""
    folder = storage.model_dir("alice", "other")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "predictor.py").write_text(OTHER)
    return Model.objects.create(
        user=alice, tenant=alice.tenant, name="other", src="home/p.py", size=1, state="ready", reserved=False
    )


class Moving:
    """An application with a plan that moves to the other model."""

    def __init__(self, app, as_alice, ask, until):
        self.app, self.as_alice, self.ask, self.until = app, as_alice, ask, until

    @property
    def rollout(self) -> Rollout:
        return Rollout.objects.get(app=self.app)

    def call(self, method: str, path: str, body=None) -> dict:
        answer = self.as_alice.call(method, f"users/alice/apps/{self.app.name}{path}", body)
        assert answer.status_code == 200, answer.content
        return answer.json()

    def begins(self) -> None:
        """Wait until the new run takes its share, as the gateway knows it."""
        self.until(lambda: self.rollout.phase == "canary")
        self.until(lambda: "X-App-Model" in self.ask().headers)

    def is_over(self) -> bool:
        return not Rollout.objects.filter(app=self.app).exists()


@pytest.fixture
def moving(front, alice, deploy, ready, other, as_alice, until):
    """Return a function that deploys an application with a plan and moves it to the other model."""

    def start(plan: dict) -> Moving:
        app = ready(deploy(next(NAMES)))

        def ask(x: int = 1, path: str = "predict", **headers: str) -> requests.Response:
            where, given = f"{front}/alice/{app.name}/{path}", bearer_of(alice) | headers
            if path != "predict":
                return requests.get(where, headers=given, timeout=LIMIT_S)
            return requests.post(where, json={"x": [x]}, headers=given, timeout=LIMIT_S)

        one = Moving(app, as_alice, ask, until)
        one.call("put", "/canary", plan)
        one.call("put", "/rollout", {"model_name": "other"})
        one.begins()
        return one

    return start


def test_a_share_of_the_requests_goes_to_the_new_model(moving):
    one = moving({"steps": [{"percent": 50}]})
    answers = [one.ask() for _number in range(40)]
    assert {answer.status_code for answer in answers} == {200}
    models = {answer.headers["X-App-Model"]: answer.json() for answer in answers}
    assert models == {"adder": OLD, "other": NEW}  # that all of 40 went one way has a chance of 2 in 10 to the 12
    assert {one.ask(path="v2/models/other").status_code for _number in range(20)} == {200}  # whichever model answers
    shown = one.call("get", "")
    assert (shown["model_name"], shown["rollout"]["phase"], shown["rollout"]["percent"]) == ("adder", "canary", 50)
    assert "50 % of the requests go to the model other" in str(history_of(one.app)[0].reason)
    one.call("put", "/rollout:share", {"percent": 100})
    one.until(one.is_over)
    shown = one.call("get", "")
    assert (shown["model_name"], shown["rollout"], shown["state"]) == ("other", None, "ready")
    one.until(lambda: "X-App-Model" not in one.ask().headers)
    assert one.ask().json() == NEW
    assert float(Tenant.objects.get(name="default").cpu_inuse) == pytest.approx(0.1)


@pytest.mark.long
def test_callers_with_the_same_header_get_the_same_model(moving):
    one = moving({"steps": [{"percent": 50}], "sticky": "X-User-Id"})
    users = [f"user-{number}" for number in range(24)]
    first = [one.ask(**{"X-User-Id": user}).headers["X-App-Model"] for user in users]
    again = [one.ask(**{"X-User-Id": user}).headers["X-App-Model"] for user in users]
    assert first == again
    assert set(first) == {"adder", "other"}
    one.call("put", "/rollout:share", {"percent": 0})
    one.until(lambda: {one.ask(**{"X-User-Id": user}).headers["X-App-Model"] for user in users} == {"adder"})


@pytest.mark.long  # the steps themselves, without processes: test_canary_rules.py
def test_the_steps_follow_each_other_and_the_last_is_everything(moving):
    one = moving({"steps": [{"percent": 10, "minutes": 5}, {"percent": 60, "minutes": 5}]})
    begun = one.rollout.step_since
    one.until(lambda: one.rollout.percent == 10)
    Rollout.objects.update(step_since=timezone.now() - timedelta(minutes=4))
    one.until(lambda: one.rollout.step_since != begun)  # a round has been
    assert one.rollout.percent == 10
    Rollout.objects.update(step_since=timezone.now() - timedelta(minutes=5))
    one.until(lambda: one.rollout.percent == 60)
    Rollout.objects.update(step_since=timezone.now() - timedelta(minutes=5))
    one.until(one.is_over)
    assert one.call("get", "")["model_name"] == "other"


@pytest.mark.long  # the rules themselves: test_canary_rules.py
@pytest.mark.parametrize(
    ("rule", "x", "reason"),
    [({"max_errors_percent": 10}, 9, "at most 10 % may"), ({"max_p95_ms": 100}, 8, "at most 100 ms may be")],
)
def test_a_new_model_that_breaks_a_rule_goes_back(moving, rule, x, reason):
    one = moving({"steps": [{"percent": 99}], **rule})
    with ThreadPoolExecutor(30) as pool:
        list(pool.map(one.ask, [x] * 30))
    one.until(lambda: one.rollout.phase == "failed")
    assert reason in str(one.rollout.reason)
    one.until(lambda: "X-App-Model" not in one.ask().headers)
    assert one.ask().json() == OLD
    assert AppRun.objects.filter(model_name="other").get().outcome == "failed"
    assert one.call("get", "")["model_name"] == "adder"


@pytest.mark.long  # both without processes: test_approvals.py, test_reported_metrics.py
def test_a_canary_gets_requests_once_approved_and_ends_by_what_callers_report(moving, front, alice, bob):
    Tenant.objects.update(approves_rollouts=True)
    members.put(tenant="default", user="bob", role="admin", by="test")
    one = moving({"steps": [{"percent": 99}], "metric": {"name": "clicks", "min": 0.5}})
    assert {one.ask().headers["X-App-Model"] for _number in range(20)} == {"adder"}
    as_admin = Api(bearer_of(bob)["Authorization"].split()[1])
    [shown] = as_admin.call("get", "tenants/default/rollouts").json()
    approval = {field: shown[field] for field in ("user", "name", "run", "percent")}
    assert as_admin.call("put", "tenants/default/rollouts:approve", approval).status_code == 200
    one.until(lambda: one.ask().headers["X-App-Model"] == "other")
    where, report = f"{front}/alice/{one.app.name}/-metric", {"model": "other", "value": 0}
    for _number in range(20):
        answer = requests.post(where, json=report, headers=bearer_of(alice), timeout=LIMIT_S)
        assert answer.json() == {"counted": True}
    one.until(lambda: one.rollout.phase == "failed")
    assert "the mean of clicks was 0 in 20 reports" in str(one.rollout.reason)
    one.until(lambda: "X-App-Model" not in one.ask().headers)
    assert one.ask().json() == OLD


def test_the_way_back_is_one_call(moving):
    one = moving({"steps": [{"percent": 99}]})
    one.call("delete", "/rollout")
    one.until(one.is_over)
    one.until(lambda: "X-App-Model" not in one.ask().headers)
    assert one.ask().json() == OLD
    assert runners.get().names() == [Application.objects.get(pk=one.app.pk).run_name]
    assert float(Tenant.objects.get(name="default").cpu_inuse) == pytest.approx(0.1)


@pytest.mark.long
def test_a_canary_outlives_the_platforms_stop(moving):
    one = moving({"steps": [{"percent": 30}]})
    stopped = one.rollout.run_name
    runners.get().stop(stopped, 5)
    one.until(lambda: one.rollout.run_name != stopped and one.rollout.phase == "canary")
    assert one.rollout.percent == 30
    assert AppRun.objects.get(name=stopped).outcome == "restarted"


@pytest.mark.long
def test_a_restart_has_no_canary(deploy, ready, as_alice, until):
    app = ready(deploy(next(NAMES)))
    path = f"users/alice/apps/{app.name}"
    assert as_alice.call("put", f"{path}/canary", {"steps": [{"percent": 10}]}).status_code == 200
    assert as_alice.call("put", f"{path}:restart", {}).status_code == 200
    until(lambda: not Rollout.objects.filter(app=app).exists())
    assert Application.objects.get(pk=app.pk).run_name != app.run_name
    assert (
        as_alice.refused("put", f"{path}/rollout:share", {"percent": 5}) == "state: the application has no canary now"
    )
    assert as_alice.call("delete", f"{path}/canary").json()["canary"] is None


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"steps": [{"percent": 100}]}, "percent"),
        ({"steps": [{"percent": 50}, {"percent": 50}]}, "steps.1.percent: must be more than the step before"),
        ({"steps": [{"percent": 5, "minutes": -1}]}, "minutes"),
        ({"steps": [{"percent": number} for number in range(1, 12)]}, "steps"),
        ({"steps": [{"percent": 5}], "sticky": "no header"}, "sticky: must be the name of a header"),
        ({"steps": [{"percent": 5}], "max_errors_percent": 101}, "max_errors_percent"),
        ({}, "steps"),
    ],
)
def test_a_wrong_plan_is_refused(deploy, as_alice, plan, message):
    app = deploy(next(NAMES))
    assert message in as_alice.refused("put", f"users/alice/apps/{app.name}/canary", plan)
    app.refresh_from_db()
    assert app.canary == {}


def test_the_page_sets_the_plan(deploy, alice, client):
    app = deploy(next(NAMES))
    client.force_login(alice)
    form = {
        "do": "canary",
        "percent0": "10",
        "minutes0": "30",
        "percent1": "50",
        "max_errors_percent": "5",
    }
    client.post(f"/apps/{app.name}/change", form)
    app.refresh_from_db()
    steps = [{"percent": 10, "minutes": 30}, {"percent": 50, "minutes": 0}]
    assert app.canary == {"steps": steps, "max_errors_percent": 5}
    answer = client.post(f"/apps/{app.name}/change", {**form, "percent1": "ten"}, follow=True)
    assert "must be a number" in answer.content.decode()
    answer = client.post(f"/apps/{app.name}/change", {"do": "share", "percent": ""}, follow=True)
    assert "percent: must be from 0 to 100" in visible_text(answer)
    client.post(f"/apps/{app.name}/change", {"do": "canary"})
    app.refresh_from_db()
    assert app.canary == {}

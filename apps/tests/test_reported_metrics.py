"""A metric that callers report decides whether a canary goes on: who reports, what counts, and what it ends."""

from __future__ import annotations

import pytest
import requests
from django.utils import timezone

from apps import canaries, keys, places, reported_metrics, request_limits, switching
from apps.models import Application, Rollout
from conftest import Api
from datasets.webdav.gate import internal_key
from kernel.broker import broker
from mlp.tests.page_world import visible_text, visitor
from mlp.tests.patience import LIMIT_S
from models_app.models import Model
from runners import RunStatus

from .conftest import NAMES, bearer_of

pytestmark = pytest.mark.django_db(transaction=True)

PLAN = {"steps": [{"percent": 10, "minutes": 0}], "metric": {"name": "clicks", "min": 0.5, "max": 2}}


@pytest.fixture
def rollout(adder, tasks):
    """A canary of alice's other model beside adder, whose plan has a metric."""
    places._places.clear()
    other = Model.objects.create(user=adder.user, tenant=adder.tenant, name="other", src="x", size=1, state="ready")
    app = Application.objects.create(
        user=adder.user, tenant=adder.tenant, model=adder, name=next(NAMES), port=31000, state="ready", reserved=False,
        run_name="app-1-1", address="127.0.0.1:1", canary=PLAN,
    )  # fmt: skip
    row = Rollout.objects.create(app=app, model=other, phase="canary", run_name="app-1-2", slot=1, percent=10,
                                 address="127.0.0.1:2", step_since=timezone.now(), by="alice")  # fmt: skip
    broker().client.delete(reported_metrics.key(row.pk, row.step_since))
    return row


@pytest.fixture
def report(rollout, client):
    """Return a function that sends a report as nginx passes it on, and returns the status and the answer."""

    def send(body, token: str = "", method: str = "post", **more: str) -> tuple[int, dict]:
        headers = {"X-App-User": "alice", "X-App-Name": rollout.app.name, "X-Internal-Key": internal_key(), **more}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        answer = getattr(client, method)("/internal/apps/metric", body, "application/json", headers=headers)
        return answer.status_code, answer.json()

    return send


@pytest.fixture
def key(rollout) -> str:
    return keys.create(app=rollout.app, name="shop", by="alice")[1]


def counted(rollout: Rollout) -> tuple[int, int]:
    reported = reported_metrics.read(rollout)
    return reported["new"].count, reported["old"].count


def test_a_report_reaches_the_canary_through_the_gateway(front, rollout, key, alice):
    url = f"{front}/alice/{rollout.app.name}/-metric"
    headers = {"Authorization": f"Bearer {key}", "X-App-Held": "1"}
    answer = requests.post(url, json={"model": "other", "value": 1.5}, headers=headers, timeout=LIMIT_S)
    assert (answer.status_code, answer.json()) == (200, {"counted": True})
    answer = requests.post(url, json={"model": "adder", "value": 2}, headers=bearer_of(alice), timeout=LIMIT_S)
    assert answer.json() == {"counted": True}
    assert counted(rollout) == (1, 1)
    assert requests.post(url, json={"model": "other", "value": 1}, timeout=LIMIT_S).status_code == 401
    large = requests.post(url, data=b"x" * (70 << 10), headers=headers, timeout=LIMIT_S)
    assert (large.status_code, large.json()["error"]) == (413, "body: too large, at most 64 KiB")


def test_who_has_no_key_reports_nothing(rollout, report, key, bob):
    value = {"model": "other", "value": 1}
    Application.objects.update(public=True)
    places._places.clear()
    assert report(value)[0] == report(value, bearer_of(bob)["Authorization"].split()[1])[0] == 401
    theirs = keys.create(app=Application.objects.create(
        user=bob, tenant=rollout.app.tenant, model=rollout.model, name="theirs", port=31001, state="ready",
        reserved=False), name="k", by="bob")[1]  # fmt: skip
    assert report(value, theirs)[0] == 401
    Application.objects.update(public=False)
    places._places.clear()
    assert report(value, theirs)[0] == 401
    assert counted(rollout) == (0, 0)
    assert report(value, key) == (200, {"counted": True})


@pytest.mark.parametrize(
    "body",
    ["", "[", "[]", "1", "{}", '{"model": "other"}', '{"value": 1}', '{"model": 1, "value": 1}',
     '{"model": "other", "value": "1"}', '{"model": "other", "value": true}', '{"model": "other", "value": NaN}',
     '{"model": "other", "value": 1e13}', '{"model": "other", "value": 1, "x": 1}', "[" * 100_000,
     '{"model": "other", "value": ' + "9" * 5_000 + "}"],
)  # fmt: skip
def test_what_is_no_report_is_refused_with_an_example(rollout, report, key, body):
    status, answer = report(body, key)
    assert (status, '{"model": "adder", "value": 1}' in answer["error"]) == (400, True)
    assert counted(rollout) == (0, 0)


def test_what_concerns_no_canary_does_not_count_and_is_no_error(rollout, report, key):
    assert report({"model": "third", "value": 1}, key) == (200, {"counted": False})
    Rollout.objects.update(phase="ending")
    places._places.clear()
    assert report({"model": "other", "value": 1}, key) == (200, {"counted": False})
    assert report("", key, method="get")[0] == 400


def test_reports_count_in_the_rate_of_the_key(rollout, report):
    row, text = keys.create(app=rollout.app, name="slow", by="alice", rate=2)
    broker().client.delete(request_limits.KEY.format(subject=f"key:{row.pk}"))
    held = {"X-App-Held": ""}
    assert [report({"model": "other", "value": 1}, text, **held)[0] for _number in range(3)] == [200, 200, 429]


@pytest.mark.parametrize(
    ("count", "value", "reason"),
    [
        (20, 0.25, "the mean of clicks was 0.25 in 20 reports, at least 0.5 is needed"),
        (20, 3, "the mean of clicks was 3 in 20 reports, at most 2 may be"),
        (20, 1, ""),
        (19, 0.25, ""),
    ],
)
def test_a_mean_beyond_its_bounds_ends_the_canary(rollout, count, value, reason):
    for _number in range(count):
        reported_metrics.add(reported_metrics.key(rollout.pk, rollout.step_since), "new", value)
        reported_metrics.add(reported_metrics.key(rollout.pk, rollout.step_since), "old", 0)
    switching.RUNS.running(rollout, RunStatus("running"), follow=False)
    row = Rollout.objects.get()
    assert (row.phase, row.reason) == (("ending", reason) if reason else ("canary", ""))


def test_each_step_counts_anew(rollout, alice):
    for _number in range(30):
        reported_metrics.add(reported_metrics.key(rollout.pk, rollout.step_since), "new", 0)
    canaries.set_percent(user=alice, name=rollout.app.name, by="alice", percent=20)
    assert counted(Rollout.objects.get()) == (0, 0)


def test_it_is_shown_and_set_on_the_page_and_over_rest(rollout, alice):
    name, api = rollout.app.name, Api(bearer_of(alice)["Authorization"].split()[1])
    reported_metrics.add(reported_metrics.key(rollout.pk, rollout.step_since), "new", 1)
    shown = api.call("get", f"users/alice/apps/{name}").json()
    assert shown["rollout"]["reported"] == {"new": {"count": 1, "mean": 1.0}, "old": {"count": 0, "mean": None}}
    assert shown["canary"]["metric"] == PLAN["metric"]
    browser = visitor(alice)
    assert "clicks: mean 1 of 1 report" in " ".join(visible_text(browser.get(f"/apps/{name}")).split())
    form = {"do": "canary", "percent0": "10", "metric": "clicks", "metric_min": "0.25", "metric_max": ""}
    browser.post(f"/apps/{name}/change", form)
    assert Application.objects.get(name=name).canary["metric"] == {"name": "clicks", "min": 0.25}
    wrong = browser.post(f"/apps/{name}/change", form | {"metric_min": "nan"}, follow=True)
    assert "metric_min: must be a number" in visible_text(wrong)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ({"name": "no name", "min": 1}, "metric.name: must be 1 to 50"),
        ({"name": "clicks"}, "metric: give the least mean"),
        ({"name": "clicks", "min": 2, "max": 1}, "metric.max: must be at least"),
        ({"name": "clicks", "min": "1"}, "min"),
        ({"min": 1}, "name"),
    ],
)
def test_a_wrong_rule_is_refused(rollout, as_alice, metric, message):
    plan = {"steps": [{"percent": 10}], "metric": metric}
    assert message in as_alice.refused("put", f"users/alice/apps/{rollout.app.name}/canary", plan)
    assert Application.objects.get().canary == PLAN

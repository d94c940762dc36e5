"""Trainings of tenants' own log models: who starts one, when its turn comes, and what it learns from."""

from __future__ import annotations

import json

import pytest

from aiops import lifecycle, logstore, reconcile
from aiops.intake import accept
from aiops.judging import own_models
from aiops.models import ModelVersion, TrainingRun
from aiops.services.registry import SERVICES, make
from aiops.tests.test_end_to_end import LEFT_OUT, TINY
from aiops.tests.test_own_models import TEXT, as_user, ok, teams, watch
from aiops.training import fetching, launching, own_training
from aiops.training.tests.test_training import WORDS, no_gpu, working
from aiops.wire import folders, kv, lease, subjects
from kernel import keyvalue
from mlp.tests.page_world import visible_text, visitor

__all__ = ["no_gpu", "teams"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_run_left")]


def test_a_training_is_queued_behind_the_platforms_model(teams, tasks, monkeypatch):
    started = []
    monkeypatch.setattr(launching.RUNS, "_start", lambda run: started.append(run.pk) or False)
    kv.put_parameters("u", {"local": {"anna": ["fit"], "bert": ["fit"]}})
    first = ok(as_user(teams.anna), "put", "aiops/tenant_models/red:train")
    assert (first["tenant"], first["queued"]) == ("red", True)
    ok(as_user(teams.bert), "put", "aiops/tenant_models/blue:train")
    assert "already" in as_user(teams.anna).refused("put", "aiops/tenant_models/red:train")
    assert kv.model_status() is None  # the status on the wire is the platform's model's
    tasks.run()
    assert started == []  # a request for the platform's model comes first


def test_a_turn_is_taken_once_nobody_trains(teams, tasks, monkeypatch, peer):
    monkeypatch.setattr(launching.RUNS, "_start", lambda run: False)
    ok(as_user(teams.anna), "post", "aiops/watched", {"deployment": "fit"}, 201)
    ok(as_user(teams.bert), "post", "aiops/watched", {"deployment": "fit"}, 201)
    peer.listen("gpu_trainingjob_status")
    assert lease.acquire("", "somebody else")
    red, blue = (own_training.request(user, name) for user, name in ((teams.anna, "red"), (teams.bert, "blue")))
    tasks.run()
    red.refresh_from_db()
    assert (red.queued, str(red.reason)) == (True, str(own_training.OTHERS))
    row = ok(as_user(teams.bert), "get", "aiops/tenant_models")[0]
    assert (row["tenant"], row["status"], row["place"]) == ("blue", "queued", 2)
    assert "queued, place 2" in visible_text(visitor(teams.bert).get("/aiops/watched"))
    lease.end()
    launching.launch(blue.pk)
    launching.launch(red.pk)
    launching.launch(blue.pk)
    red.refresh_from_db()
    blue.refresh_from_db()
    assert (red.queued, blue.queued) == (False, True)
    assert red.workloads == {"local": {"anna": ["fit"]}}
    assert peer.wait("gpu_trainingjob_status") == [b"JobStart"]
    lifecycle.fail(red.pk, "broken", "test")
    reconcile.run()
    assert peer.wait("gpu_trainingjob_status", 2)[1] == b"JobEnd"
    launching.launch(blue.pk)
    blue.refresh_from_db()
    assert not blue.queued
    assert ok(as_user(teams.anna), "get", "aiops/tenant_models/red")["status"] == "training failed"


def test_a_training_learns_only_from_the_teams_own_lines(teams, tmp_path):
    own = {"anomaly_level": "Anomaly", "masked_log": TEXT}
    rows = [
        accept.line(f"{TEXT} {name}", id=name, namespace=name, deployment="fit") for name in ("anna", "bert", "carl")
    ]
    rows += [
        accept.line(f"{TEXT} {judge}", id=judge, namespace="anna", deployment="fit") for judge in ("mine", "other")
    ]
    logstore.get().append(rows)
    judge = own_models.stored("opnilog", teams.red.pk)
    logstore.get().update_many(
        [("mine", own | {"inference_model": judge}), ("other", own | {"inference_model": "drain"})]
    )
    watch("anna", "bert", "carl")
    run = lifecycle.create_own(tenant=teams.red, by="test")
    assert own_training.take_turn(run)
    run.refresh_from_db()
    assert fetching.fetch(run) == 2
    texts = {json.loads(row)["log"] for row in (folders.training(run.uuid) / fetching.LINES).read_text().splitlines()}
    assert texts == {f"{TEXT} anna", f"{TEXT} other"}  # what another model took for an anomaly is none for this one
    order = run.payload["payload"] | {
        "query": {"query": {"bool": {"filter": [{"range": {"time": {"gte": 0, "lte": 9 << 40}}}]}}}
    }
    platform, _created = lifecycle.create_run(order={"payload": order | {"parameters": {"uuid": "x"}}}, by="test")
    assert fetching.fetch(platform) == 1  # carl's


def test_only_a_tenants_administrator_starts_its_trainings(teams, as_alice, as_staff):
    watch("anna")
    for client in (as_user(teams.bert), as_alice):
        assert client.refused("put", "aiops/tenant_models/red:train") == "log model: no such log model"
    assert [row["tenant"] for row in ok(as_staff, "get", "aiops/tenant_models")] == ["blue", "red"]
    assert [row["tenant"] for row in ok(as_user(teams.anna), "get", "aiops/tenant_models")] == ["red"]
    assert [row["may_change"] for row in ok(as_user(teams.carl), "get", "aiops/tenant_models")] == [False]
    assert "is watched" in as_user(teams.bert).refused("put", "aiops/tenant_models/blue:train")
    visitor(teams.anna).post("/aiops/train", {"tenant": "blue"})
    assert not TrainingRun.objects.exists()
    visitor(teams.anna).post("/aiops/train", {"tenant": "red"})
    assert TrainingRun.objects.get().tenant == teams.red


def test_an_invalid_watchlist_is_a_fault_of_the_platform(teams, staff):
    keyvalue.put_json(subjects.OWN_BUCKET, subjects.OWN_WATCHLIST, {"workloads": {"c": 7}})
    anna = as_user(teams.anna)
    for method, path in (("get", ""), ("get", "/red"), ("put", "/red:train")):
        response = anna.call(method, f"aiops/tenant_models{path}")
        assert (response.status_code, "the watchlist cannot be read" in response.json()["msg"]) == (503, True)
    page = visitor(teams.anna).get("/aiops/watched")
    assert (page.status_code, "the watchlist cannot be read" in visible_text(page)) == (503, True)
    assert "the watchlist cannot be read" in visible_text(visitor(staff).get("/aiops/models"))


@pytest.mark.long
def test_two_teams_train_on_contradicting_logs(teams, served, tasks, settings):
    settings.AIOPS_TRAINING_PARAMETERS = TINY
    work = working(tasks)
    watch("anna", "bert")
    logs = {
        "anna": [f"session {n} {WORDS[n % 6]} for user{n % 5} on 10.0.0.{n % 250}" for n in range(300)],
        "bert": [
            f"valve {n} of line {n % 7} turned {('left', 'right')[n % 2]} by {n % 90} degrees" for n in range(300)
        ],
    }
    for name, texts in logs.items():
        accept.store(
            [accept.line(text, id=f"{name}{n}", namespace=name, deployment="fit") for n, text in enumerate(texts)]
        )
    served(*[make(name) for name in SERVICES if name not in LEFT_OUT])
    for user, tenant in ((teams.anna, "red"), (teams.bert, "blue")):
        ok(as_user(user), "post", "aiops/watched", {"deployment": "fit"}, 201)
        own_training.request(user, tenant)
    work(lambda: TrainingRun.objects.filter(state="completed", announced=True).count() == 2)
    assert ModelVersion.objects.filter(serving=True).count() == 2
    for name in logs:
        accept.store(
            [accept.line(logs[other][7], id=f"{name}-{other}", namespace=name, deployment="fit") for other in logs]
        )
    wanted = {
        "query": {"bool": {"filter": [{"ids": {"values": [f"{one}-{other}" for one in logs for other in logs]}}]}}
    }

    def verdicts():
        rows = {row["_id"]: row.get("anomaly_level", "") for row in logstore.get().scan(wanted)}
        return rows if all(rows.values()) else None

    assert work(verdicts) == {
        "anna-anna": "Normal", "anna-bert": "Anomaly", "bert-bert": "Normal", "bert-anna": "Anomaly",
    }  # fmt: skip

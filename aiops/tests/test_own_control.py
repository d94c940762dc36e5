"""Who sees and who changes a tenant's own log model, by REST and on the page; what it learns; who is notified."""

from __future__ import annotations

import errno
import json

import pytest
from django.utils import translation

from accounts.models import Notice
from aiops import lifecycle, logstore, reconcile
from aiops.intake import accept
from aiops.judging import feedback
from aiops.models import State, TrainingRun
from aiops.services.housekeeping import Housekeeping
from aiops.tests.test_own_models import TEXT, as_user, ok, serve, teams, watch
from aiops.tests.test_own_trainings import no_gpu
from aiops.training import fetching, launching, own_training, training_data
from aiops.wire import folders
from kernel.messages import translate
from kernel.models import StateChange
from kernel.tests.nats_tools import until
from mlp.tests.page_world import visible_text, visitor

__all__ = ["no_gpu", "serve", "teams"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_run_left")]
RED = "aiops/tenant_models/red"


def test_the_tenants_administrator_trains_cancels_and_activates(teams, serve, tasks):
    old, new = serve(teams.red), serve(teams.red, TEXT)
    anna = as_user(teams.anna)
    watch("anna")
    assert ok(anna, "put", f"{RED}:train")["queued"]
    cancelled = ok(anna, "put", f"{RED}:cancel")
    assert (cancelled["state"], cancelled["reason"]) == ("error", "cancelled by anna")
    assert "no training of this model" in anna.refused("put", f"{RED}:cancel")
    assert ok(anna, "put", f"{RED}/versions/{old}:serve")["serving"]
    shown = {row["version"]: row["serving"] for row in ok(anna, "get", f"{RED}/versions")}
    assert shown == {old: True, new: False}
    rows = StateChange.objects.filter(by="anna", reason__contains="tenant red").order_by("pk")
    assert [(row.kind, row.transition, row.target) for row in rows] == [
        ("trainingrun", "create", "training"), ("modelversion", "serve", "active"),
    ]  # fmt: skip
    assert StateChange.objects.filter(by="anna", transition="fail", outcome="cancelled").count() == 1


def test_the_same_on_the_page(teams, serve, tasks):
    old, _new = serve(teams.red), serve(teams.red, TEXT)
    watch("anna")
    page = visitor(teams.anna)
    page.post("/aiops/train", {"tenant": "red", "do": "train"})
    run = TrainingRun.objects.get(state=State.TRAINING)
    lifecycle.leave_queue(run.pk, {}, {"local": {"anna": ["fit"]}})
    lifecycle.beat(run.pk, stage="train", percent=40, epoch=2, epochs=5, eta=75)
    text = visible_text(page.get("/aiops/watched"))
    for words in ("40 %", "epoch 2 of 5", "left", "judges the lines until the next version is ready", "Cancel"):
        assert words in text
    page.post("/aiops/train", {"tenant": "red", "do": "cancel"})
    run.refresh_from_db()
    assert run.state == State.ERROR
    page.post("/aiops/train", {"tenant": "red", "version": old})
    assert lifecycle.serving(teams.red.pk).version == old


def test_members_see_it_and_change_nothing_and_others_do_not_know_of_it(teams, serve):
    version = serve(teams.red)
    watch("anna")
    run = own_training.request(teams.anna, "red")
    lifecycle.leave_queue(run.pk, {}, {"local": {"anna": ["fit"], "carl": ["own"]}})
    carl, bert = as_user(teams.carl), as_user(teams.bert)
    row = ok(carl, "get", RED)
    assert (row["version"], row["may_change"]) == (version, False)
    assert row["training"]["workloads"] == {"local": {"carl": ["own"]}}  # of the other members no names
    assert [row["version"] for row in ok(carl, "get", f"{RED}/versions")] == [version]
    text = visible_text(visitor(teams.carl).get("/aiops/watched"))
    assert "Models of tenants" in text
    assert "Cancel" not in text
    changes = (f"{RED}:train", f"{RED}:cancel", f"{RED}/versions/{version}:serve")
    for path in changes:
        assert carl.refused("put", path) == "tenant: only the tenant's administrators can do this"
    for method, path in [("get", RED), ("get", f"{RED}/versions"), *(("put", path) for path in changes)]:
        assert bert.refused(method, path) == "log model: no such log model"
    for given in ({"do": "train"}, {"do": "cancel"}, {"version": version}):
        assert visitor(teams.bert).post("/aiops/train", {"tenant": "red", **given}).status_code == 404
    other = "aiops/tenant_models/blue/versions"
    assert bert.refused("put", f"{other}/{version}:serve") == "version: no such version"
    run.refresh_from_db()
    assert run.state == State.TRAINING


def test_lines_that_wait_are_told_as_such(teams, serve, as_staff):
    serve(None)
    for name in ("anna", "alice"):
        logstore.get().append([accept.line(TEXT, id=name, namespace=name, deployment="fit", at_ms=1)])
    reasons = lambda: {row["_id"]: row["no_verdict"] for row in ok(as_staff, "get", "aiops/logs?since=1")}  # noqa: E731
    assert reasons() == {"anna": "unwatched", "alice": "unwatched"}
    watch("anna", "alice")
    assert reasons() == {"anna": "untrained", "alice": "pending"}
    assert ok(as_staff, "get", RED)["unjudged"] == 1
    own_training.request(teams.anna, "red")
    assert reasons()["anna"] == "training"
    page = visitor(teams.anna)
    assert "waits for the model's training" in visible_text(page.get("/aiops/line?id=anna"))
    text = visible_text(page.get("/aiops/watched"))
    assert "its lines are not judged until this training has ended" in text
    assert "1 line waits" in text


def test_one_tenants_lines_that_nobody_judges_hold_up_no_others(teams, serve, monkeypatch):
    """As when the files of a model cannot be loaded: its lines come back with each round."""
    monkeypatch.setattr("aiops.services.housekeeping.SWEPT_AT_ONCE", 6)
    sent = []
    monkeypatch.setattr("aiops.services.housekeeping.accept.forward", lambda lines: sent.extend(lines))
    serve(teams.red)
    serve(teams.blue)
    watch("anna", "bert")
    rows = [accept.line(TEXT, id=f"a{n}", namespace="anna", deployment="fit", at_ms=100 + n) for n in range(20)]
    logstore.get().append([*rows, accept.line(TEXT, id="b", namespace="bert", deployment="fit", at_ms=1)])
    housekeeping = Housekeeping()
    assert housekeeping.sweep() == 4
    housekeeping.stop()
    assert {row["_id"] for row in sent} == {"a19", "a18", "a17", "b"}


def learned(run: TrainingRun) -> dict[str, str]:
    """Return the labels that a training learns, by text."""
    run.refresh_from_db()
    assert fetching.fetch(run)
    rows = [json.loads(row) for row in (folders.training(run.uuid) / fetching.LINES).read_text().splitlines()]
    return {row["log"]: row["label"] for row in rows if row.get("label")}


def test_labels_of_users_shape_their_tenants_model_only_and_each_of_its_trainings(teams, as_staff):
    texts = {"anna": "valve opened", "bert": "pump stopped", "carl": "door closed"}
    logstore.get().append(
        [accept.line(text, id=name, namespace=name, deployment="fit") for name, text in texts.items()]
        + [accept.line("lamp lit", id="plain", namespace="anna", deployment="fit")]
    )
    for user, level in ((teams.anna, "Anomaly"), (teams.bert, "Normal"), (teams.carl, "Anomaly")):
        ok(as_user(user), "post", "aiops/feedback", {"id": user.username, "level": level}, 201)
    watch(*texts)
    for _again in range(2):
        run = lifecycle.create_own(tenant=teams.red, by="test")
        assert own_training.take_turn(run)
        assert learned(run) == {"valve opened": "anomaly"}
        lifecycle.fail(run.pk, "x", "test")
        reconcile.run()
    assert feedback.labels() == {}
    assert list(feedback.examples()) == []


def test_the_last_label_on_a_text_counts(teams):
    line = accept.line(TEXT, namespace="anna", deployment="fit")
    robot = accept.line(TEXT, namespace="robot", deployment="fit")
    feedback.record([line], "Normal", teams.anna)
    feedback.record([robot], "Anomaly", teams.anna)
    assert set(feedback.labels({"anna", "robot"}).values()) == {"anomaly"}
    feedback.record([line], "Normal", teams.anna)
    assert [row["label"] for row in feedback.examples({"anna", "robot"})] == ["normal"]
    assert feedback.labels({"robot"}) != feedback.labels({"anna"})


def ended(run: TrainingRun, tasks) -> TrainingRun:
    def look() -> bool:
        tasks.run()
        reconcile.run()
        run.refresh_from_db()
        return run.has_ended and run.announced

    until(look)
    return run


def test_a_training_without_lines_says_so_and_tells_the_tenants_administrators_once(teams, tasks):
    watch("anna")
    run = ended(own_training.request(teams.anna, "red"), tasks)
    ended(run, tasks)
    notice = Notice.objects.get(user=teams.anna, kind="alert")
    assert "the training of the log model of red has ended" in notice.reason
    assert "have no log lines" in notice.reason
    assert notice.link == "/aiops/watched"
    with translation.override("zh-hans"):
        assert "日志模型训练已结束" in translate(notice.reason)
    assert not Notice.objects.filter(kind="alert").exclude(user=teams.anna).exists()
    assert "have no log lines" in visible_text(visitor(teams.anna).get("/aiops/watched"))


def test_who_cancels_is_not_told_but_other_administrators_are(teams, tasks, make_user, as_staff):
    ok(as_staff, "put", "tenants/red/members/carl", {"role": "admin"})
    watch("anna")
    own_training.request(teams.anna, "red")
    run = own_training.cancel(teams.carl, "red")
    ended(run, tasks)
    told = Notice.objects.filter(kind="alert").values_list("user__username", "reason")
    assert [(name, "cancelled by carl" in reason) for name, reason in told] == [("anna", True)]


def test_a_full_disk_ends_the_training_with_that_reason_and_leaves_nothing(teams, tasks, monkeypatch):
    watch("anna")
    logstore.get().append([accept.line(TEXT, id="a", namespace="anna", deployment="fit")])

    def full(*_arguments) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(training_data.os, "fsync", full)
    run = own_training.request(teams.anna, "red")
    tasks.run()
    run.refresh_from_db()
    assert (run.state, run.reason) == ("error", "could not be started: the disk is full")
    with translation.override("zh-hans"):
        assert "磁盘已满" in translate(run.reason)
    assert list(folders.training(run.uuid).iterdir()) == []


def test_what_the_trainer_says_of_a_full_disk_and_of_labels_is_translated():
    run = TrainingRun(uuid="6f1f3e9e-6d4e-4d1a-9b34-3f7f4d0c2a11")
    said = {
        "[Errno 28] No space left on device: 'out-1'": "the disk is full",
        "there is no line to learn from": "no line is left to learn from: all are labelled as anomalies",
        "unknown parameters: x": "unknown parameters: x",
    }
    for words, reason in said.items():
        assert launching._reason(run, [{"error": words}], "exit code 1") == reason

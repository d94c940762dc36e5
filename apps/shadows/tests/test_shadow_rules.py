"""The rules of shadows without processes: what is refused, what is copied and kept, approvals, aliases, ends."""

from __future__ import annotations

import json
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.utils import timezone

from accounts.tenancy import members
from apps import canaries, lifecycle, places, proof, rollouts, second_runs, switching
from apps.models import Application, Rollout, Shadow, ShadowPair
from apps.records.tests.conftest import Process, serving
from apps.shadows import copying, verbs
from apps.tests.conftest import NAMES, adder, churn
from kernel.locking import WrongState
from kernel.models import history_of
from mlp.tests.page_world import visible_text
from models_app.models import Model
from models_app.registry import registered
from resources.models import Tenant
from runners import RunStatus

__all__ = ["adder", "churn", "serving"]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def app(adder, tasks):
    """Alice's application, up, and her other model."""
    places._places.clear()
    Model.objects.create(user=adder.user, tenant=adder.tenant, name="other", src="x", size=1, state="ready")
    name = next(NAMES)
    row = lifecycle.create_app(user=adder.user, name=name, model_name="adder", cpu=0.1, by="test")
    lifecycle.note_order(row.pk)
    lifecycle.up(row.pk, f"app-{row.pk}-1", "127.0.0.1:1", by="runner")
    return Application.objects.get(pk=row.pk)


def begun(app: Application, **fields) -> Rollout:
    """Return the rollout of a shadow that has come up."""
    verbs.begin(user=app.user, name=app.name, by="alice", model_name="other", **fields)
    rollout = Rollout.objects.get()
    assert rollout.phase == "starting"
    canaries.begin(rollout.pk, rollout.run_name, "127.0.0.1:2", alias="alias")
    places._places.clear()
    return Rollout.objects.get()


def record_of(app: Application) -> str:
    places._places.clear()
    place = places.place_of("alice", app.name)
    assert place is not None
    return place.record


def test_copies_begin_and_end_with_the_shadow(app, as_alice):
    assert record_of(app) == ""
    rollout = begun(app, percent=25)
    assert json.loads(record_of(app)) == {"share": 0, "bytes": 0, "mask": [], "shadow": 0.25}
    place = places.place_of("alice", app.name)
    assert place.canary is None
    assert [target.run_name for target in place.targets] == [app.run_name]
    with pytest.raises(WrongState, match="promote or end it first"):
        rollouts.move(user=app.user, name=app.name, by="alice", model_name="other")
    assert f"a shadow of the application {app.name}" in as_alice.refused("delete", "users/alice/models/other")
    answer = as_alice.call("delete", f"users/alice/apps/{app.name}/shadow").json()
    assert answer["rollout"]["phase"] == "ending"
    assert record_of(app) == ""
    rollouts.end(rollout.pk, rollout.run_name)
    assert float(Tenant.objects.get(name="default").cpu_inuse) == pytest.approx(0.1)
    assert "25 % of the requests are copied to the model other" in str(history_of(app)[1].reason)
    assert Shadow.objects.get().outcome == "ended"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_name": "adder"}, "model_name: the application serves the model adder itself"),
        ({"model_name": "none"}, "model_name: you have no model named none"),
        ({"model_name": "other", "percent": 0}, "percent"),
        ({"model_name": "other", "percent": 101}, "percent"),
        ({"model_name": "other", "minutes": -1}, "minutes"),
        ({"model_name": "other", "tolerance": 2}, "tolerance"),
        ({"model_name": "other", "ignore": [""]}, "ignore"),
        ({"model_name": "other", "shadow": 1}, "shadow"),
        ({}, "model_name"),
    ],
)
def test_what_cannot_be_is_refused(app, as_alice, fields, message):
    assert message in as_alice.refused("put", f"users/alice/apps/{app.name}/shadow", fields)
    assert not Rollout.objects.exists()
    assert not Shadow.objects.exists()


def test_an_application_that_is_down_and_one_that_moves_have_no_shadow(app, as_alice, as_bob):
    path = f"users/alice/apps/{app.name}"
    assert "no such shadow" in as_alice.refused("get", f"{path}/shadow")
    assert "no such" in as_bob.refused("get", f"{path}/shadow")
    assert "no shadow that is up" in as_alice.refused("put", f"{path}/shadow:promote", {})
    assert as_alice.call("put", f"{path}/rollout", {"model_name": "other"}).status_code == 200
    assert "moving to the model other" in as_alice.refused("put", f"{path}/shadow", {"model_name": "other"})
    as_alice.call("put", f"{path}:stop", {})
    Rollout.objects.all().delete()
    assert "not running" in as_alice.refused("put", f"{path}/shadow", {"model_name": "other"})


def test_without_room_it_waits_and_never_restarts_the_application(app):
    Application.objects.update(may_restart=True)
    Tenant.objects.update(cpu=0.1)
    verbs.begin(user=app.user, name=app.name, by="alice", model_name="other")
    rollout = Rollout.objects.get()
    assert (rollout.phase, "no room" in str(rollout.reason)) == ("waiting", True)
    Tenant.objects.update(cpu=1)
    rollouts.proceed(rollout.pk, again=True)
    assert Rollout.objects.get().phase == "starting"
    lifecycle.stop_app(user=app.user, name=app.name, by="alice")
    assert Rollout.objects.get().phase == "ending"
    assert Shadow.objects.get().outcome == "ended"


def test_its_time_ends_it_and_a_stop_of_the_platform_does_not(app):
    rollout = begun(app, minutes=10)
    switching.RUNS.running(rollout, RunStatus("running"), follow=False)
    assert Rollout.objects.get().phase == "shadow"
    canaries.restart(rollout.pk, rollout.run_name)
    rollout = Rollout.objects.get()
    assert rollout.phase == "starting"
    canaries.begin(rollout.pk, rollout.run_name, "127.0.0.1:3", alias="alias")
    Shadow.objects.update(began=timezone.now() - timedelta(minutes=10))
    rollout = Rollout.objects.select_related("shadow").get()
    switching.RUNS.running(rollout, RunStatus("running"), follow=False)
    assert Rollout.objects.get().phase == "ending"
    assert Shadow.objects.get().outcome == "over"


def test_a_promotion_waits_for_an_approval(app, as_alice, bob):
    Tenant.objects.update(approves_rollouts=True)
    members.put(tenant="default", user="bob", role="admin", by="test")
    rollout = begun(app)
    answer = as_alice.call("put", f"users/alice/apps/{app.name}/shadow:promote", {}).json()
    assert (answer["rollout"]["phase"], answer["rollout"]["percent"], answer["rollout"]["proposed"]) == (
        "canary", 0, 100,
    )  # fmt: skip
    assert answer["model_name"] == "adder"
    canaries.approve(rollout.pk, rollout.run_name, 100, "bob")
    row = Application.objects.get(pk=app.pk)
    assert (row.model.name, row.run_name, Shadow.objects.get().outcome) == ("other", rollout.run_name, "promoted")


@pytest.fixture
def following(churn, adder, tasks):
    """Alice's application that follows churn@champion, up, and her other model."""
    Model.objects.create(user=adder.user, tenant=adder.tenant, name="other", src="x", size=1, state="ready")
    row = lifecycle.create_app(user=adder.user, name=next(NAMES), follows="models:/churn@champion", cpu=0.1, by="test")
    lifecycle.note_order(row.pk)
    lifecycle.up(row.pk, f"app-{row.pk}-1", "127.0.0.1:1", by="runner")
    return Application.objects.get(pk=row.pk)


def test_an_alias_that_moves_ends_the_shadow_and_then_the_application_moves(following, alice):
    rollout = begun(following)
    rollouts.follow(following.pk, "alias")
    assert Rollout.objects.get().phase == "shadow"  # the alias names what is served
    registered.set_alias(alice, "churn", "champion", 2, "test")
    rollouts.follow(following.pk, "alias")
    assert (Rollout.objects.get().phase, Shadow.objects.get().outcome) == ("ending", "ended")
    rollouts.follow(following.pk, "alias")
    rollouts.end(rollout.pk, rollout.run_name)
    rollouts.follow(following.pk, "alias")
    moving = Rollout.objects.get()
    assert (moving.phase, moving.model.name, moving.shadow) == ("starting", "churnvb", None)


def test_a_promoted_application_follows_no_alias_and_keeps_its_addresses(following, as_alice):
    rollout = begun(following)
    assert second_runs.as_application(rollout).served_name == following.name
    as_alice.call("put", f"users/alice/apps/{following.name}/shadow:promote", {})
    row = Application.objects.get(pk=following.pk)
    assert (row.model.name, row.alias, row.served_name) == ("other", None, following.name)
    rollouts.follow(row.pk, "alias")
    assert Rollout.objects.get().phase == "ending"


def test_a_shadow_that_has_failed_is_tried_again(app):
    rollout = begun(app)
    rollouts.fail(rollout.pk, rollout.run_name, "no weights")
    rollouts.end(rollout.pk, rollout.run_name)
    assert (Rollout.objects.get().phase, Shadow.objects.get().outcome) == ("failed", "failed")
    rollouts.again(app.pk, "alice")
    rollout = Rollout.objects.get()
    canaries.begin(rollout.pk, rollout.run_name, "127.0.0.1:2", alias="alias")
    assert (Rollout.objects.get().phase, Shadow.objects.get().outcome) == ("shadow", "")


def test_a_failed_shadow_does_not_keep_a_failing_application_up(app):
    begun(app)
    Application.objects.update(failures=100)
    lifecycle.end_run(app.pk, app.run_name, "broken", by="test")
    assert Application.objects.get(pk=app.pk).state == "error"


# --- copies ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def copied(app, serving, monkeypatch):
    """Return a function that lets the application answer a request, and what the platform fetches of it then; the
    shadow answers what a test says.
    """
    secret = proof.secret(app.run_name).encode()
    module = serving("recorder")
    process = Process(app, module)
    process.recorder.copies = serving("copies").Copies(secret)
    process.shadow, process.lines, process.sent, process.meanwhile = None, None, [], lambda: None

    def asked(run_name, _address, method, path, body=None, headers=None, *, limit_s):
        if path == copying.TAKE:
            assert process.recorder.copies.token == copying.token_of(run_name).encode()
            if process.lines is not None:
                lines, process.lines = process.lines, []
                return 200, b"\n".join(json.dumps(line).encode() for line in lines)
            return 200, process.recorder.copies.take()
        process.sent.append((path, headers))
        process.meanwhile()
        if process.shadow is None:
            raise ConnectionRefusedError
        entry = process.recorder.copies.answers.pop(0) if hasattr(process.recorder.copies, "answers") else None
        return entry or (200, json.dumps(process.shadow).encode())

    monkeypatch.setattr(copying, "_ask", asked)
    return process


def said(text: str, status: int = 200, ms: float = 5.0) -> dict:
    import base64

    data = base64.b64encode(text.encode()).decode()
    return {"status": status, "ms": ms, "type": "application/json", "whole": True, "data": data}


LINE = {"id": "r", "path": "/predict", "query": "", "headers": [["accept", "a"], ["accept", "b"]], "body": "",
        "answer": said("{}")}  # fmt: skip


def test_a_copy_is_queued_after_the_answer_was_sent(app, copied):
    begun(app)
    order = []
    put = copied.recorder.copies.put

    def noted(exchange, entry):
        order.append(("copied", len(copied.passed)))
        put(exchange, entry)

    copied.recorder.copies.put = noted
    copied({"x": [1]}, [b"part", b"last"], kind="text/plain")
    assert order == [("copied", 2)]  # both parts have been sent
    copied({"x": [1]}, b'{"error": "?"}', status=404)
    assert len(order) == 1  # no request to the model


def test_what_differs_is_counted_and_kept_with_masks(app, copied, as_alice):
    assert as_alice.call("put", f"users/alice/apps/{app.name}/recording", {"mask": ["email"]}).status_code == 200
    as_alice.call("delete", f"users/alice/apps/{app.name}/recording")
    rollout = begun(app)
    for _number in range(2):
        copied({"x": [1], "email": "a@b"}, b'{"y": [2.0], "email": "a@b"}')
    copied.shadow = said('{"y": [3.0], "email": "c@d"}')
    copying.look(rollout.shadow_id)
    copied({"x": [1]}, b'{"y": [2.0]}')
    copied.shadow = None
    copying.look(rollout.shadow_id)
    found = as_alice.call("get", f"users/alice/apps/{app.name}/shadow").json()
    assert {name: found[name] for name in ("compared", "equal", "different", "failed")} == {
        "compared": 3, "equal": 0, "different": 2, "failed": 1,
    }  # fmt: skip
    assert [hour["different"] for hour in found["hours"]] == [2]
    assert found["shadow"]["p50_ms"] == pytest.approx(5, rel=0.06)
    failed, pair, _pair = as_alice.call("get", f"users/alice/apps/{app.name}/shadow/pairs").json()
    assert (failed["kind"], failed["shadow_status"], failed["shadow_output"]) == ("failed", None, "")
    assert (pair["input"], pair["shadow_output"]) == ('{"x": [1], "email": "***"}', '{"y": [3.0], "email": "***"}')
    assert "a@b" not in json.dumps(found)


def test_the_queue_is_bounded_and_what_is_dropped_is_said(app, copied, serving, monkeypatch):
    rollout = begun(app)
    module = serving("copies")
    monkeypatch.setattr(module, "MAX_COPIES", 3)
    for _number in range(5):
        copied({"x": [1]}, b'{"y": [2.0]}')
    copied(b"x" * (300 << 10), b'{"y": [2.0]}')
    copied.shadow = said('{"y":[2.0]}')
    copying.look(rollout.shadow_id)
    row = Shadow.objects.get()
    assert (row.equal, row.dropped, row.unfit) == (3, 2, 1)


def test_only_the_platform_may_fetch_and_what_is_no_copy_is_counted(app, copied, monkeypatch):
    rollout = begun(app)
    lines = [b"[1]", b"7", b'{"id": 1}', b'{"dropped": "x"}', b"\xff", b"[" * 5000]
    monkeypatch.setattr(copying, "_ask", lambda *given, **more: (200, b"\n".join(lines)))
    batch = copying.Batch()
    assert copying._fetch(("run", "127.0.0.1:1"), batch) == []
    assert batch.counts["unfit"] == 6
    monkeypatch.setattr(copying, "_ask", lambda *given, **more: (404, b""))
    copying.look(rollout.shadow_id)
    assert "earlier release" in str(Shadow.objects.get().reason)
    headers = [(b"x-app-copies", b"0" * 64)]
    assert not copied.recorder.copies.is_asked({"headers": headers})
    assert not copied.recorder.copies.is_asked({"headers": [(b"x-app-copies", b"")]})


def test_pairs_have_nothing_that_records_would_not_have(app, copied, as_alice):
    as_alice.call("put", f"users/alice/apps/{app.name}/recording", {"mask": ["scores"]})
    rollout = begun(app)
    line = {**LINE, "path": "/predict", "query": "email=a@b", "answer": said('{"scores": {"a@b": 1}}')}
    copied.lines = [{"dropped": 0, "unfit": 0}, line]
    copied.shadow = said('{"scores": {"a@b": 2}}')
    copying.look(rollout.shadow_id)
    [pair] = as_alice.call("get", f"users/alice/apps/{app.name}/shadow/pairs").json()
    assert (pair["path"], pair["where"]) == ("/predict", "$.scores")
    assert "a@b" not in json.dumps(pair)
    assert copied.sent == [("/predict?email=a@b", {"accept": "a, b"})]


def test_numbers_that_are_none_fail_no_worker(app, copied):
    rollout = begun(app)
    huge = said("{}", ms=10**400)
    copied.lines = [{"dropped": float("inf")}, {**LINE, "answer": huge}, {**LINE, "answer": said("{}")}]
    copied.shadow = said("{}", status=float("inf"))
    copying.look(rollout.shadow_id)
    row = Shadow.objects.get()
    assert (row.unfit, row.failed) == (2, 1)


def test_a_slow_shadow_holds_no_worker(app, copied, monkeypatch):
    """What has no time in a round is dropped: shadows of others wait for this one."""
    rollout = begun(app)
    copied.lines = [LINE] * 20
    copied.shadow = said("{}")
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now, sleep=lambda _s: None)
    monkeypatch.setattr(copying, "time", clock)
    copied.meanwhile = lambda: setattr(clock, "now", clock.now + 30)
    copying.look(rollout.shadow_id)
    row = Shadow.objects.get()
    assert (row.compared + row.dropped, row.busy_until) == (20, None)
    assert 1 <= row.compared <= copying.SENDERS


def test_where_a_tenant_keeps_no_records_no_pairs_are_kept(app, copied):
    Tenant.objects.update(record_days=0)
    rollout = begun(app)
    copied({"x": [1]}, b'{"y": [2.0]}')
    copied.shadow = said('{"y": [3.0]}')
    copying.look(rollout.shadow_id)
    assert (Shadow.objects.get().different, ShadowPair.objects.count()) == (1, 0)


def test_old_pairs_are_deleted(app):
    rollout = begun(app)
    common = {"shadow_id": rollout.shadow_id, "user": app.user, "kind": "status", "base_status": 200, "base_ms": 1}
    rows = [ShadowPair.objects.create(request_id=str(days), **common) for days in (0, 5, 31)]
    for row in rows:
        ShadowPair.objects.filter(pk=row.pk).update(at=timezone.now() - timedelta(days=int(row.request_id), hours=1))
    copying.expire()
    assert ShadowPair.objects.count() == 2
    Tenant.objects.update(record_days=3)
    copying.expire()
    assert [row.request_id for row in ShadowPair.objects.all()] == ["0"]


# --- pages ----------------------------------------------------------------------------------------------------------
def test_the_page_starts_promotes_and_ends(app, alice, client):
    client.force_login(alice)
    form = {"do": "start", "model_name": "other", "percent": "50", "minutes": "0", "tolerance": "0.01", "ignore": "at"}
    answer = client.post(f"/apps/{app.name}/shadow/change", {**form, "percent": "500"})
    assert answer.status_code == 403
    assert client.post(f"/apps/{app.name}/shadow/change", form).status_code == 302
    shadow = Shadow.objects.get()
    assert (shadow.percent, shadow.tolerance, shadow.ignore, shadow.by) == (50, 0.01, ["at"], "alice")
    rollout = Rollout.objects.get()
    canaries.begin(rollout.pk, rollout.run_name, "127.0.0.1:2", alias="alias")
    assert "50 % of the requests are copied to the model other" in visible_text(client.get(f"/apps/{app.name}/shadow"))
    assert "Compared answers" in visible_text(client.get(f"/apps/{app.name}"))
    client.post(f"/apps/{app.name}/shadow/change", {"do": "promote"})
    assert Application.objects.get(pk=app.pk).model.name == "other"
    answer = client.post(f"/apps/{app.name}/shadow/change", {"do": "?"}, follow=True)
    assert "Choose what to do." in visible_text(answer)
    assert "The last shadow, the model other: promoted" in visible_text(client.get(f"/apps/{app.name}/shadow"))


def test_second_runs_have_other_files(app):
    rollout = begun(app)
    assert second_runs.as_application(rollout).slot != app.slot

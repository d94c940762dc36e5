"""Each lifecycle function locks its row before reading it: it waits for a lock that another transaction holds.

A verb without the lock would read a state that is about to change, decide by it, and only wait when it writes. So it
does not do that it waits: the statement that waits must be the one that locks and reads.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import ModuleType, SimpleNamespace

import pytest
from django.conf import settings
from django.db import models, transaction
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts.models import Token, User
from aiops import lifecycle as trainings
from aiops.models import ModelVersion, TrainingRun
from apps import lifecycle as apps
from apps import trash as app_trash
from apps.models import Application
from datasets import lifecycle as datasets
from datasets import trash as dataset_trash
from datasets.models import Dataset
from jobs import idle, preemption
from jobs import lifecycle as jobs
from jobs.models import Job
from kernel.errors import Refused
from kernel.tests.nats_tools import LIMIT_S, until
from kernel.tests.row_locks import blocked, in_thread, waiting_for_us
from models_app import lifecycle as models_app
from models_app import trash as model_trash
from models_app.models import Model
from resources import tcc
from resources.models import Tenant

from .stepping_verbs import of_idle, of_preemption
from .trash_verbs import of_trash

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks", "default_tenant")]

Case = tuple[str, models.Model, Callable[[], object]]
NUMBERS = itertools.count(1)

# Public functions of a life cycle that lock no row: they read, or are one statement, or are called with the lock held.
LOCKLESS = {
    accounts: {"check_password", "register", "token_of", "create_service_token"},
    datasets: {"create_dataset", "give_away"},
    jobs: {"request_id", "run_name_of", "begin", "advance", "give_back", "release_run", "create_job", "adopt"},
    models_app: {"request_id", "create_model", "measured", "add_model", "finished_job", "announce_versions"}
    | {"require_no_version", "require_unserved", "checked"},
    apps: {"request_id", "create_app", "run_name_of", "alias_named", "reserve", "note_stop"} | {"require_startable"},
    dataset_trash: {"require_free", "in_use"},
    model_trash: {"require_free"},
    app_trash: {"require_restorable"},
    trainings: {"request_id", "uuid_of", "find", "create_run", "order_again", "note_sent", "serving", "deactivate"}
    | {"give_back", "needs", "held", "admit"},
    idle: {"apply", "idle_for", "is_quiet", "written"},
    preemption: {"run", "choose", "step"},
    tcc: {"try_", "never_fits", "refusal", "allocated", "add_up", "lock_ledger"},
}


def user() -> User:
    letters = f"{next(NUMBERS):03}".translate(str.maketrans("0123456789", "abcdefghij"))
    return accounts.register(username=f"user{letters}", password="correct horse battery", by="test")


def dataset(**fields) -> Dataset:
    owner = user()
    made = Dataset.objects.create(user=owner, tenant=owner.tenant, name="digits", size=0, **fields)
    return hold(made, datasets, rom=0)


def job(**fields) -> Job:
    owner = user()
    values = {"state": "running", "run_name": "none", "reserved": True, "attempt": 1, **fields}
    made = Job.objects.create(user=owner, tenant=owner.tenant, name="fit", entry="x.py", cpu=0, ram=1, **values)
    return hold(made, jobs, ram=1)


def model(**fields) -> Model:
    owner = user()
    made = Model.objects.create(user=owner, tenant=owner.tenant, name="net", src="home/x", size=1, **fields)
    return hold(made, models_app, rom=1)


def app(**fields) -> Application:
    served = model(state="ready")
    made = Application.objects.create(
        user=served.user, tenant=served.tenant, model=served, name="calc", port=31000 + next(NUMBERS), cpu=0, ram=1,
        **{"run_name": "run", **fields},
    )  # fmt: skip
    return hold(made, apps, ram=1)


def training(**fields) -> TrainingRun:
    made = TrainingRun.objects.create(**{"run_name": "run", **fields})
    if made.reserved:
        request = {"id": trainings.request_id(made.uuid), "applier": trainings.APPLIER, "owner": trainings.OWNER}
        tcc.try_(request_type="request", **request, ram=1)
    return made


def hold(row, lifecycle: ModuleType, **amounts):
    """Reserve the resources that the row's life cycle would have, so that they can be released."""
    request = {"id": lifecycle.request_id(row.pk), "applier": lifecycle.APPLIER, "owner": row.user.username}
    tcc.try_(request_type="request", **request, **amounts)
    return row


def of_accounts() -> Iterator[Case]:
    by = {"by": "test"}
    for verb, call in {
        "hold_active": accounts.hold_active,
        "activate": lambda one: accounts.activate(username=one.username, **by),
        "deregister": lambda one: accounts.deregister(username=one.username, **by),
        "set_staff": lambda one: accounts.set_staff(username=one.username, staff=True, **by),
        "change_password": lambda one: accounts.change_password(user=one, password="battery horse staple", **by),
        "rotate_token": lambda one: accounts.rotate_token(user=one, **by),
    }.items():
        one = user()
        if verb == "activate":
            accounts.deregister(username=one.username, by="test")
        yield verb, one, lambda call=call, one=one: call(one)
    token = Token.objects.create(user=user(), kind=Token.Kind.SERVICE, name="x")
    yield "revoke_service_token", token, lambda: accounts.revoke_service_token(pk=token.pk, by="test")


def of_datasets() -> Iterator[Case]:
    def report(one: Dataset, state: str, progress: int):
        return datasets.heartbeat(user=one.user, name=one.name, state=state, progress=progress, by="test")

    for verb, state, call in [
        ("heartbeat", "creating", lambda one: report(one, "creating", 5)),
        ("heartbeat: error", "creating", lambda one: report(one, "error", 5)),
        ("heartbeat: ready", "creating", lambda one: report(one, "ready", 100)),
        ("fail", "creating", lambda one: datasets.fail(one.pk, "x", by="test")),
        ("fail: once ready", "ready", lambda one: datasets.fail(one.pk, "x", by="test")),
        ("fail_silent", "creating", lambda one: datasets.fail_silent(one.pk, timezone.now(), "x")),
        ("fail_silent: once ready", "ready", lambda one: datasets.fail_silent(one.pk, timezone.now(), "x")),
        ("fail_all_of", "creating", lambda one: datasets.fail_all_of(one.user, by="test")),
        ("end_upload", "creating", lambda one: datasets.end_upload(user=one.user, name=one.name, by="test")),
        ("delete_dataset", "ready", lambda one: datasets.delete_dataset(user=one.user, name=one.name, by="test")),
        ("erase", "deleting", lambda one: datasets.erase(one.pk)),
        ("recount", "creating", lambda one: datasets.recount(one.pk)),
        ("set_notes", "ready", lambda one: datasets.set_notes(user=one.user, name=one.name, notes="x")),
    ]:
        one = dataset(state=state)
        yield verb, one, lambda call=call, one=one: call(one)


def of_jobs() -> Iterator[Case]:
    def report(one: Job, state: str = "running"):
        return jobs.heartbeat(user=one.user, name="fit", state=state, progress=5, by="test")

    ordered = {"state": "creating"}
    queued = {"state": "creating", "run_name": "", "attempt": 0}
    for verb, fields, call in [
        ("heartbeat", {}, report),
        ("heartbeat: first", ordered, report),
        ("heartbeat: finished", {}, lambda one: report(one, "finished")),
        ("heartbeat: error", {}, lambda one: report(one, "error")),
        ("note_bar", {}, lambda one: jobs.note_bar(one.pk, "none", 40, 9)),
        ("note_bar: of another run", {}, lambda one: jobs.note_bar(one.pk, "another", 40, 9)),
        ("note_bar: of an ended job", {"state": "error"}, lambda one: jobs.note_bar(one.pk, "none", 40, 9)),
        ("order_run", {}, lambda one: jobs.order_run(one.pk)),
        ("order_run: first", queued, lambda one: jobs.order_run(one.pk)),
        ("note_start", {}, lambda one: jobs.note_start(one.pk, "none")),
        ("note_start: first", ordered, lambda one: jobs.note_start(one.pk, "none")),
        ("note_start: of an ended job", {"state": "error"}, lambda one: jobs.note_start(one.pk, "none")),
        ("note_start: of another run", {}, lambda one: jobs.note_start(one.pk, "another")),
        ("note_run", ordered, lambda one: jobs.note_run(one.pk, "none", None)),
        ("note_run: waiting", ordered, lambda one: jobs.note_run(one.pk, "none", "x")),
        ("note_run: of another run", ordered, lambda one: jobs.note_run(one.pk, "another", None)),
        ("finish", {}, lambda one: jobs.finish(one.pk, "none", by="test")),
        ("finish: before any report", ordered, lambda one: jobs.finish(one.pk, "none", by="test")),
        ("finish: of another run", {}, lambda one: jobs.finish(one.pk, "another", by="test")),
        ("finish: of an ended job", {"state": "error"}, lambda one: jobs.finish(one.pk, "none", by="test")),
        ("end_attempt", {}, lambda one: jobs.end_attempt(one.pk, "none", "x", by="test")),
        ("end_attempt: retry", {"retries": 1}, lambda one: jobs.end_attempt(one.pk, "none", "x", by="test")),
        ("end_attempt: retry, before any report", {"retries": 1, **ordered},
         lambda one: jobs.end_attempt(one.pk, "none", "x", by="test")),
        ("end_attempt: of another run", {}, lambda one: jobs.end_attempt(one.pk, "another", "x", by="test")),
        ("end_attempt: of an ended job", {"state": "error"},
         lambda one: jobs.end_attempt(one.pk, "none", "x", by="test")),
        ("fail", {}, lambda one: jobs.fail(one.pk, "x", by="test")),
        ("stop_overdue", {"timeout": 0, "started": timezone.now() - timedelta(hours=1)},
         lambda one: jobs.stop_overdue(one.pk)),
        ("fail: queued", queued, lambda one: jobs.fail(one.pk, "x", by="test")),
        ("fail: of an ended job", {"state": "finished"}, lambda one: jobs.fail(one.pk, "x", by="test")),
        ("cancel", {}, lambda one: jobs.cancel(user=one.user, name="fit", by="test")),
        ("cancel_all_of", {}, lambda one: jobs.cancel_all_of(one.user, by="test")),
        ("delete_job", {"state": "finished"}, lambda one: jobs.delete_job(user=one.user, name="fit", by="test")),
        ("reserve_next", {"state": "creating", "reserved": False}, lambda one: jobs.reserve_next()),
    ]:  # fmt: skip
        one = job(**fields)
        yield verb, one, lambda call=call, one=one: call(one)


def of_models() -> Iterator[Case]:
    for verb, state, call in [
        ("measure_again", "creating", lambda one: models_app.measure_again(one.pk, 2)),
        ("measure_again: once failed", "error", lambda one: models_app.measure_again(one.pk, 2)),
        ("note_copy", "creating", lambda one: models_app.note_copy(one.pk, {"x": {"size": 1}})),
        ("note_copy: of another size", "creating", lambda one: models_app.note_copy(one.pk, {"x": {"size": 2}})),
        ("note_copy: once failed", "error", lambda one: models_app.note_copy(one.pk, {"x": {"size": 1}})),
        ("note_order", "creating", lambda one: models_app.note_order(one.pk)),
        ("note_packages", "ready", lambda one: models_app.note_packages(one.pk, "0" * 32)),
        ("note_order: once failed", "error", lambda one: models_app.note_order(one.pk)),
        ("note_wait", "creating", lambda one: models_app.note_wait(one, "x")),
        ("complete", "creating", lambda one: models_app.complete(one.pk, {"format": "onnx", "inputs": []}, by="test")),
        ("complete: once failed", "error", lambda one: models_app.complete(one.pk, {"format": "onnx"}, by="test")),
        ("fail", "creating", lambda one: models_app.fail(one.pk, "x", by="test")),
        ("fail: once ready", "ready", lambda one: models_app.fail(one.pk, "x", by="test")),
        ("fail_all_of", "creating", lambda one: models_app.fail_all_of(one.user, by="test")),
        ("delete_model", "ready", lambda one: models_app.delete_model(user=one.user, name="net", by="test")),
        ("delete_with_version", "ready", lambda one: models_app.delete_with_version(one.pk, by="test")),
        ("set_notes", "ready", lambda one: models_app.set_notes(user=one.user, name="net", notes="x")),
        ("forget", "deleting", lambda one: models_app.forget(one.pk)),
        ("forget: once ready", "ready", lambda one: models_app.forget(one.pk)),
    ]:
        one = model(state=state)
        yield verb, one, lambda call=call, one=one: call(one)


def of_apps() -> Iterator[Case]:
    served = {"state": "ready", "address": "127.0.0.1:1", "ready_since": timezone.now()}
    waiting, later = {"run_name": ""}, {"run_name": "", "not_before": timezone.now() + timedelta(minutes=1)}
    ended = {"state": "error", "stopped": True, "reserved": False, "run_name": "", "reason": "stopped"}
    last = {**served, "failures": settings.APP_MAX_FAILURES - 1}
    for verb, fields, call in [
        ("note_order", {}, lambda one: apps.note_order(one.pk)),
        ("note_order: first", waiting, lambda one: apps.note_order(one.pk)),
        ("note_order: not yet", later, lambda one: apps.note_order(one.pk)),
        ("note_order: once ready", served, lambda one: apps.note_order(one.pk)),
        ("note_wait", {}, lambda one: apps.note_wait(one, "x")),
        ("note_wait: once ready", served, lambda one: apps.note_wait(one, "x")),
        ("up", {}, lambda one: apps.up(one.pk, "run", "127.0.0.1:1", by="test")),
        ("up: another run", {}, lambda one: apps.up(one.pk, "another", "127.0.0.1:1", by="test")),
        ("up: once failed", {"state": "error"}, lambda one: apps.up(one.pk, "run", "127.0.0.1:1", by="test")),
        ("end_run", served, lambda one: apps.end_run(one.pk, "run", "x", by="test")),
        ("end_run: while starting", {}, lambda one: apps.end_run(one.pk, "run", "x", by="test")),
        ("end_run: the last", last, lambda one: apps.end_run(one.pk, "run", "x", by="test")),
        ("end_run: another run", served, lambda one: apps.end_run(one.pk, "another", "x", by="test")),
        ("end_run: once failed", {"state": "error"}, lambda one: apps.end_run(one.pk, "run", "x", by="test")),
        ("end_requested", served, lambda one: apps.end_requested(one.pk, "run", "x", by="test")),
        ("end_requested: another run", served, lambda one: apps.end_requested(one.pk, "another", "x", by="test")),
        ("end_requested: while starting", {}, lambda one: apps.end_requested(one.pk, "run", "x", by="test")),
        ("stop_app", served, lambda one: apps.stop_app(user=one.user, name="calc", by="test")),
        ("stop_app: starting", {}, lambda one: apps.stop_app(user=one.user, name="calc", by="test")),
        ("stop_app: waiting", waiting, lambda one: apps.stop_app(user=one.user, name="calc", by="test")),
        ("start_app", ended, lambda one: apps.start_app(user=one.user, name="calc", by="test")),
        ("fail", {}, lambda one: apps.fail(one.pk, "x", by="test")),
        ("fail: once ready", served, lambda one: apps.fail(one.pk, "x", by="test")),
        ("delete_app", served, lambda one: apps.delete_app(user=one.user, name="calc", by="test")),
        ("delete_app: failed", {"state": "error"}, lambda one: apps.delete_app(user=one.user, name="calc", by="test")),
        ("delete_all_of", {}, lambda one: apps.delete_all_of(one.user, by="test")),
        ("delete_all_of: ready", served, lambda one: apps.delete_all_of(one.user, by="test")),
        ("forget", {"state": "deleting"}, lambda one: apps.forget(one.pk)),
        ("forget: once ready", served, lambda one: apps.forget(one.pk)),
    ]:
        one = app(**fields)
        yield verb, one, lambda call=call, one=one: call(one)


def of_trainings() -> Iterator[Case]:
    for verb, fields, call in [
        ("order_run", {}, lambda one: trainings.order_run(one.pk, 1)),
        ("order_run: again", {"attempt": 1}, lambda one: trainings.order_run(one.pk, 1)),
        ("order_run: of an ended one", {"state": "error"}, lambda one: trainings.order_run(one.pk, 1)),
        ("note_wait", {}, lambda one: trainings.note_wait(one.pk, "x")),
        ("note_start", {"reason": "x"}, lambda one: trainings.note_start(one.pk, "run", 5)),
        ("note_start: reserved", {"reserved": True}, lambda one: trainings.note_start(one.pk, "run", 5)),
        ("note_start: another run", {}, lambda one: trainings.note_start(one.pk, "another", 5)),
        ("note_start: of an ended one", {"state": "error"}, lambda one: trainings.note_start(one.pk, "run", 5)),
        ("note_trouble", {}, lambda one: trainings.note_trouble(one.pk, "x")),
        ("note_trouble: of an ended one", {"state": "error"}, lambda one: trainings.note_trouble(one.pk, "x")),
        ("beat", {}, lambda one: trainings.beat(one.pk, percent=5)),
        ("beat: of an ended one", {"state": "error"}, lambda one: trainings.beat(one.pk, percent=5)),
        ("complete", {"eta": 5}, lambda one: trainings.complete(one.pk, version="v", manifest={}, by="test")),
        ("fail", {"eta": 5}, lambda one: trainings.fail(one.pk, "x", by="test")),
        ("fail: of an ended one", {"state": "completed"}, lambda one: trainings.fail(one.pk, "x", by="test")),
        ("cancel_running", {}, lambda one: trainings.cancel_running("x", by="test")),
    ]:
        one = training(**fields)
        yield verb, one, lambda call=call, one=one: call(one)
    version = ModelVersion.objects.create(version="one", serving=True)
    ModelVersion.objects.create(version="two")
    yield "serve_version", version, lambda: trainings.serve_version("two")
    yield "serve_foreign", version, lambda: trainings.serve_foreign("three", {})


def of_tcc() -> Iterator[Case]:
    tenant = Tenant.objects.get(name="default")
    request = SimpleNamespace(applier="jm", number=0)

    def tried(kind: str = "request") -> dict:
        request.number += 1
        known = {"id": f"{kind}{request.number}", "applier": "jm"}
        tcc.try_(request_type=kind, **known, cpu=0.1)
        return known

    made = [tried() for _ in range(4)]
    released = tried("release")
    yield "confirm", tenant, lambda: tcc.confirm(**released)
    yield "cancel", tenant, lambda: tcc.cancel(**made[0])
    yield "release", tenant, lambda: tcc.release(**made[1])
    yield "withdraw", tenant, lambda: tcc.withdraw(**made[2])
    held = {"id": "artifacts:1", "applier": "jm", "tenant": tenant.pk, "owner": "alice"}
    yield "resize", tenant, lambda: tcc.resize(**held, rom=1)
    yield "set_capacity", tenant, lambda: tcc.set_capacity(name="default", by="test", cpu=9)


ALL = {
    dataset_trash: lambda: of_trash(dataset_trash, dataset),
    model_trash: lambda: of_trash(model_trash, model),
    app_trash: lambda: of_trash(app_trash, lambda **fields: app(run_name="", **fields)),
    accounts: of_accounts,
    datasets: of_datasets,
    jobs: of_jobs,
    idle: lambda: of_idle(job),
    preemption: lambda: of_preemption(job),
    models_app: of_models,
    apps: of_apps,
    trainings: of_trainings,
    tcc: of_tcc,
}


@pytest.mark.parametrize("lifecycle", ALL, ids=lambda module: module.__name__)
def test_each_verb_waits_for_the_rows_lock_before_it_reads_the_row(lifecycle):
    for verb, row, call in list(ALL[lifecycle]()):
        with transaction.atomic():
            type(row).objects.select_for_update(no_key=True).get(pk=row.pk)
            ours = in_thread(lambda call=call: within_a_transaction(call))
            statement = until(lambda ours=ours: waiting_for_us() or (ours.done() and [f"no lock: {ours}"]))[0]
        reads = statement.startswith("SELECT") and f'FROM "{row._meta.db_table}"' in statement
        locks = reads and " FOR NO KEY UPDATE" in statement
        assert locks, f"{verb} waits only when it writes: {statement}"
        try:
            ours.result(LIMIT_S)
        except Refused as refusal:
            raise AssertionError(f"{verb} was refused, so it says nothing: {refusal.msg}")


def within_a_transaction(call: Callable[[], object]) -> None:
    """Call the function inside another transaction, as some callers do."""
    with transaction.atomic():
        call()


@pytest.mark.parametrize("lifecycle", ALL, ids=lambda module: module.__name__)
def test_every_lifecycle_function_is_covered(lifecycle):
    verbs = {
        name
        for name, value in vars(lifecycle).items()
        if inspect.isfunction(value) and value.__module__ == lifecycle.__name__ and not name.startswith("_")
    }
    tried = {verb.partition(":")[0] for verb, _, _ in ALL[lifecycle]()}
    assert verbs - tried == LOCKLESS[lifecycle]


def creates() -> dict[str, Callable[[User], object]]:
    return {
        "dataset": lambda one: datasets.create_dataset(user=one, name="x", size=1, by="test"),
        "job": lambda one: jobs.create_job(user=one, name="x", entry="train.py", cpu=0.1, ram=1, by="test"),
        "model": lambda one: models_app.create_model(user=one, name="x", src="home/train.py", by="test"),
        "application": lambda one: apps.create_app(user=one, name="x", model_name="net", cpu=0.1, ram=1, by="test"),
    }


@pytest.mark.parametrize("kind", creates())
def test_nothing_is_created_for_a_user_during_deactivation(kind, alice, home):
    """De-registration ends existing objects; concurrent creations wait for it and are refused."""
    Model.objects.create(user=alice, tenant=alice.tenant, name="net", src="home/x", size=1, state="ready")
    with transaction.atomic():
        accounts.deregister(username="alice", by="test")
        other = in_thread(lambda: creates()[kind](alice))
        (statement,) = blocked(1)
        assert " FOR " in statement
    with pytest.raises(Refused, match=r"^user:"):
        other.result(LIMIT_S)


def test_a_model_during_deletion_gets_no_application(alice, home):
    net = Model.objects.create(user=alice, tenant=alice.tenant, name="net", src="home/x", size=1, state="ready")
    hold(net, models_app, rom=1)
    with transaction.atomic():
        models_app.delete_model(user=alice, name="net", by="test")
        other = in_thread(lambda: creates()["application"](alice))
        (statement,) = blocked(1)
        assert " FOR " in statement
    with pytest.raises(Refused, match=r"^model_name:"):
        other.result(LIMIT_S)

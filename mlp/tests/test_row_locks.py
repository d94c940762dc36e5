"""Each lifecycle function locks its row before reading it: it waits for a lock that another transaction holds. A verb
without it would only wait when it writes: the statement that waits must be the one that locks and reads.
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
from jobs.packages.named import lifecycle as environments
from kernel.errors import Refused
from kernel.tests.nats_tools import LIMIT_S, until
from kernel.tests.row_locks import blocked, in_thread, waiting_for_us, within_a_transaction
from models_app import lifecycle as models_app
from models_app import trash as model_trash
from models_app.models import Model
from resources import tcc
from resources.models import Tenant
from workspaces import lifecycle as workspaces

from . import dataset_verbs, environment_verbs, export_verbs, workspace_verbs
from .stepping_verbs import of_idle, of_preemption
from .trash_verbs import of_trash

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks", "default_tenant")]

Case = tuple[str, models.Model, Callable[[], object]]
NUMBERS = itertools.count(1)

# Public functions of a life cycle that lock no row: they read, or are one statement, or are called with the lock held.
LOCKLESS = {
    accounts: {"check_password", "register", "token_of", "create_service_token"},
    datasets: dataset_verbs.LOCKLESS,
    jobs: {"request_id", "run_name_of", "begin", "advance", "give_back", "release_run", "create_job", "adopt"},
    models_app: {"request_id", "create_model", "measured", "add_model", "announce_versions"}
    | {"require_no_version", "require_not_scoring", "require_unserved", "checked"},
    apps: {"request_id", "create_app", "run_name_of", "reserve", "note_stop"} | {"require_startable"},
    dataset_trash: {"require_free", "in_use"},
    model_trash: {"require_free"},
    app_trash: {"require_restorable"},
    **workspace_verbs.LOCKLESS,
    trainings: {"request_id", "uuid_of", "find", "create_run", "order_again", "note_sent", "serving", "deactivate"}
    | {"give_back", "needs", "held", "admit", "create_own"},
    environments: environment_verbs.LOCKLESS,
    export_verbs.lifecycle: export_verbs.LOCKLESS,
    idle: {"apply", "idle_for", "is_quiet", "last_sample", "written"},
    preemption: {"run", "choose", "step"},
    tcc: {"try_", "never_fits", "refusal", "allocated", "add_up", "lock_ledger"},
}


def user() -> User:
    letters = f"{next(NUMBERS):03}".translate(str.maketrans("0123456789", "abcdefghij"))
    return accounts.register(username=f"user{letters}", password="correct horse battery", by="test")


def dataset(**fields) -> Dataset:
    owner = user()
    dataset = Dataset.objects.create(user=owner, tenant=owner.tenant, name="digits", size=0, **fields)
    return hold(dataset, datasets, rom=0)


def job(**fields) -> Job:
    owner = user()
    values = {"state": "running", "run_name": "none", "reserved": True, "attempt": 1, **fields}
    job = Job.objects.create(user=owner, tenant=owner.tenant, name="fit", entry="x.py", cpu=0, ram=1, **values)
    return hold(job, jobs, ram=1)


def model(**fields) -> Model:
    owner = user()
    model = Model.objects.create(user=owner, tenant=owner.tenant, name="net", src="home/x", size=1, **fields)
    return hold(model, models_app, rom=1)


def app(**fields) -> Application:
    served = model(state="ready")
    app = Application.objects.create(
        user=served.user, tenant=served.tenant, model=served, name="calc", port=31000 + next(NUMBERS), cpu=0, ram=1,
        **{"run_name": "run", **fields},
    )  # fmt: skip
    return hold(app, apps, ram=1)


def training(**fields) -> TrainingRun:
    run = TrainingRun.objects.create(**{"run_name": "run", **fields})
    if run.reserved:
        whose = {"applier": trainings.APPLIER, "owner": trainings.OWNER}
        tcc.try_(id=trainings.request_id(run.uuid), request_type="request", ram=1, **whose)
    return run


def hold(row, lifecycle: ModuleType, **amounts):
    """Reserve the resources that the row's life cycle would have, so that they can be released."""
    request = {"id": lifecycle.request_id(row.pk), "applier": lifecycle.APPLIER, "owner": row.user.username}
    tcc.try_(request_type="request", **request, **amounts)
    return row


def of_accounts() -> Iterator[Case]:
    by = {"by": "test"}
    for verb, call in {
        "hold_active": accounts.hold_active,
        "activate": lambda row: accounts.activate(username=row.username, **by),
        "deregister": lambda row: accounts.deregister(username=row.username, **by),
        "set_staff": lambda row: accounts.set_staff(username=row.username, staff=True, **by),
        "change_password": lambda row: accounts.change_password(user=row, password="battery horse staple", **by),
        "rotate_token": lambda row: accounts.rotate_token(user=row, **by),
    }.items():
        row = user()
        if verb == "activate":
            accounts.deregister(username=row.username, by="test")
        yield verb, row, lambda call=call, row=row: call(row)
    token = Token.objects.create(user=user(), kind=Token.Kind.SERVICE, name="x")
    yield "revoke_service_token", token, lambda: accounts.revoke_service_token(pk=token.pk, by="test")


def of_jobs() -> Iterator[Case]:
    def report(row: Job, state: str = "running"):
        return jobs.heartbeat(user=row.user, name="fit", state=state, progress=5, by="test")

    ordered = {"state": "creating"}
    queued = {"state": "creating", "run_name": "", "attempt": 0}
    for verb, fields, call in [
        ("heartbeat", {}, report),
        ("heartbeat: first", ordered, report),
        ("heartbeat: finished", {}, lambda row: report(row, "finished")),
        ("heartbeat: error", {}, lambda row: report(row, "error")),
        ("note_bar", {}, lambda row: jobs.note_bar(row.pk, "none", 40, 9)),
        ("note_bar: of another run", {}, lambda row: jobs.note_bar(row.pk, "another", 40, 9)),
        ("note_bar: of an ended job", {"state": "error"}, lambda row: jobs.note_bar(row.pk, "none", 40, 9)),
        ("order_run", {}, lambda row: jobs.order_run(row.pk)),
        ("order_run: first", queued, lambda row: jobs.order_run(row.pk)),
        ("note_start", {}, lambda row: jobs.note_start(row.pk, "none")),
        ("note_start: first", ordered, lambda row: jobs.note_start(row.pk, "none")),
        ("note_start: of an ended job", {"state": "error"}, lambda row: jobs.note_start(row.pk, "none")),
        ("note_start: of another run", {}, lambda row: jobs.note_start(row.pk, "another")),
        ("note_run", ordered, lambda row: jobs.note_run(row.pk, "none", None)),
        ("note_run: waiting", ordered, lambda row: jobs.note_run(row.pk, "none", "x")),
        ("note_run: of another run", ordered, lambda row: jobs.note_run(row.pk, "another", None)),
        ("finish", {}, lambda row: jobs.finish(row.pk, "none", by="test")),
        ("finish: before any report", ordered, lambda row: jobs.finish(row.pk, "none", by="test")),
        ("finish: of another run", {}, lambda row: jobs.finish(row.pk, "another", by="test")),
        ("finish: of an ended job", {"state": "error"}, lambda row: jobs.finish(row.pk, "none", by="test")),
        ("end_attempt", {}, lambda row: jobs.end_attempt(row.pk, "none", "x", by="test")),
        ("end_attempt: retry", {"retries": 1}, lambda row: jobs.end_attempt(row.pk, "none", "x", by="test")),
        ("end_attempt: retry, before any report", {"retries": 1, **ordered},
         lambda row: jobs.end_attempt(row.pk, "none", "x", by="test")),
        ("end_attempt: of another run", {}, lambda row: jobs.end_attempt(row.pk, "another", "x", by="test")),
        ("end_attempt: of an ended job", {"state": "error"},
         lambda row: jobs.end_attempt(row.pk, "none", "x", by="test")),
        ("fail", {}, lambda row: jobs.fail(row.pk, "x", by="test")),
        ("stop_overdue", {"timeout": 0, "started": timezone.now() - timedelta(hours=1)},
         lambda row: jobs.stop_overdue(row.pk)),
        ("fail: queued", queued, lambda row: jobs.fail(row.pk, "x", by="test")),
        ("fail: of an ended job", {"state": "finished"}, lambda row: jobs.fail(row.pk, "x", by="test")),
        ("cancel", {}, lambda row: jobs.cancel(user=row.user, name="fit", by="test")),
        ("cancel_all_of", {}, lambda row: jobs.cancel_all_of(row.user, by="test")),
        ("delete_job", {"state": "finished"}, lambda row: jobs.delete_job(user=row.user, name="fit", by="test")),
        ("reserve_next", {"state": "creating", "reserved": False}, lambda row: jobs.reserve_next()),
    ]:  # fmt: skip
        row = job(**fields)
        yield verb, row, lambda call=call, row=row: call(row)


def of_models() -> Iterator[Case]:
    for verb, state, call in [
        ("measure_again", "creating", lambda row: models_app.measure_again(row.pk, 2)),
        ("measure_again: once failed", "error", lambda row: models_app.measure_again(row.pk, 2)),
        ("note_copy", "creating", lambda row: models_app.note_copy(row.pk, {"x": {"size": 1}})),
        ("note_copy: of another size", "creating", lambda row: models_app.note_copy(row.pk, {"x": {"size": 2}})),
        ("note_copy: once failed", "error", lambda row: models_app.note_copy(row.pk, {"x": {"size": 1}})),
        ("note_order", "creating", lambda row: models_app.note_order(row.pk)),
        ("note_order: once failed", "error", lambda row: models_app.note_order(row.pk)),
        ("note_packages", "ready", lambda row: models_app.note_packages(row.pk, "0" * 32)),
        ("note_wait", "creating", lambda row: models_app.note_wait(row, "x")),
        ("complete", "creating", lambda row: models_app.complete(row.pk, {"format": "onnx", "inputs": []}, by="test")),
        ("complete: once failed", "error", lambda row: models_app.complete(row.pk, {"format": "onnx"}, by="test")),
        ("fail", "creating", lambda row: models_app.fail(row.pk, "x", by="test")),
        ("fail: once ready", "ready", lambda row: models_app.fail(row.pk, "x", by="test")),
        ("fail_all_of", "creating", lambda row: models_app.fail_all_of(row.user, by="test")),
        ("delete_model", "ready", lambda row: models_app.delete_model(user=row.user, name="net", by="test")),
        ("delete_with_version", "ready", lambda row: models_app.delete_with_version(row.pk, by="test")),
        ("set_notes", "ready", lambda row: models_app.set_notes(user=row.user, name="net", notes="x")),
        ("forget", "deleting", lambda row: models_app.forget(row.pk)),
        ("forget: once ready", "ready", lambda row: models_app.forget(row.pk)),
    ]:
        row = model(state=state)
        yield verb, row, lambda call=call, row=row: call(row)


def of_apps() -> Iterator[Case]:
    served = {"state": "ready", "address": "127.0.0.1:1", "ready_since": timezone.now()}
    waiting, later = {"run_name": ""}, {"run_name": "", "not_before": timezone.now() + timedelta(minutes=1)}
    ended = {"state": "error", "stopped": True, "reserved": False, "run_name": "", "reason": "stopped"}
    last = {**served, "failures": settings.APP_MAX_FAILURES - 1}
    for verb, fields, call in [
        ("note_order", {}, lambda row: apps.note_order(row.pk)),
        ("note_order: first", waiting, lambda row: apps.note_order(row.pk)),
        ("note_order: not yet", later, lambda row: apps.note_order(row.pk)),
        ("note_order: once ready", served, lambda row: apps.note_order(row.pk)),
        ("note_wait", {}, lambda row: apps.note_wait(row, "x")),
        ("note_wait: once ready", served, lambda row: apps.note_wait(row, "x")),
        ("up", {}, lambda row: apps.up(row.pk, "run", "127.0.0.1:1", by="test")),
        ("up: another run", {}, lambda row: apps.up(row.pk, "another", "127.0.0.1:1", by="test")),
        ("up: once failed", {"state": "error"}, lambda row: apps.up(row.pk, "run", "127.0.0.1:1", by="test")),
        ("end_run", served, lambda row: apps.end_run(row.pk, "run", "x", by="test")),
        ("end_run: while starting", {}, lambda row: apps.end_run(row.pk, "run", "x", by="test")),
        ("end_run: the last", last, lambda row: apps.end_run(row.pk, "run", "x", by="test")),
        ("end_run: another run", served, lambda row: apps.end_run(row.pk, "another", "x", by="test")),
        ("end_run: once failed", {"state": "error"}, lambda row: apps.end_run(row.pk, "run", "x", by="test")),
        ("end_requested", served, lambda row: apps.end_requested(row.pk, "run", "x", by="test")),
        ("end_requested: another run", served, lambda row: apps.end_requested(row.pk, "another", "x", by="test")),
        ("end_requested: while starting", {}, lambda row: apps.end_requested(row.pk, "run", "x", by="test")),
        ("stop_app", served, lambda row: apps.stop_app(user=row.user, name="calc", by="test")),
        ("stop_app: starting", {}, lambda row: apps.stop_app(user=row.user, name="calc", by="test")),
        ("stop_app: waiting", waiting, lambda row: apps.stop_app(user=row.user, name="calc", by="test")),
        ("start_app", ended, lambda row: apps.start_app(user=row.user, name="calc", by="test")),
        ("fail", {}, lambda row: apps.fail(row.pk, "x", by="test")),
        ("fail: once ready", served, lambda row: apps.fail(row.pk, "x", by="test")),
        ("delete_app", served, lambda row: apps.delete_app(user=row.user, name="calc", by="test")),
        ("delete_app: failed", {"state": "error"}, lambda row: apps.delete_app(user=row.user, name="calc", by="test")),
        ("delete_all_of", {}, lambda row: apps.delete_all_of(row.user, by="test")),
        ("delete_all_of: ready", served, lambda row: apps.delete_all_of(row.user, by="test")),
        ("forget", {"state": "deleting"}, lambda row: apps.forget(row.pk)),
        ("forget: once ready", served, lambda row: apps.forget(row.pk)),
    ]:
        row = app(**fields)
        yield verb, row, lambda call=call, row=row: call(row)


def of_trainings() -> Iterator[Case]:
    for verb, fields, call in [
        ("order_run", {}, lambda row: trainings.order_run(row.pk, 1)),
        ("order_run: again", {"attempt": 1}, lambda row: trainings.order_run(row.pk, 1)),
        ("order_run: of an ended one", {"state": "error"}, lambda row: trainings.order_run(row.pk, 1)),
        ("leave_queue", {"queued": True}, lambda row: trainings.leave_queue(row.pk, {}, {})),
        ("note_wait", {}, lambda row: trainings.note_wait(row.pk, "x")),
        ("note_start", {"reason": "x"}, lambda row: trainings.note_start(row.pk, "run", 5)),
        ("note_start: reserved", {"reserved": True}, lambda row: trainings.note_start(row.pk, "run", 5)),
        ("note_start: another run", {}, lambda row: trainings.note_start(row.pk, "another", 5)),
        ("note_start: of an ended one", {"state": "error"}, lambda row: trainings.note_start(row.pk, "run", 5)),
        ("note_trouble", {}, lambda row: trainings.note_trouble(row.pk, "x")),
        ("note_trouble: of an ended one", {"state": "error"}, lambda row: trainings.note_trouble(row.pk, "x")),
        ("beat", {}, lambda row: trainings.beat(row.pk, percent=5)),
        ("beat: of an ended one", {"state": "error"}, lambda row: trainings.beat(row.pk, percent=5)),
        ("complete", {"eta": 5}, lambda row: trainings.complete(row.pk, version="v", manifest={}, by="test")),
        ("fail", {"eta": 5}, lambda row: trainings.fail(row.pk, "x", by="test")),
        ("fail: of an ended one", {"state": "completed"}, lambda row: trainings.fail(row.pk, "x", by="test")),
        ("cancel_running", {}, lambda row: trainings.cancel_running("x", by="test")),
    ]:
        row = training(**fields)
        yield verb, row, lambda call=call, row=row: call(row)
    version = ModelVersion.objects.create(version="one", serving=True)
    ModelVersion.objects.create(version="two")
    yield "serve_version", version, lambda: trainings.serve_version("two", "test")
    yield "serve_foreign", version, lambda: trainings.serve_foreign("three", {})


def of_tcc() -> Iterator[Case]:
    tenant = Tenant.objects.get(name="default")
    request = SimpleNamespace(applier="jm", number=0)

    def tried(kind: str = "request") -> dict:
        request.number += 1
        known = {"id": f"{kind}{request.number}", "applier": "jm"}
        tcc.try_(request_type=kind, **known, cpu=0.1)
        return known

    requests, released = [tried() for _ in range(4)], tried("release")
    yield "confirm", tenant, lambda: tcc.confirm(**released)
    yield "cancel", tenant, lambda: tcc.cancel(**requests[0])
    yield "release", tenant, lambda: tcc.release(**requests[1])
    yield "withdraw", tenant, lambda: tcc.withdraw(**requests[2])
    held = {"id": "artifacts:1", "applier": "jm", "tenant": tenant.pk, "owner": "alice"}
    yield "resize", tenant, lambda: tcc.resize(**held, rom=1)
    yield "set_capacity", tenant, lambda: tcc.set_capacity(name="default", by="test", cpu=9)


ALL = {
    dataset_trash: lambda: of_trash(dataset_trash, dataset),
    model_trash: lambda: of_trash(model_trash, model),
    app_trash: lambda: of_trash(app_trash, lambda **fields: app(run_name="", **fields)),
    accounts: of_accounts,
    datasets: lambda: dataset_verbs.of_datasets(dataset),
    jobs: of_jobs,
    idle: lambda: of_idle(job),
    preemption: lambda: of_preemption(job),
    models_app: of_models,
    apps: of_apps,
    **workspace_verbs.cases(user, hold),
    trainings: of_trainings,
    environments: lambda: environment_verbs.of_environments(user),
    export_verbs.lifecycle: lambda: export_verbs.of_exports(user),
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
        "dataset": lambda owner: datasets.create_dataset(user=owner, name="x", size=1, by="test"),
        "job": lambda owner: jobs.create_job(user=owner, name="x", entry="train.py", cpu=0.1, ram=1, by="test"),
        "model": lambda owner: models_app.create_model(user=owner, name="x", src="home/train.py", by="test"),
        "application": lambda owner: apps.create_app(user=owner, name="x", model_name="net", cpu=0.1, ram=1, by="test"),
        "workspace": lambda owner: workspaces.create_workspace(user=owner, name="x", cpu=0.1, ram=1, by="test"),
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

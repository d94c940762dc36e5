"""`manage.py books` after damage by raw SQL: each difference is listed, --repair corrects it and nothing else."""

from __future__ import annotations

import io
import logging

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from apps import lifecycle as apps
from apps.models import Application
from datasets import lifecycle as datasets
from jobs.models import Job
from mlp.tests.tiers import few
from models_app.models import Model
from resources import tcc
from resources.models import KINDS, ResourceRequest, Tenant

pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.fixture(autouse=True)
def world(alice):
    """A reserved job, a queued one, a dataset, a partly released request over REST, and a request of aiops."""
    options = {"user": alice, "tenant": alice.tenant, "entry": "x.py"}
    job = Job.objects.create(**options, name="held", cpu=2, gpu=1, ram=500, reserved=True)
    job.refresh_from_db()
    Job.objects.create(**options, name="waiting", cpu=4)
    dataset = datasets.create_dataset(user=alice, name="digits", size=1000, by="test")
    ask(f"job:{job.pk}", owner="alice", cpu=2, gpu=1, ram=500)
    ask("x", cpu=1, rom=50)
    ask("r", "release", cpu=0.5)
    for id in (f"job:{job.pk}", "x", "r"):
        tcc.confirm(id=id, applier="jm")
    ask("aiops:" + "0" * 36, owner="aiops", gpu=1)
    return {"job": f"job:{job.pk}", "dataset": f"dataset:{dataset.pk}"}


def ask(id: str, kind: str = "request", owner: str = "", **amounts):
    tcc.try_(id=id, applier="jm", request_type=kind, owner=owner, **amounts)


def sql(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def run(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    try:
        call_command("books", *arguments, stdout=out)
    except SystemExit as end:
        return end.code, out.getvalue()
    return 0, out.getvalue()


def in_use() -> dict:
    tenant = Tenant.objects.get(name="default")
    recorded = {kind: getattr(tenant, f"{kind}_inuse") for kind in KINDS}
    assert tcc.allocated(tenant) == recorded
    return {kind: float(value) for kind, value in recorded.items()}


RIGHT = {"gpu": 2.0, "cpu": 2.5, "ram": 500.0, "rom": 1050.0}


def test_consistent_accounting_has_no_differences():
    assert run() == (0, "the accounting of default is consistent\n")
    assert run("--repair", "--tenant", "default")[0] == 0
    assert in_use() == RIGHT
    with pytest.raises(CommandError):
        run("--tenant", "none")


DAMAGE = {
    "the sum of a tenant": ("UPDATE tenant SET cpu_inuse = 6, rom_inuse = 0", ["cpu_inuse  6", "rom_inuse  0 bytes"]),
    "the capacity with it": (
        "UPDATE tenant SET cpu_inuse = 0, cpu = 1",
        ["cpu_inuse  0", "cpu        1     at least 2.5, which is in use"],
    ),
    "a request is gone": ("DELETE FROM resource_request WHERE id = '{job}'", ["request {job}  not active", "cpu 2"]),
    "a request is settled": (
        "UPDATE resource_request SET state = 'cancelled' WHERE id = '{dataset}'",
        ["request {dataset}  not active", "rom 1000 bytes for alice (dm)"],
    ),
    "a request says another amount": (
        "UPDATE resource_request SET cpu = 5, owner = '' WHERE id = '{job}'",
        ["request {job}", "cpu 5, ram 500 MiB for no owner (jm)", "cpu 2, ram 500 MiB for alice (jm)"],
    ),
    "a request is of another tenant": (
        "WITH other AS (INSERT INTO tenant"
        " (name, cpu, gpu, ram, rom, cpu_inuse, gpu_inuse, ram_inuse, rom_inuse, source)"
        " VALUES ('another', 9, 9, 9, 9, 0, 0, 0, 0, 'set') RETURNING id)"
        " UPDATE resource_request SET tenant_id = other.id FROM other WHERE resource_request.id = '{job}'",
        ["another  request {job}", "default  request {job}"],
    ),
    "more is released than was requested": (
        "UPDATE resource_request SET cpu = 4 WHERE id = 'r'",
        ["cpu released  3 more than requested"],
    ),
    "everything at once": (
        "DELETE FROM resource_request; UPDATE tenant SET cpu_inuse = 0, gpu_inuse = 0, cpu = 0",
        ["request {job}", "request {dataset}", "rom_inuse"],
    ),
}


@pytest.mark.parametrize(("damage", "lines"), few(DAMAGE.values(), 3), ids=DAMAGE)
def test_damage_is_listed_and_repaired(world, damage, lines, caplog):
    sql(damage.format(**world))
    code, text = run()
    assert code == 1
    for line in lines:
        assert " ".join(line.format(**world).split()) in " ".join(text.split()), text
    with caplog.at_level(logging.WARNING, "resources.books"):
        assert run("--repair")[0] == 0
    assert caplog.records
    assert run()[0] == 0
    held = in_use()
    if "DELETE FROM resource_request;" in damage:
        assert held == {"gpu": 1.0, "cpu": 2.0, "ram": 500.0, "rom": 1000.0}
    elif "'r'" in damage:
        assert held == {**RIGHT, "cpu": 2.0}
    else:
        assert held == RIGHT
    for id in world.values():
        row = ResourceRequest.objects.get(pk=id)
        assert (row.state in ("tried", "confirmed"), row.owner, row.tenant.name) == (True, "alice", "default")


def test_a_request_without_its_object_is_released(world):
    sql(f"UPDATE job SET reserved = false WHERE id = {world['job'].partition(':')[2]}")
    ask("job:99999", owner="alice", cpu=1)
    code, text = run("--repair")
    assert (code, text.count("no object uses it")) == (0, 2)
    states = dict(ResourceRequest.objects.filter(pk__startswith="job:").values_list("pk", "state"))
    assert states == {world["job"]: "released", "job:99999": "cancelled"}
    assert in_use() == {"gpu": 1.0, "cpu": 0.5, "ram": 0.0, "rom": 1050.0}


def test_after_a_repair_objects_end_normally(world, alice):
    sql("DELETE FROM resource_request WHERE id LIKE 'dataset:%'")
    assert run("--repair")[0] == 0
    datasets.fail(int(world["dataset"].partition(":")[2]), "test", by="test")
    datasets.delete_dataset(user=alice, name="digits", by="test")
    datasets.erase(int(world["dataset"].partition(":")[2]))
    assert in_use() == {**RIGHT, "rom": 50.0}
    assert run()[0] == 0


@pytest.fixture
def served(alice, world):
    """A model, and an application that serves it."""
    owner = {"user": alice, "tenant": alice.tenant}
    model = Model.objects.create(**owner, name="net", src="jobs/net", size=300)
    tcc.try_(id=f"model:{model.pk}", applier="mm", request_type="request", owner="alice", rom=300)
    app = Application.objects.create(**owner, name="net", model=model, cpu=1.5, ram=256, port=33000)
    tcc.try_(id=f"app:{app.pk}", applier="am", request_type="request", owner="alice", cpu=1.5, ram=256)
    assert run()[0] == 0
    return {"model": f"model:{model.pk}", "app": f"app:{app.pk}"}


SERVED = {**RIGHT, "cpu": 4.0, "ram": 756.0, "rom": 1350.0}


@pytest.mark.parametrize(
    ("damage", "lines"),
    few(
        [
            (
                "UPDATE resource_request SET rom = 5, cpu = 9 WHERE id IN ('{model}', '{app}')",
                [
                    "request {model} cpu 9, rom 5 bytes for alice (mm) rom 300 bytes for alice (mm)",
                    "request {app} cpu 9",
                ],
            ),
            (
                "DELETE FROM resource_request WHERE id IN ('{model}', '{app}')",
                [
                    "request {model} not active rom 300 bytes",
                    "request {app} not active cpu 1.5, ram 256 MiB for alice (am)",
                ],
            ),
        ],
        1,
    ),
)
def test_models_and_applications_are_compared_too(served, damage, lines):
    sql(damage.format(**served))
    code, text = run()
    assert code == 1
    for line in lines:
        assert line.format(**served) in " ".join(text.split()), text
    assert run("--repair")[0] == 0
    assert in_use() == SERVED


def test_resources_without_a_model_or_application_are_released(served):
    for kind, applier in (("model", "mm"), ("app", "am")):
        tcc.try_(id=f"{kind}:99999", applier=applier, request_type="request", owner="alice", ram=1)
    code, text = run("--repair")
    assert (code, text.count("no object uses it")) == (0, 2)
    assert in_use() == SERVED


def test_a_failed_application_uses_nothing(served, alice):
    pk = int(served["app"].partition(":")[2])
    apps.fail(pk, "test", by="test")
    assert run()[0] == 0
    apps.delete_app(user=alice, name="net", by="test")
    assert run()[0] == 0, "while it is being deleted, either"
    apps.forget(pk)
    assert run()[0] == 0
    assert in_use() == {**RIGHT, "rom": 1350.0}


@pytest.fixture
def loan(alice) -> str:
    """A job of another tenant, which has borrowed three cores from `default`; return the id of its request."""
    Tenant.objects.filter(name="default").update(lends=True)
    north = Tenant.objects.create(name="north", cpu=4, cpu_borrow_limit=8)
    job = Job.objects.create(user=alice, tenant=north, entry="x.py", name="borrows", cpu=7, ram=0, reserved=True)
    id = f"job:{job.pk}"
    tcc.try_(
        id=id, applier="jm", request_type="request", tenant="north", owner="alice", borrows=True, cpu=7
    )  # fmt: skip
    tcc.confirm(id=id, applier="jm")
    return id


LOANS = {
    "the loan": ("UPDATE tenant_loan SET cpu = 5", ["default  cpu_lent      3         5", "north    cpu_borrowed  3"]),
    "what is lent": ("UPDATE tenant SET cpu_lent = 1 WHERE name = 'default'", ["cpu_lent  1         3"]),
    "what is borrowed": (
        "UPDATE tenant SET cpu_borrowed = 0, cpu_inuse = 4 WHERE name = 'north'",
        ["north   cpu_inuse     4         7", "north   cpu_borrowed  0         3"],
    ),
    "the job": ("UPDATE job SET reserved = false WHERE name = 'borrows'", ["request {loan}  cpu 7 for alice (jm)"]),
}


@pytest.mark.parametrize(("damage", "lines"), few(LOANS.values(), 1), ids=LOANS)
def test_damaged_loans_are_listed_and_repaired(loan, damage, lines):
    assert run()[0] == 0
    sql(damage)
    status, table = run()
    assert status == 1
    for line in lines:
        assert line.format(loan=loan) in table, table
    assert run("--repair")[0] == 0
    assert run() == (0, "the accounting of default, north is consistent\n")
    gone = "reserved" in damage
    lent = Tenant.objects.get(name="default").cpu_lent
    assert (lent, Tenant.objects.get(name="north").cpu) == (0 if gone else 3, 4)


def test_a_loan_that_is_lost_becomes_capacity(loan):
    """What is in use has to be somewhere; only an administrator can say where else."""
    sql("DELETE FROM tenant_loan")
    assert run("--repair")[0] == 0
    north = Tenant.objects.get(name="north")
    assert (north.cpu, north.cpu_borrowed, Tenant.objects.get(name="default").cpu_lent) == (7, 0, 0)

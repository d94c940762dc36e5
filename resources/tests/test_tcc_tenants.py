"""Try-confirm-cancel with several tenants and owners, at the limits of what fits, and of one id by two at once."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.db import connection, transaction

from datasets.models import Dataset
from kernel.database import execute_prepared
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.tests.row_locks import blocked, in_thread
from mlp.tests.patience import LIMIT_S
from resources import limits, rows, tcc
from resources.models import ResourceRequest, Tenant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("default_tenant")]


@pytest.fixture(autouse=True)
def tenants() -> dict[str, Tenant]:
    """Two more tenants, one before and one behind the default one in the order of keys, with a request each."""
    rows = {name: Tenant.objects.create(pk=pk, name=name, cpu=8, ram=9000) for name, pk in (("a", -1), ("z", 10**6))}
    for name in rows:
        tcc.try_(id=f"in-{name}", applier="am", request_type="request", tenant=name, cpu=1)
        tcc.try_(id=f"held-{name}", applier="am", request_type="request", tenant=name, cpu=2)
        tcc.confirm(id=f"held-{name}", applier="am")
        tcc.try_(id=f"app:{rows[name].pk + 2}", applier="am", request_type="request", owner="x", tenant=name, cpu=3)
    yield rows
    assert [in_use(name) for name in rows] == [6, 6]
    assert [ResourceRequest.objects.get(pk=f"in-{name}").state for name in rows] == ["tried", "tried"]


def ask(id: str, kind: str = "request", owner: str = "", **amounts) -> ResourceRequest:
    return tcc.try_(id=id, applier="jm", request_type=kind, owner=owner, **amounts)


def settle(verb: str, id: str) -> None:
    getattr(tcc, verb)(id=id, applier="jm")


def state(id: str) -> str:
    return ResourceRequest.objects.get(pk=id).state


def in_use(name: str = "default", kind: str = "cpu") -> float:
    tenant = Tenant.objects.get(name=name)
    assert tcc.allocated(tenant) == {kind: getattr(tenant, f"{kind}_inuse") for kind in tcc.KINDS}
    return float(getattr(tenant, f"{kind}_inuse"))


class TestOneOfSeveral:
    def test_a_request_moves_its_own_tenant_alone(self):
        ask("b", cpu=4)
        settle("confirm", "b")
        assert in_use() == 4
        ask("r", "release", cpu=4)
        settle("confirm", "r")
        assert in_use() == 0
        ask("c", cpu=1)
        settle("cancel", "c")
        for verb in ("confirm", "cancel"):
            settle(verb, "unknown")
        assert (in_use(), state("c"), state("unknown")) == (0, "cancelled", "cancelled")
        assert ask("unknown", cpu=1).state == "cancelled"
        assert in_use() == 0

    def test_a_release_cannot_exceed_what_rest_requests_hold(self):
        with pytest.raises(Refused, match=r"^cpu: cannot release 1: 0 is in use$"):
            ask("r", "release", cpu=1)
        ask("b", cpu=1)
        ask("r", "release", cpu=1)
        with pytest.raises(Refused, match=r"^cpu: cannot release 1: 0 is in use$"):
            ask("s", "release", cpu=1)
        settle("cancel", "r")
        ask("s", "release", cpu=1)
        settle("confirm", "s")
        assert in_use() == 0

    def test_platform_objects_release_independently_of_each_other(self):
        for number in (1, 2):
            ask(f"job:{number}", owner="alice", cpu=2)
        settle("confirm", "job:2")
        settle("release", "job:1")
        settle("release", "job:2")
        settle("release", "job:3")
        assert (in_use(), state("job:1"), state("job:2")) == (0, "cancelled", "released")

    def test_a_release_request_itself_is_not_released(self):
        ask("b", cpu=2)
        ask("r", "release", cpu=2)
        settle("release", "r")
        assert (in_use(), state("r")) == (2, "tried")

    def test_the_applier_of_an_id_is_named(self):
        ask("b", cpu=1)
        for call in (tcc.confirm, tcc.cancel, tcc.release):
            with pytest.raises(Refused, match=r"^applier: this id belongs to am$"):
                call(id="in-a", applier="jm")
        with pytest.raises(Refused, match=r"^applier: this id belongs to jm$"):
            tcc.try_(id="b", applier="dm", request_type="request", cpu=1)

    def test_an_unknown_tenant_is_missing(self):
        for kind in ("request", "release"):
            with pytest.raises(Missing, match="no such tenant"):
                ask("b", kind, tenant="none", cpu=1)
        with pytest.raises(Missing, match="no such tenant"):
            tcc.set_capacity(name="none", by="test", cpu=1)


class TestWhatFits:
    def test_all_that_is_left_can_be_taken_and_no_more(self, alice):
        limits.set_limit(
            tenant="default", user="alice", by="test", cpu=100
        )  # with a limit, requests are checked under the tenant's lock
        ask("job:1", owner="alice", cpu=5)
        with pytest.raises(Refused, match=r"^cpu: requested 3\.5, but tenant default has 3 left$"):
            ask("job:2", owner="alice", cpu=3.5)
        ask("job:2", owner="alice", cpu=3)
        assert in_use() == 8

    def test_more_than_the_tenants_capacity_never_fits(self, default_tenant):
        tcc.never_fits(default_tenant, cpu=8, gpu=2)
        for asked, problem in (({"cpu": 8.5}, "cpu: requested 8.5, but this tenant has 8"), ({"gpu": 3}, "gpu: ")):
            with pytest.raises(Refused) as refusal:
                tcc.never_fits(default_tenant, **asked)
            assert refusal.value.msg.startswith(problem)

    def test_a_capacity_may_be_lowered_to_what_is_in_use(self):
        ask("b", cpu=4, ram=300)
        with pytest.raises(Refused, match=r"^cpu: must not be less than what is in use \(4\)$"):
            tcc.set_capacity(name="default", by="test", cpu=3.9)
        tenant = tcc.set_capacity(name="default", by="test", cpu=4, ram=300)
        tenant.refresh_from_db()
        assert (tenant.cpu, tenant.ram, tenant.source) == (Decimal(4), 300, "set")
        assert Tenant.objects.get(name="a").cpu == 8


class TestAtOnce:
    def test_an_ordinary_try_and_its_confirm_are_one_statement_each(self, django_assert_num_queries, monkeypatch):
        prepared = []  # Django's own count does not know of them

        def execute(statement, *args, **options):
            prepared.append(statement)
            return execute_prepared(statement, *args, **options)

        monkeypatch.setattr(rows, "execute_prepared", execute)
        with django_assert_num_queries(0):
            row = ask("job:1", owner="alice", cpu=1)
        assert (row.tenant.name, row.state, len(prepared)) == ("default", "tried", 1)
        with django_assert_num_queries(0):
            settle("confirm", "job:1")
        assert len(prepared) == 2
        assert state("job:1") == "confirmed"

    def test_the_first_of_two_tries_with_one_id_counts(self):
        with transaction.atomic():
            ask("job:1", owner="alice", cpu=1)
            second = in_thread(lambda: ask("job:1", "release", owner="alice", tenant="z", cpu=5))
            blocked(1)
        row = second.result(LIMIT_S)
        assert (row.tenant.name, row.request_type, row.cpu) == ("default", "request", 1)
        assert in_use() == 1

    def test_a_cancel_waits_for_the_try_of_its_id_and_gives_it_back(self):
        with transaction.atomic():
            ask("b", cpu=1)
            cancelled = in_thread(lambda: settle("cancel", "b"))
            blocked(1)
        cancelled.result(LIMIT_S)
        assert (state("b"), in_use()) == ("cancelled", 0)

    def test_two_that_settle_one_request_settle_it_once(self):
        ask("job:1", owner="alice", cpu=1)
        with transaction.atomic():
            settle("release", "job:1")
            second = in_thread(lambda: settle("release", "job:1"))
            blocked(1)
        second.result(LIMIT_S)
        assert (state("job:1"), in_use()) == ("cancelled", 0)

    def test_objects_that_refer_to_the_tenant_can_be_created_meanwhile(self, alice):
        """Their foreign key's check takes a lock on the tenant's row, which no try, confirm or cancel waits for."""
        ask("b", cpu=3)
        with transaction.atomic():
            Dataset.objects.create(user=alice, tenant=alice.tenant, name="digits", size=0)
            connection.check_constraints()  # now, not only at the commit
            in_thread(lambda: ask("r", "release", cpu=1)).result(LIMIT_S)
            in_thread(lambda: settle("confirm", "r")).result(LIMIT_S)
            in_thread(lambda: settle("cancel", "c")).result(LIMIT_S)
        assert in_use() == 2

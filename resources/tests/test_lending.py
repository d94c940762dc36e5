"""Borrowing between tenants: single cases, any order of calls, and many clients at once."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from decimal import Decimal

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from kernel.errors import Refused
from mlp.tests.tiers import later
from resources import lending, limits, tcc
from resources.models import KINDS, LENDABLE, Loan, ResourceRequest, State, Tenant

from .test_races import at_once, deadlocks, refusals

STORM_S = float(os.environ.get("MLP_STORM_S", "5"))
STEPS = int(os.environ.get("MLP_LENDING_STEPS", "400"))
CLIENTS = 16
NAMES = ("default", "north", "south")
CONSISTENT = f"""
SELECT t.name, {", ".join(f"t.{kind}, t.{kind}_inuse, t.{kind}_lent, t.{kind}_borrowed" for kind in LENDABLE)},
    {", ".join(f"(SELECT COALESCE(SUM({kind}), 0) FROM tenant_loan WHERE lender_id = t.id)" for kind in LENDABLE)},
    {", ".join(f"(SELECT COALESCE(SUM({kind}), 0) FROM tenant_loan WHERE borrower_id = t.id)" for kind in LENDABLE)},
    {", ".join(
        f"(SELECT COALESCE(SUM({kind}), 0) FROM resource_request r WHERE r.tenant_id = t.id"
        " AND state IN ('tried', 'confirmed'))" for kind in LENDABLE
    )}
FROM tenant t
"""  # fmt: skip


def check() -> None:
    """Check the books of all tenants, read in one statement and so from one snapshot."""
    with connection.cursor() as cursor:
        cursor.execute(CONSISTENT)
        rows = cursor.fetchall()
    total = dict.fromkeys(LENDABLE, 0)
    for name, *values in rows:
        for index, kind in enumerate(LENDABLE):
            capacity, in_use, lent, borrowed = values[4 * index : 4 * index + 4]
            given, taken, requested = values[12 + index], values[15 + index], values[18 + index]
            said = f"{name}: {kind} {in_use} of {capacity}, {lent} lent, {borrowed} borrowed"
            assert 0 <= in_use <= capacity + borrowed, said
            assert lent >= 0, said
            assert not lent or in_use + lent <= capacity, said
            assert borrowed == max(0, in_use - capacity), said
            assert not (lent and borrowed), said
            assert (lent, borrowed, in_use) == (given, taken, requested), f"{said}; {given}, {taken}, {requested}"
            total[kind] += in_use - capacity
    assert all(value <= 0 for value in total.values()), total


@pytest.fixture
def tenants(db) -> dict[str, Tenant]:
    """Three tenants that lend and may borrow; `default` has 8 cores, the others 4."""
    for name in NAMES[1:]:
        Tenant.objects.create(name=name, cpu=4, gpu=2, ram=4000)
    Tenant.objects.update(lends=True, cpu_borrow_limit=6, gpu_borrow_limit=2, ram_borrow_limit=4000)
    return {tenant.name: tenant for tenant in Tenant.objects.all()}


def ask(number: int, tenant: str = "north", borrows: bool = True, closed=(), owner: str = "alice", **amounts):
    return tcc.try_(
        id=f"job:{number}", applier="jm", request_type="request", tenant=tenant, owner=owner, borrows=borrows,
        closed=closed, **amounts,
    )  # fmt: skip


def end(number: int, to: int | None = None) -> None:
    tcc.release(id=f"job:{number}", applier="jm", to=to)


def row(name: str) -> Tenant:
    check()
    return Tenant.objects.get(name=name)


class TestOneCall:
    def test_own_capacity_is_used_first(self, tenants):
        ask(1, cpu=4)
        assert row("north").cpu_borrowed == 0
        ask(2, cpu=3)
        assert row("north").cpu_borrowed == 3
        assert row("default").cpu_lent == 3  # it has most left

    def test_several_lenders(self, tenants):
        Tenant.objects.update(cpu_borrow_limit=100)
        ask(1, cpu=15)
        assert row("north").cpu_borrowed == 11
        assert (row("default").cpu_lent, row("south").cpu_lent) == (8, 3)

    def test_only_what_can_step_back_borrows(self, tenants):
        ask(1, cpu=4)
        with pytest.raises(Refused, match=r"^cpu: requested 1, but tenant north has 0 left$"):
            ask(2, borrows=False, cpu=1)
        with pytest.raises(Refused, match="north has 0 left"):
            tcc.try_(id="rest", applier="jm", request_type="request", tenant="north", cpu=1)
        check()

    def test_there_is_none_at_first(self, db):
        Tenant.objects.create(name="north", cpu=4)
        with pytest.raises(Refused, match=r"^cpu: requested 5, but tenant north has 4 left$"):
            ask(1, cpu=5)
        with pytest.raises(Refused, match=r"but this tenant has 4$"):
            tcc.never_fits(Tenant.objects.get(name="north"), borrows=True, cpu=5)

    def test_up_to_the_limit(self, tenants):
        with pytest.raises(Refused, match="requested 11, but tenant north has 4 left and can borrow 6"):
            ask(1, cpu=11)
        ask(1, cpu=10)
        tcc.never_fits(tenants["north"], borrows=True, cpu=10)
        with pytest.raises(Refused, match=r"requested 10.5, but this tenant has 10"):
            tcc.never_fits(tenants["north"], borrows=True, cpu=10.5)
        with pytest.raises(Refused, match="requested 10, but this tenant has 4"):
            tcc.never_fits(tenants["north"], cpu=10)
        check()

    def test_disk_is_not_borrowed(self, tenants):
        Tenant.objects.filter(name="north").update(rom=10)
        with pytest.raises(Refused, match="rom: requested 11 bytes, but tenant north has 10 bytes left"):
            ask(1, rom=11)

    def test_all_kinds_or_none(self, tenants):
        with pytest.raises(Refused, match=r"^gpu: requested 5, but tenant north has 2 left and can borrow 2$"):
            ask(1, cpu=6, gpu=5)
        assert not Loan.objects.exists()
        check()

    def test_closed_tenants_do_not_lend(self, tenants):
        ask(1, closed=[tenants["default"].pk], cpu=6)
        assert (row("default").cpu_lent, row("south").cpu_lent) == (0, 2)

    def test_a_release_returns_the_loan_first(self, tenants):
        ask(1, cpu=4)
        ask(2, cpu=3)
        end(1)
        assert (row("north").cpu_borrowed, row("north").cpu_inuse) == (0, 3)
        assert not Loan.objects.exists()
        end(2)
        assert row("north").cpu_inuse == 0

    def test_a_withdrawal_returns_it_to_the_tenant_that_needs_it(self, tenants):
        Tenant.objects.update(cpu_borrow_limit=100)
        ask(1, cpu=4)
        ask(2, cpu=9)
        assert (row("default").cpu_lent, row("south").cpu_lent) == (8, 1)
        tcc.withdraw(id="job:1", applier="jm", to=tenants["south"].pk)
        assert (row("default").cpu_lent, row("south").cpu_lent) == (5, 0)

    def test_what_is_lent_cannot_be_used_and_the_refusal_recalls_it(self, tenants, as_staff):
        ask(1, cpu=10)
        ask(2, "default", cpu=2)
        body = {"id": "rest", "applier": "am", "request_type": "request", "cpu": 1}
        message = as_staff.refused("put", "resource_request:try", body)
        assert message == "cpu: requested 1, but tenant default has 0 left; 6 is lent"
        assert row("default").recalled_until > timezone.now()
        assert not row("default").lends_now
        with pytest.raises(Refused, match=r"south has 4 left$"):
            ask(3, "south", closed=[tenants["north"].pk], cpu=5)

    def test_a_tenant_that_lends_a_kind_does_not_borrow_it(self, tenants):
        Tenant.objects.filter(name="default").update(lends=False)
        ask(1, cpu=6)
        with pytest.raises(Refused, match="south has 2 left; 2 is lent"):
            ask(2, "south", cpu=3)
        Tenant.objects.filter(name="default").update(lends=True)
        with pytest.raises(Refused, match="south has 2 left; 2 is lent"):
            ask(2, "south", cpu=3)
        ask(2, "south", gpu=4, cpu=1)  # of another kind it does
        assert row("south").gpu_borrowed == 2

    def test_the_users_limit_counts_what_is_borrowed(self, tenants, alice):
        limits.set_limit(tenant="north", user="alice", by="test", cpu=5)
        ask(1, cpu=5)
        with pytest.raises(limits.OverLimit, match="alice already uses 5 of a limit of 5"):
            ask(2, cpu=1)

    def test_capacities(self, tenants):
        ask(1, cpu=7)
        with pytest.raises(Refused, match=r"less than what is in use \(4\)"):
            tcc.set_capacity(name="north", by="test", cpu=3)
        with pytest.raises(Refused, match=r"less than what is in use or lent \(3\)"):
            tcc.set_capacity(name="default", by="test", cpu=2)
        tcc.set_capacity(name="north", by="test", cpu=6)
        assert (row("north").cpu_borrowed, row("default").cpu_lent) == (1, 1)
        tcc.set_capacity(name="north", by="test", cpu=9)
        assert not Loan.objects.exists()
        tcc.set_capacity(name="default", by="test", lends=False, cpu_borrow_limit=2)
        assert (row("default").lends, row("default").cpu_borrow_limit) == (False, 2)

    def test_the_policy_over_rest(self, tenants, as_staff, as_alice):
        ask(1, cpu=7)
        given = {"lends": False, "cpu_borrow_limit": 2.5, "gpu_borrow_limit": 1, "ram_borrow_limit": 512}
        answer = as_staff.call("put", "tenants/north", given).json()
        assert {name: answer[name] for name in given} == given
        assert (answer["cpu_borrowed"], answer["cpu_lent"], answer["source"]) == (3, 0, "discovered")
        assert as_alice.call("get", "tenants/default").json()["cpu_lent"] == 3
        assert as_staff.refused("put", "tenants/north", {"lends": 1}).startswith("lends:")
        assert as_staff.refused("put", "tenants/north", {"cpu_borrow_limit": -1}).startswith("cpu_borrow_limit:")
        assert as_staff.refused("put", "tenants/north", {"rom_borrow_limit": 1}).startswith("rom_borrow_limit:")

    @pytest.mark.parametrize(
        "damage",
        [
            "UPDATE tenant SET cpu_lent = 1 WHERE name = 'north'",  # all of it is in use
            "UPDATE tenant SET cpu_borrowed = cpu_borrowed + 1 WHERE name = 'north'",
            "UPDATE tenant SET cpu_inuse = cpu_inuse + 1 WHERE name = 'north'",
            "UPDATE tenant SET cpu_lent = 9 WHERE name = 'default'",
            "UPDATE tenant SET gpu_lent = -1 WHERE name = 'default'",
            "UPDATE tenant SET cpu = 5 WHERE name = 'north'",
            "UPDATE tenant_loan SET cpu = -1",
            "UPDATE tenant_loan SET cpu = 0",
            "UPDATE tenant_loan SET lender_id = borrower_id",
        ],
    )
    def test_the_database_itself_refuses(self, tenants, damage):
        ask(1, cpu=7)
        with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(damage)


def one_call(chance: random.Random, number: int) -> str:
    """Make a random call for few ids of three tenants; return which, and whether it was refused."""
    name = chance.choice(NAMES)
    verb = chance.choices(["borrow", "try", "end", "rest", "capacity", "policy"], [10, 4, 12, 2, 1, 1])[0]
    wish = {"cpu": chance.choice([0.5, 1, 2.5, 4]), "gpu": chance.choice([0, 0, 1, 2]), "ram": chance.randint(1, 3000)}
    others = [chance.randrange(1, 9)] if chance.random() < 0.2 else []
    try:
        if verb in ("borrow", "try"):
            ask(number, name, verb == "borrow", others, chance.choice(["alice", "bob"]), **wish)
        elif verb == "end":
            end(number, chance.choice([None, *others]))
        elif verb == "rest":
            tcc.try_(id=f"x{number}", applier="jm", request_type="request", tenant=name, cpu=0.5)
            tcc.cancel(id=f"x{number}", applier="jm")
        elif verb == "capacity":
            tcc.set_capacity(name=name, by="test", cpu=chance.randint(2, 9), ram=chance.randint(1000, 9000))
        else:
            most = chance.choice([0, 2, 6])
            policy = {"cpu_borrow_limit": most, "gpu_borrow_limit": most, "ram_borrow_limit": 1000 * most}
            tcc.set_capacity(name=name, by="test", lends=chance.random() < 0.8, **policy)
    except Refused:
        return f"{verb} refused"
    return verb


@pytest.mark.parametrize("seed", [0, *(later(seed) for seed in (1, 2))])
def test_any_order_of_calls_keeps_the_sums(tenants, seed):
    chance, done, borrowed = random.Random(seed), Counter(), 0
    for step in range(STEPS):
        done[one_call(chance, step // 12 + chance.randrange(6))] += 1
        check()
        borrowed += Loan.objects.exists()
    assert borrowed > STEPS / 10, done
    for request in ResourceRequest.objects.filter(state=State.TRIED, owner__gt=""):
        tcc.release(id=request.pk, applier="jm")
    check()
    assert not Loan.objects.exists()
    assert all(not getattr(tenant, f"{kind}_inuse") for tenant in Tenant.objects.all() for kind in KINDS)


@pytest.mark.usefixtures("transactional_db")
class TestAtOnce:
    def test_the_last_idle_core_is_lent_once(self, tenants):
        ask(1, "default", cpu=7)
        calls = [lambda number=number: ask(number, "north", closed=[tenants["south"].pk], cpu=5) for number in (2, 3)]
        calls += [lambda: ask(4, "south", closed=[tenants["north"].pk], cpu=5), lambda: ask(5, "default", False, cpu=1)]
        assert refusals(at_once(*calls)) >= 2
        check()
        assert sum(tenant.cpu_inuse for tenant in Tenant.objects.all()) >= 8

    def test_tenants_that_borrow_from_each_other_do_not_deadlock(self, tenants):
        before = deadlocks()
        Tenant.objects.filter(name="default").update(lends=False)
        for begun in range(100, 160, 10):
            borrow = [lambda n=begun: ask(n, "north", gpu=4), lambda n=begun + 1: ask(n, "south", cpu=6)]
            assert refusals(at_once(*borrow)) == 0
            assert (row("north").gpu_borrowed, row("south").cpu_borrowed) == (2, 2)
            calls = [lambda n=begun: end(n), lambda n=begun + 1: end(n)]
            calls += [lambda n=begun + 2: ask(n, "north", gpu=1, cpu=1), lambda n=begun + 3: ask(n, "south", cpu=1)]
            at_once(*calls)
            check()
            for number in range(begun, begun + 4):
                end(number)
        assert deadlocks() == before
        assert not Loan.objects.exists()

    def test_a_lender_that_turns_up_during_a_release(self, tenants, monkeypatch):
        """The loan was made after the locks of the lenders were chosen: the call begins again."""
        ask(1, "south", cpu=4)
        again = []
        original = lending.Ledger.__init__

        def late(self, rows, loans=(), pk=None):
            original(self, rows, loans, pk)
            if pk == tenants["south"].pk and self.loans and not again:
                again.append(pk)
                del self.tenants[tenants["default"].pk]  # as if it had not been locked

        ask(2, "south", cpu=2)
        monkeypatch.setattr(lending.Ledger, "__init__", late)
        end(2)
        assert again
        assert (row("south").cpu_inuse, row("south").cpu_borrowed) == (4, 0)

    @pytest.mark.long
    def test_a_storm(self, tenants, capsys):
        before, began, done, problems, guard = deadlocks(), time.monotonic(), Counter(), [], threading.Lock()
        looks = [0]

        def running() -> bool:
            lasted = time.monotonic() - began
            return (lasted < STORM_S or (looks[0] <= 10 and lasted < 12 * STORM_S)) and not problems

        def client(seed: int) -> None:
            chance, mine = random.Random(seed), Counter()
            try:
                while running():
                    number = int((time.monotonic() - began) * 20) + chance.randrange(8)
                    with transaction.atomic():
                        said = one_call(chance, number)
                        if chance.random() < 0.1:
                            transaction.set_rollback(True)
                            said = "died"
                    mine[said] += 1
            except Exception as problem:
                problems.append(f"{type(problem).__name__}: {problem}")
            finally:
                connection.close()
                with guard:
                    done.update(mine)

        def observer() -> None:
            try:
                while running():
                    check()
                    looks[0] += 1
            except Exception as problem:
                problems.append(f"observer: {type(problem).__name__}: {problem}")
            finally:
                connection.close()

        threads = [threading.Thread(target=client, args=(seed,)) for seed in range(CLIENTS)]
        threads.append(threading.Thread(target=observer))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not problems, problems[:3]
        check()
        assert deadlocks() == before
        with capsys.disabled():
            print(f"\nlending storm: {CLIENTS} clients, {sum(done.values())} calls, {looks[0]} looks, {dict(done)}")
        for verb in ("borrow", "borrow refused", "try", "end", "rest", "capacity", "policy", "died"):
            assert done[verb], f"the storm never saw {verb}"
        assert sum(Decimal(tenant.cpu_inuse) for tenant in Tenant.objects.all()) <= sum(
            tenant.cpu for tenant in Tenant.objects.all()
        )

"""Many clients at once on the real PostgreSQL: single races, and a storm whose invariants are read all the time.

The storm lasts MLP_STORM_S seconds (default 5) with MLP_STORM_CLIENTS clients (default 32), each with a connection.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from contextlib import nullcontext
from decimal import Decimal

import pytest
from django.db import connection, transaction

from kernel.errors import Refused
from resources import limits, reconcile, tcc
from resources.models import KINDS, ResourceRequest, State, Tenant

pytestmark = pytest.mark.usefixtures("transactional_db")

STORM_S = float(os.environ.get("MLP_STORM_S", "5"))
CLIENTS = int(os.environ.get("MLP_STORM_CLIENTS", "32"))
LIMIT = {"alice": Decimal(3), "bob": Decimal(2)}


def at_once(*calls) -> list:
    """Run the calls in threads that start together; return their results or exceptions, in order."""
    barrier = threading.Barrier(len(calls))
    results = [None] * len(calls)

    def run(index, call):
        try:
            connection.ensure_connection()
            barrier.wait()
            results[index] = call()
        except Exception as problem:
            results[index] = problem
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def refusals(results: list) -> int:
    unexpected = [result for result in results if isinstance(result, Exception) and not isinstance(result, Refused)]
    assert not unexpected, unexpected
    return sum(isinstance(result, Refused) for result in results)


def in_use(kind: str = "cpu"):
    tenant = Tenant.objects.get(name="default")
    assert tcc.allocated(tenant) == {kind: getattr(tenant, f"{kind}_inuse") for kind in KINDS}
    return getattr(tenant, f"{kind}_inuse")


def ask(id: str, kind: str = "request", owner: str = "", **amounts):
    return lambda: tcc.try_(id=id, applier="jm", request_type=kind, owner=owner, **amounts)


def settle(verb: str, id: str):
    return lambda: getattr(tcc, verb)(id=id, applier="jm")


class TestSingleRaces:
    def test_concurrent_tries_succeed_as_far_as_they_fit(self):
        ask("a", cpu=5)()
        assert refusals(at_once(*[ask(f"b{number}", cpu=1) for number in range(12)])) == 9
        assert in_use() == 8

    def test_concurrent_tries_of_one_id_count_once(self):
        assert refusals(at_once(*[ask("a", cpu=1) for _ in range(12)])) == 0
        assert in_use() == 1

    def test_a_concurrent_try_and_cancel_reserve_nothing(self):
        for number in range(10):
            id = f"a{number}"
            calls = [ask(id, cpu=1), settle("cancel", id), ask(id, cpu=1), settle("cancel", id)]
            assert refusals(at_once(*calls)) == 0
            assert ResourceRequest.objects.get(pk=id).state == State.CANCELLED
        assert in_use() == 0

    def test_concurrent_confirm_and_cancel_agree(self):
        for number in range(10):
            id = f"a{number}"
            ask(id, cpu=0.5)()
            assert refusals(at_once(*[settle(verb, id) for verb in ("confirm", "cancel") * 3])) == 0
        confirmed = ResourceRequest.objects.filter(state=State.CONFIRMED).count()
        assert ResourceRequest.objects.filter(state=State.CANCELLED).count() == 10 - confirmed
        assert in_use() == Decimal("0.5") * confirmed

    def test_concurrent_releases_count_once(self):
        ask("job:1", owner="alice", cpu=2)()
        settle("confirm", "job:1")()
        ask("a", cpu=1)()
        ask("r", "release", cpu=1)()
        calls = [settle("release", "job:1")] * 6 + [settle("confirm", "r")] * 6
        assert refusals(at_once(*calls)) == 0
        assert in_use() == 0

    def test_concurrent_earmarks_stay_within_the_use(self):
        ask("a", cpu=3)()
        assert refusals(at_once(*[ask(f"r{number}", "release", cpu=1) for number in range(9)])) == 6

    def test_a_smaller_capacity_and_a_try_never_both_succeed(self):
        for number in range(10):
            tcc.set_capacity(name="default", by="test", cpu=8)
            results = at_once(ask(f"a{number}", cpu=6), lambda: tcc.set_capacity(name="default", by="test", cpu=5))
            assert refusals(results) == 1
            settle("cancel", f"a{number}")()
            assert in_use() == 0

    def test_a_users_limit_holds_under_concurrent_tries(self, alice):
        limits.set_limit(tenant="default", user="alice", by="test", cpu=2)
        calls = [ask(f"job:{number}", owner="alice", cpu=0.5) for number in range(12)]
        results = at_once(*calls)
        assert refusals(results) == 8
        assert all(isinstance(result, limits.OverLimit) for result in results if isinstance(result, Refused))
        assert in_use() == 2


class TestSingleTry:
    """A try outside of a transaction, as REST makes it, gives the same result as one inside."""

    def test_refusals_are_the_same(self, default_tenant):
        ask("a", rom=1, cpu=7.5)()
        for amounts, words in (
            ({"rom": 2**63 - 1}, "rom:"),
            ({"cpu": 1}, "cpu: requested 1, but .* has 0.5 left"),
        ):
            for around in (transaction.atomic, nullcontext):
                with pytest.raises(Refused, match=words), around():
                    ask("b", **amounts)()
        with pytest.raises(Refused, match="tenant"):
            tcc.try_(id="b", applier="jm", request_type="request", tenant="none")
        with pytest.raises(Refused, match="applier"):
            tcc.try_(id="a", applier="dm", request_type="request")
        assert not ResourceRequest.objects.filter(pk="b").exists()
        assert (in_use(), in_use("rom")) == (Decimal("7.5"), 1)

    def test_the_row_is_complete(self):
        request = ask("it", gpu=1, cpu=0.5, ram=100, rom=7)()
        stored = ResourceRequest.objects.get()
        for field in ResourceRequest._meta.concrete_fields:
            assert getattr(request, field.attname) == getattr(stored, field.attname), field.name
        assert (stored.state, stored.tenant.name, stored.settled) == ("tried", "default", None)


class Storm:
    """Clients that make random calls for few ids of two tenants, and sometimes die before their commit."""

    def __init__(self):
        self.began = time.monotonic()
        self.done: Counter[str] = Counter()
        self.problems: list[str] = []
        self.looks = 0
        self.guard = threading.Lock()

    def running(self) -> bool:
        """Whether to go on: for the given time, and on a busy machine until there were enough observations."""
        lasted = time.monotonic() - self.began
        return (lasted < STORM_S or (self.looks <= 10 and lasted < 12 * STORM_S)) and not self.problems

    def client(self, seed: int) -> None:
        chance, done = random.Random(seed), Counter()
        try:
            while self.running():
                done[self.one_call(chance)] += 1
        except Exception as problem:
            self.problems.append(f"{type(problem).__name__}: {problem}")
        finally:
            connection.close()
            with self.guard:
                self.done += done

    def one_call(self, chance: random.Random) -> str:
        # the ids in play move on slowly, so that there are always fresh ones, late ones and contended ones
        number = int((time.monotonic() - self.began) * 40) + chance.randrange(8)
        owner = chance.choice(["alice", "bob", "carol"])
        inside = chance.random() < 0.5
        id = f"job:{number}" if inside else f"x{number}"
        verb = chance.choices(["try", "confirm", "cancel", "release", "capacity", "sweep"], [8, 6, 3, 5, 1, 1])[0]
        wish = {
            "cpu": chance.choice([0.1, 0.5, 1, 2.5]),
            "gpu": chance.choice([0, 0, 1]),
            "ram": chance.randint(1, 999),
        }
        tenant = chance.choice(["default", "default", "other"])
        try:
            if verb == "sweep":
                reconcile.sweep()
            elif chance.random() < 0.5:
                self.do(verb, id, inside, owner, tenant, wish, chance)
            else:
                with transaction.atomic():
                    self.do(verb, id, inside, owner, tenant, wish, chance)
                    if chance.random() < 0.1:
                        transaction.set_rollback(True)
                        return "died"
        except Refused:
            return f"{verb} refused"
        return verb

    @staticmethod
    def do(verb, id, inside, owner, tenant, wish, chance) -> None:
        if verb == "try":
            kind = "request" if inside or chance.random() < 0.6 else "release"
            tcc.try_(id=id, applier="jm", request_type=kind, tenant=tenant, owner=owner if inside else "", **wish)
        elif verb == "capacity":
            tcc.set_capacity(name=tenant, by="storm", cpu=chance.randint(3, 9), ram=chance.randint(2000, 9000))
        elif verb == "release" and not inside:
            tcc.confirm(id=id, applier="jm")
        else:
            settle(verb, id)()

    def observe(self) -> None:
        try:
            while self.running():
                self.poll()
                self.looks += 1
        except Exception as problem:
            self.problems.append(f"observer: {type(problem).__name__}: {problem}")
        finally:
            connection.close()

    @staticmethod
    def poll() -> None:
        """Read in one statement, hence one snapshot: the tenants' sums, the sums over their rows, the sums by owner."""
        live = "request_type = 'request' AND state IN ('tried', 'confirmed')"
        given = "request_type = 'release' AND state = 'confirmed'"
        columns = ", ".join(
            f"t.{kind}, t.{kind}_inuse, COALESCE(SUM(r.{kind}) FILTER (WHERE {live}), 0)"
            f" - COALESCE(SUM(r.{kind}) FILTER (WHERE {given}), 0)"
            for kind in KINDS
        )
        owned = ", ".join(f"COALESCE(SUM(r.cpu) FILTER (WHERE {live} AND owner = '{owner}'), 0)" for owner in LIMIT)
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT t.name, {columns}, {owned} FROM tenant t LEFT JOIN resource_request r ON r.tenant_id = t.id"
                " GROUP BY t.id"
            )
            for name, *values in cursor.fetchall():
                for index, kind in enumerate(KINDS):
                    capacity, used, by_rows = values[3 * index : 3 * index + 3]
                    assert 0 <= used <= capacity, f"{name}: {kind} {used} of {capacity}"
                    assert used == by_rows, f"{name}: {kind} {used} in use, {by_rows} by the rows"
                if name == "default":
                    for most, held in zip(LIMIT.values(), values[-len(LIMIT) :], strict=True):
                        assert held <= most


def deadlocks() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return cursor.fetchone()[0]


@pytest.mark.long
def test_a_storm_keeps_the_accounting_consistent(settings, make_user, capsys):
    settings.TRY_TIMEOUT_S = 0.2
    Tenant.objects.create(name="other", cpu=6, gpu=2, ram=6000)
    for user, most in LIMIT.items():
        make_user(user)
        limits.set_limit(tenant="default", user=user, by="test", cpu=most)
    before, storm = deadlocks(), Storm()
    threads = [threading.Thread(target=storm.client, args=(seed,)) for seed in range(CLIENTS)]
    threads.append(threading.Thread(target=storm.observe))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not storm.problems, storm.problems[:3]
    storm.poll()
    assert deadlocks() == before
    calls = sum(storm.done.values())
    with capsys.disabled():
        print(f"\nstorm: {CLIENTS} clients, {STORM_S:g} s, {calls} calls, {storm.looks} looks, {dict(storm.done)}")
    for verb in ("try", "try refused", "confirm", "cancel", "release", "capacity", "sweep", "died"):
        assert storm.done[verb], f"the storm never saw {verb}"
    assert storm.looks > 10

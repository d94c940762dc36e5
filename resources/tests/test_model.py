"""Try-confirm-cancel against a plain Python reference, in any order, repeated, late, with crashes between statements.

Hypothesis draws the calls and where each one crashes, and shortens what it finds. After every step the tables must say
what the reference says. `MLP_MODEL_EXAMPLES` runs more of it.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from decimal import Decimal

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kernel.errors import Refused
from mlp.tests.tiers import later
from resources import limits, tcc
from resources.models import KINDS, ResourceRequest, Tenant

from .reference import OK, REFUSED, Reference

EXAMPLES = int(os.environ.get("MLP_MODEL_EXAMPLES", "100"))
FEW = 4
CAPACITY = {"gpu": Decimal(3), "cpu": Decimal(8), "ram": Decimal(4000), "rom": Decimal(100)}
LIMITS = {("default", "alice"): {"cpu": Decimal(3), "gpu": Decimal(1)}, ("default", "bob"): {"cpu": Decimal(1)}}
CRASHED = "crashed"

outside = st.sampled_from(["a", "b", "c", "d"])
inside = st.sampled_from(["job:1", "job:2", "job:3"])
appliers = st.sampled_from(["jm", "jm", "jm", "dm"])
tenants = st.sampled_from(["default", "default", "other"])
cores = st.sampled_from([0.1, 0.3, 1, 2.5, 1 / 3, 4])
wishes = st.one_of(
    st.builds(lambda cpu: {"cpu": cpu}, cores),
    st.fixed_dictionaries(
        {}, optional={"cpu": cores, "gpu": st.integers(0, 3), "ram": st.integers(100, 3000), "rom": st.integers(0, 120)}
    ),
)
# where the call dies: before its n-th statement, or (inside a transaction of its caller) before the commit
crashes = st.sampled_from([None] * 12 + list(range(8)))


class Crash(Exception):
    pass


class Countdown:
    """Lets `left` statements pass, then raises before the next one."""

    def __init__(self, left: int):
        self.left = left

    def __call__(self, execute, sql, params, many, context):
        if self.left == 0:
            raise Crash
        self.left -= 1
        return execute(sql, params, many, context)


class Protocol(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        ResourceRequest.objects.all().delete()
        nothing = {f"{kind}_inuse": 0 for kind in KINDS}
        for name in ("default", "other"):
            Tenant.objects.update_or_create(name=name, defaults={**CAPACITY, **nothing})
        self.reference = Reference({"default": dict(CAPACITY), "other": dict(CAPACITY)}, LIMITS)

    def act(self, call, expect, crash, nested) -> None:
        """Make the call in the database and in the reference, unless it crashes: then in neither."""
        outcome = OK
        try:
            with ExitStack() as around:
                if nested:
                    around.enter_context(transaction.atomic())
                if crash is not None:
                    around.enter_context(connection.execute_wrapper(Countdown(crash)))
                call()
                if crash is not None and nested:
                    raise Crash
        except Refused:
            outcome = REFUSED
        except Crash:
            outcome = CRASHED
        if outcome != CRASHED:
            assert outcome == expect()

    @rule(
        id=outside,
        applier=appliers,
        kind=st.sampled_from(["request", "request", "release"]),
        tenant=tenants,
        wish=wishes,
        crash=crashes,
        nested=st.booleans(),
    )
    def try_from_outside(self, id, applier, kind, tenant, wish, crash, nested):
        self.act(
            lambda: tcc.try_(id=id, applier=applier, request_type=kind, tenant=tenant, **wish),
            lambda: self.reference.try_(id, applier, kind, tenant, "", tcc.amounts(**wish)),
            crash,
            nested,
        )

    @rule(
        id=inside,
        owner=st.sampled_from(["alice", "bob"]),
        tenant=tenants,
        wish=wishes,
        crash=crashes,
        nested=st.booleans(),
    )
    def try_for_an_object(self, id, owner, tenant, wish, crash, nested):
        self.act(
            lambda: tcc.try_(id=id, applier="jm", request_type="request", tenant=tenant, owner=owner, **wish),
            lambda: self.reference.try_(id, "jm", "request", tenant, owner, tcc.amounts(**wish)),
            crash,
            nested,
        )

    @rule(
        verb=st.sampled_from(["confirm", "cancel"]),
        id=outside | inside,
        applier=appliers,
        crash=crashes,
        nested=st.booleans(),
    )
    def settle(self, verb, id, applier, crash, nested):
        self.act(
            lambda: getattr(tcc, verb)(id=id, applier=applier),
            lambda: getattr(self.reference, verb)(id, applier),
            crash,
            nested,
        )

    @rule(id=inside, crash=crashes, nested=st.booleans())
    def end_of_an_object(self, id, crash, nested):
        self.act(lambda: tcc.release(id=id, applier="jm"), lambda: self.reference.release(id, "jm"), crash, nested)

    @rule(tenant=tenants, cpu=st.integers(0, 10), crash=crashes)
    def set_capacity(self, tenant, cpu, crash):
        self.act(
            lambda: tcc.set_capacity(name=tenant, by="test", cpu=cpu),
            lambda: self.reference.set_capacity(tenant, {"cpu": Decimal(cpu)}),
            crash,
            False,
        )

    @invariant()
    def the_tables_say_what_the_reference_says(self):
        for tenant in Tenant.objects.all():
            expected = self.reference.in_use(tenant.name)
            assert {kind: getattr(tenant, f"{kind}_inuse") for kind in KINDS} == expected
            assert {kind: getattr(tenant, kind) for kind in KINDS} == self.reference.capacity[tenant.name]
            assert all(0 <= expected[kind] <= getattr(tenant, kind) for kind in KINDS)
            assert tcc.allocated(tenant) == expected
        rows = {row.pk: row for row in ResourceRequest.objects.select_related("tenant")}
        assert set(rows) == set(self.reference.rows)
        for id, wanted in self.reference.rows.items():
            row = rows[id]
            tenant = row.tenant.name if row.tenant else None
            assert (row.applier, row.state, tenant, row.owner) == (
                wanted.applier,
                wanted.state,
                wanted.tenant,
                wanted.owner,
            )
            assert (row.request_type, row.amounts()) == (wanted.kind, wanted.amounts)


@pytest.mark.usefixtures("transactional_db")
@pytest.mark.parametrize("examples", [FEW, later(EXAMPLES)])
def test_the_protocol_matches_the_reference(make_user, examples):
    Tenant.objects.create(name="other")
    limits.set_limit(tenant="default", user="*", by="test", cpu=1)
    limits.set_limit(tenant="default", user=make_user("alice").username, by="test", cpu=3, gpu=1)
    run_state_machine_as_test(
        Protocol,
        settings=settings(
            max_examples=examples,
            stateful_step_count=50,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

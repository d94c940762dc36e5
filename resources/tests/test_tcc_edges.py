"""Edge cases of try-confirm-cancel: settlements in any order, large numbers, ids of others, tombstones."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from kernel.errors import Refused
from resources import inventory, limits, reconcile, tcc, units
from resources.models import ResourceRequest, State, Tenant, is_platform_id

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("default_tenant")]

BIG = 2**63 - 1


def ask(id: str, kind: str = "request", **amounts):
    owner = "alice" if is_platform_id(id) else ""
    return tcc.try_(id=id, applier="jm", request_type=kind, owner=owner, **amounts)


def settle(verb: str, id: str) -> None:
    getattr(tcc, verb)(id=id, applier="jm")


def state(id: str) -> str:
    return ResourceRequest.objects.get(pk=id).state


def in_use(kind: str = "cpu"):
    tenant = Tenant.objects.get(name="default")
    assert tcc.allocated(tenant) == {kind: getattr(tenant, f"{kind}_inuse") for kind in tcc.KINDS}
    return getattr(tenant, f"{kind}_inuse")


class TestSettlementOrder:
    def test_a_release_cannot_repeat_a_cancel(self):
        ask("a", cpu=4)
        ask("r", "release", cpu=3)
        settle("cancel", "a")
        with pytest.raises(Refused, match=r"^cpu: cannot release 3: 0 is in use$"):
            settle("confirm", "r")
        assert (state("r"), in_use()) == ("tried", 0)
        settle("cancel", "r")
        assert (state("r"), in_use()) == ("cancelled", 0)

    def test_a_cancel_cannot_repeat_a_release(self):
        ask("a", cpu=4)
        ask("r", "release", cpu=3)
        settle("confirm", "r")
        with pytest.raises(Refused, match=r"^cpu: cannot release 4: 1 is in use$"):
            settle("cancel", "a")
        assert (state("a"), in_use()) == ("tried", 1)

    def test_releases_over_rest_never_affect_the_platforms_objects(self):
        ask("job:1", cpu=5)
        ask("a", cpu=2)
        with pytest.raises(Refused, match="2 is in use"):
            ask("r", "release", cpu=3)
        ask("r", "release", cpu=2)
        settle("cancel", "a")
        with pytest.raises(Refused, match="0 is in use"):
            settle("confirm", "r")
        settle("release", "job:1")
        assert in_use() == 0

    def test_a_refused_try_leaves_no_trace_and_may_be_repeated(self):
        ask("a", cpu=8)
        with pytest.raises(Refused, match="0 left"):
            ask("b", cpu=1)
        assert not ResourceRequest.objects.filter(pk="b").exists()
        settle("cancel", "a")
        ask("b", cpu=1)
        assert in_use() == 1

    def test_a_tombstone_has_an_applier_too(self):
        settle("cancel", "a")
        with pytest.raises(Refused, match="belongs to jm"):
            tcc.try_(id="a", applier="dm", request_type="request", cpu=1)
        assert ask("a", cpu=1).state == State.CANCELLED
        assert in_use() == 0


class TestRelease:
    """A release as the platform's managers make it: for an object that reserved, confirmed and has ended."""

    def test_it_releases_tried_and_confirmed_requests(self):
        ask("job:1", cpu=1)
        settle("release", "job:1")
        assert (state("job:1"), in_use()) == ("cancelled", 0)
        ask("job:2", cpu=1, ram=300)
        settle("confirm", "job:2")
        for _ in range(2):
            settle("release", "job:2")
        assert (state("job:2"), in_use(), in_use("ram")) == ("released", 0, 0)

    def test_nothing_changes_after_it(self):
        ask("job:1", cpu=1)
        settle("confirm", "job:1")
        settle("release", "job:1")
        ask("job:1", cpu=1)
        settle("confirm", "job:1")
        settle("cancel", "job:1")
        settle("release", "job:9")
        assert (state("job:1"), in_use()) == ("released", 0)

    def test_another_applier_is_refused(self):
        ask("job:1", cpu=1)
        with pytest.raises(Refused, match="belongs to jm"):
            tcc.release(id="job:1", applier="dm")

    def test_only_platform_ids_have_an_owner(self):
        for id, owner in (("job:1", ""), ("a", "alice"), ("aiops:x", "alice")):
            with pytest.raises(ValueError):
                tcc.try_(id=id, applier="jm", request_type="request", owner=owner)
        tcc.try_(id=f"aiops:{'0' * 36}", applier="jm", request_type="request", owner="it's; DROP TABLE tenant --")
        assert ResourceRequest.objects.get().owner == "it's; DROP TABLE tenant --"


class TestResize:
    """An object holds other amounts than before: a dataset that gets a version, a run's artifacts."""

    @staticmethod
    def resize(**asked) -> None:
        tenant = Tenant.objects.get(name="default")
        with transaction.atomic():
            tcc.resize(id="dataset:1", applier="jm", tenant=tenant.pk, owner="alice", **asked)

    def test_it_holds_what_was_asked_last(self):
        for rom, cpu in ((300, 1), (700, 0), (200, 2)):
            self.resize(rom=rom, cpu=cpu)
            assert (in_use("rom"), in_use("cpu")) == (rom, cpu)
        row = ResourceRequest.objects.get(pk="dataset:1")
        assert (row.state, row.owner, row.rom, row.cpu) == ("confirmed", "alice", 200, 2)

    def test_more_than_is_left_is_refused_and_changes_nothing(self):
        self.resize(rom=300)
        left = Tenant.objects.get(name="default").rom - 300
        with pytest.raises(Refused, match=r"^rom: requested "):
            self.resize(rom=300 + left + 1)
        assert in_use("rom") == 300
        self.resize(rom=300 + left)
        assert in_use("rom") == 300 + left

    def test_more_than_the_owners_limit_is_refused(self, alice):
        limits.set_limit(tenant="default", user=alice.username, by="test", rom=500)
        self.resize(rom=500)
        with pytest.raises(limits.OverLimit):
            self.resize(rom=501)
        assert in_use("rom") == 500


class TestReservedIds:
    @pytest.mark.parametrize("id", ["job:1", "dataset:77", "model:3", "app:4", "aiops:" + "0a-" * 12])
    @pytest.mark.parametrize("verb", ["try", "confirm", "cancel"])
    def test_ids_of_the_platforms_objects_are_refused_over_rest(self, as_staff, id, verb):
        body = {"id": id, "applier": "jm"} | ({"request_type": "request"} if verb == "try" else {})
        assert as_staff.refused("put", f"resource_request:{verb}", body).startswith(
            "id: is reserved for an object of the platform"
        )
        assert not ResourceRequest.objects.exists()

    @pytest.mark.parametrize("id", ["job", "job:", "job:x", "jobs:1", "a:job:1", "x" * 64, "A.b_c:d-9"])
    def test_every_other_id_is_accepted_over_rest(self, as_staff, id):
        body = {"id": id, "applier": "jm", "request_type": "request"}
        assert as_staff.call("put", "resource_request:try", body).status_code == 200

    def test_users_may_not_call(self, as_alice):
        for verb in ("try", "confirm", "cancel"):
            as_alice.refused("put", f"resource_request:{verb}", {"id": "a", "applier": "jm"})


class TestTenants:
    def test_the_id_alone_is_the_key(self):
        Tenant.objects.create(name="other", cpu=8)
        ask("a", cpu=1)
        again = tcc.try_(id="a", applier="jm", request_type="release", tenant="other", cpu=5)
        assert (again.tenant.name, again.request_type, in_use()) == ("default", "request", 1)
        assert Tenant.objects.get(name="other").cpu_inuse == 0

    def test_a_repeated_try_is_ok_whatever_its_amounts(self, as_staff):
        ask("a", cpu=1)
        body = {"id": "a", "applier": "jm", "request_type": "request", "tenant": "none"}
        assert as_staff.call("put", "resource_request:try", body).status_code == 200

    def test_an_empty_change_of_capacity_changes_nothing(self, as_staff):
        assert as_staff.call("put", "tenants/default", {}).json()["source"] == "discovered"
        assert as_staff.call("put", "tenants/default", {"cpu": 5}).json()["source"] == "set"
        as_staff.refused("put", "tenants/default", {"cpu": 5, "cpu_inuse": 1})

    def test_a_discovered_capacity_follows_the_machine_but_not_below_the_use(self, monkeypatch):
        ask("a", cpu=4, ram=1000)
        monkeypatch.setattr(inventory, "cpus", lambda: Decimal(2))
        monkeypatch.setattr(inventory, "ram_mib", lambda: 5000)
        monkeypatch.setattr(inventory, "gpus", lambda: 1)
        tenant = inventory.prepare_default_tenant()
        assert (tenant.cpu, tenant.ram, tenant.gpu, tenant.rom) == (4, 5000, 1, 10 << 30)
        tcc.set_capacity(name="default", by="test", cpu=7)
        assert inventory.prepare_default_tenant().cpu == 7


class TestNumbers:
    def test_the_largest_number_is_refused_not_a_fault(self, as_staff):
        ask("a", rom=1)
        for request_type in ("request", "release"):
            body = {"id": "b", "applier": "jm", "request_type": request_type, "rom": BIG}
            assert as_staff.refused("put", "resource_request:try", body).startswith("rom:")
        tcc.set_capacity(name="default", by="test", rom=BIG)
        ask("c", rom=BIG - 1)
        assert in_use("rom") == BIG

    def test_cpu_is_rounded_to_a_millionth(self):
        for id, cpu in (("a", 0.1 + 0.2), ("b", 0.1), ("c", 1 / 3), ("d", 0.1234567)):
            ask(id, cpu=cpu)
        assert in_use() == Decimal("0.856790")
        ask("r", "release", cpu=0.3)
        settle("confirm", "r")
        assert in_use() == Decimal("0.556790")

    def test_tenths_add_up(self):
        tcc.set_capacity(name="default", by="test", cpu=1)
        for number in range(10):
            ask(f"a{number}", cpu=0.1)
        assert in_use() == 1
        with pytest.raises(Refused, match=r"cpu: requested 0\.1, but tenant default has 0 left"):
            ask("b", cpu=0.1)

    @pytest.mark.parametrize(
        ("kind", "value"), [("cpu", -1), ("cpu", float("nan")), ("cpu", 1e8), ("gpu", -1), ("rom", BIG + 1)]
    )
    def test_values_that_no_column_can_store_are_refused(self, kind, value):
        with pytest.raises(Refused, match=f"^{kind}: must be"):
            units.amounts(**{kind: value})

    @pytest.mark.parametrize(
        "wrong", [{"cpu_inuse": 8.1}, {"cpu_inuse": -0.1}, {"gpu_inuse": 3}, {"ram": -1}, {"rom_inuse": 11 << 30}]
    )
    def test_the_database_refuses_an_invalid_sum(self, wrong):
        with pytest.raises(IntegrityError), transaction.atomic():
            Tenant.objects.filter(name="default").update(**wrong)

    def test_a_request_for_nothing_is_accepted(self):
        ask("a")
        settle("confirm", "a")
        ask("r", "release")
        settle("confirm", "r")
        assert (state("a"), state("r"), in_use()) == ("confirmed", "confirmed", 0)


class TestSweeper:
    def make_old(self, *ids: str) -> None:
        ResourceRequest.objects.filter(pk__in=ids).update(created=timezone.now() - timedelta(days=2))

    def test_only_old_tries_from_rest_are_cancelled(self):
        for id in ("old", "new", "job:1", "kept"):
            ask(id, cpu=1)
        settle("confirm", "kept")
        self.make_old("old", "job:1", "kept")
        reconcile.run()
        states = {id: state(id) for id in ("old", "new", "job:1", "kept")}
        assert states == {"old": "cancelled", "new": "tried", "job:1": "tried", "kept": "confirmed"}
        assert in_use() == 3

    def test_a_try_that_cannot_be_cancelled_any_more_is_confirmed(self):
        ask("stuck", cpu=4)
        ask("r", "release", cpu=4)
        settle("confirm", "r")
        ask("open", "release")
        self.make_old("stuck", "open")
        reconcile.run()
        assert (state("stuck"), state("open"), in_use()) == ("confirmed", "cancelled", 0)

"""Members of tenants: who may do what by their role, over REST and on pages."""

from __future__ import annotations

import pytest
from django.db import transaction
from django.test import Client

from accounts.models import Membership, Notice, User
from accounts.tenancy import members
from apps.models import Application
from conftest import Api, move
from datasets import lifecycle as datasets
from datasets.models import Dataset
from jobs.models import Job
from kernel.errors import Refused
from kernel.models import StateChange
from kernel.tests.row_locks import blocked, in_thread
from mlp.operators.tests.admin_world import put, put_schedule, put_sweep
from mlp.tests.page_world import visitor
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few
from resources.models import ResourceRequest, Tenant

pytestmark = pytest.mark.django_db
TEAM = "tenants/research/members"


@pytest.fixture
def research(default_tenant) -> Tenant:
    return Tenant.objects.create(name="research", cpu=4, gpu=1, ram=8000, rom=1000)


@pytest.fixture
def lead(make_user, research) -> Api:
    """The token's client of an administrator of research, who is in no other tenant."""
    user = make_user("lena")
    move(user, research)
    members.put(tenant="research", user="lena", role="admin", by="test")
    return Api(token_of(user))


def token_of(user) -> str:
    client = Client(headers={"accept": "application/json"})
    client.force_login(user)
    return client.get(f"/api/v1/users/{user.username}/token").json()


def roles(user) -> dict[str, str]:
    return {row.tenant.name: row.role for row in Membership.objects.filter(user=user).select_related("tenant")}


def test_a_new_user_is_a_member_of_the_default_tenant(as_alice):
    [only] = as_alice.call("get", "users/alice/tenants").json()
    assert (only["tenant"], only["role"], only["default"], only["by_groups"]) == ("default", "member", True, False)


def test_its_administrator_adds_changes_and_removes_members(lead, alice, as_alice):
    added = lead.call("put", f"{TEAM}/alice", {"role": "viewer"})
    assert (added.status_code, added.json()["role"]) == (200, "viewer")
    assert lead.call("put", f"{TEAM}/alice", {"role": "member"}).json()["role"] == "member"
    assert {row["user"] for row in lead.call("get", TEAM).json()} == {"lena", "alice"}
    assert roles(alice) == {"default": "member", "research": "member"}
    notices = Notice.objects.filter(user=alice, kind="tenant").order_by("pk")
    assert [notice.reason for notice in notices] == [
        "lena made you a viewer of the tenant research.", "lena made you a member of the tenant research.",
    ]  # fmt: skip
    assert lead.call("delete", f"{TEAM}/alice").status_code == 200
    assert roles(alice) == {"default": "member"}
    changes = StateChange.objects.filter(kind="membership", owner="alice").order_by("pk")
    assert [(row.source, row.target, row.by) for row in changes] == [
        ("none", "viewer", "lena"), ("viewer", "member", "lena"), ("member", "none", "lena"),
    ]  # fmt: skip


@pytest.mark.parametrize("role", few(["viewer", "member"], 1))
def test_others_in_it_see_their_administrators_and_change_nobody(lead, alice, as_alice, bob, role):
    lead.call("put", f"{TEAM}/alice", {"role": role})
    lead.call("put", f"{TEAM}/bob", {"role": "viewer"})
    assert {row["user"] for row in as_alice.call("get", TEAM).json()} == {"lena", "alice"}
    for method, path, body in (
        ("put", f"{TEAM}/alice", {"role": "admin"}),
        ("put", f"{TEAM}/bob", {"role": "member"}),
        ("delete", f"{TEAM}/bob", None),
        ("put", "tenants/research/limits/bob", {"cpu": 1}),
    ):
        assert "administrators can" in as_alice.refused(method, path, body)
    assert as_alice.call("delete", f"{TEAM}/alice").status_code == 200, "everybody may leave"


def test_for_those_outside_a_tenant_does_not_exist(lead, as_alice):
    for method, path, body in (
        ("get", "tenants/{}", None),
        ("get", "tenants/{}/members", None),
        ("put", "tenants/{}/members/alice", {"role": "admin"}),
        ("delete", "tenants/{}/members/lena", None),
        ("get", "tenants/{}/usage", None),
        ("get", "tenants/{}/work", None),
    ):
        theirs, nobodys = (as_alice.refused(method, path.format(name), body) for name in ("research", "none"))
        assert theirs == nobodys == "tenant: no such tenant"


def test_the_administrator_of_one_tenant_is_nobody_in_another(lead, alice):
    assert lead.refused("put", "tenants/default/members/alice", {"role": "viewer"}) == "tenant: no such tenant"
    assert lead.refused("get", "tenants/default/work") == "tenant: no such tenant"
    assert "administrators can create tenants" in lead.refused("post", "tenants", {"name": "mine"})
    assert "administrators can change the capacity" in lead.refused("put", "tenants/research", {"cpu": 400})


def test_bad_input_is_named(lead, as_staff, alice):
    assert lead.refused("put", f"{TEAM}/alice", {"role": "king"}).startswith("role: ")
    assert lead.refused("put", f"{TEAM}/nobody", {"role": "member"}) == "user: no active user has this name"
    assert lead.refused("delete", f"{TEAM}/alice") == "member: no such member"
    assert as_staff.refused("put", "tenants/nowhere/members/alice", {"role": "member"}) == "tenant: no such tenant"
    assert as_staff.refused("delete", "tenants/default/members/alice") == (
        "user: this is the only tenant of alice; add them to another one first, or deactivate the account"
    )


def test_what_is_submitted_uses_the_tenant_that_is_named(research, alice, as_alice, home):
    body = {"name": "one", "size": 10, "tenant": "research"}
    assert as_alice.refused("post", "users/alice/datasets", body) == "tenant: no such tenant"
    members.put(tenant="research", user="alice", role="viewer", by="test")
    assert "viewer of the tenant research" in as_alice.refused("post", "users/alice/datasets", body)
    members.put(tenant="research", user="alice", role="member", by="test")
    assert as_alice.call("post", "users/alice/datasets", body).json()["tenant"] == "research"
    job = {"name": "fit", "entry": "train.py", "tenant": "research", "cpu": 3}
    assert as_alice.call("post", "users/alice/jobs", job).json()["tenant"] == "research"
    assert as_alice.call("post", "users/alice/datasets", {"name": "two", "size": 1}).json()["tenant"] == "default"
    requests = sorted(ResourceRequest.objects.values_list("applier", "tenant__name"))
    assert requests == [("dm", "default"), ("dm", "research"), ("jm", "research")]
    research.refresh_from_db()
    assert (research.cpu_inuse, research.rom_inuse) == (3, 10)


def test_the_default_tenant_is_chosen_by_the_user(research, alice, as_alice, bob):
    members.put(tenant="research", user="alice", role="member", by="test")
    chosen = as_alice.call("put", "users/alice/tenants/research:default")
    assert (chosen.status_code, chosen.json()["default"]) == (200, True)
    assert as_alice.call("post", "users/alice/datasets", {"name": "two", "size": 1}).json()["tenant"] == "research"
    assert as_alice.refused("put", "users/alice/tenants/none:default") == "tenant: no such tenant"
    members.remove(tenant="research", user="alice", by="test")
    assert as_alice.call("post", "users/alice/datasets", {"name": "three", "size": 1}).json()["tenant"] == "default"


def test_who_is_taken_out_submits_nothing_more_and_keeps_what_is_theirs(research, lead, alice, as_alice, home):
    lead.call("put", f"{TEAM}/alice", {"role": "member"})
    as_alice.call("post", "users/alice/jobs", {"name": "fit", "entry": "train.py", "tenant": "research"})
    lead.call("delete", f"{TEAM}/alice")
    body = {"name": "more", "entry": "train.py", "tenant": "research"}
    assert as_alice.refused("post", "users/alice/jobs", body) == "tenant: no such tenant"
    assert as_alice.call("get", "users/alice/jobs/fit").json()["state"] == "creating"
    [item] = lead.call("get", "tenants/research/work").json()
    assert (item["kind"], item["user"], item["name"]) == ("job", "alice", "fit")


@pytest.mark.django_db(transaction=True)
def test_a_submission_at_the_moment_of_the_removal_comes_before_it_or_is_refused(research, alice, tasks, home):
    members.put(tenant="research", user="alice", role="member", by="test")
    with transaction.atomic():
        members.remove(tenant="research", user="alice", by="test")
        late = in_thread(
            lambda: datasets.create_dataset(user=alice, name="late", size=1, tenant="research", by="alice")
        )
        assert blocked(1)
    with pytest.raises(Refused, match="no such tenant"):
        late.result(LIMIT_S)
    assert not Dataset.objects.exists()


@pytest.mark.long
def test_who_is_taken_out_starts_no_application_again(research, lead, alice, as_alice):
    lead.call("put", f"{TEAM}/alice", {"role": "member"})
    row = put(Application, alice, "calc", "error")
    Application.objects.filter(pk=row.pk).update(tenant=research, run_name="")
    lead.call("delete", f"{TEAM}/alice")
    assert as_alice.refused("put", "users/alice/apps/calc:start") == "tenant: no such tenant"
    lead.call("put", f"{TEAM}/alice", {"role": "viewer"})
    assert "viewer of the tenant research" in as_alice.refused("put", "users/alice/apps/calc:start")
    lead.call("put", f"{TEAM}/alice", {"role": "member"})
    assert as_alice.call("put", "users/alice/apps/calc:start").status_code == 200


class TestWork:
    @pytest.fixture
    def fit(self, research, alice) -> Job:
        members.put(tenant="research", user="alice", role="member", by="test")
        job = put(Job, alice, "fit", "running")
        Job.objects.filter(pk=job.pk).update(tenant=research)
        return job

    def test_its_administrator_sees_and_ends_members_work(self, lead, fit, alice):
        assert [item["name"] for item in lead.call("get", "tenants/research/work").json()] == ["fit"]
        assert lead.call("get", "tenants/research/work?of=bob").json() == []
        assert lead.call("get", "users/alice/jobs/fit").json()["state"] == "running"
        ended = lead.call("put", "tenants/research/work:end", {"kind": "job", "user": "alice", "name": "fit"})
        assert ended.status_code == 200
        fit.refresh_from_db()
        assert (fit.state, fit.reason) == ("error", "cancelled")
        assert StateChange.objects.filter(kind="job", transition="fail").get().by == "lena"
        assert Notice.objects.filter(user=alice, kind="job", name="fit").exists()

    def test_and_nothing_of_another_tenant(self, lead, fit, alice):
        put(Job, alice, "other", "running")
        assert lead.refused("get", "users/alice/jobs/other") == "job: no such job"
        assert "research" in visitor(alice).get("/jobs/fit").content.decode()
        body = {"kind": "job", "user": "alice", "name": "other"}
        assert lead.refused("put", "tenants/research/work:end", body) == "job: no such job"

    def test_reading_is_all_else_that_they_may(self, lead, fit):
        for method, path in (("delete", "users/alice/jobs/fit"), ("put", "users/alice/jobs/fit:cancel")):
            assert lead.call(method, path).status_code in (403, 404), path
        assert Job.objects.get(pk=fit.pk).state == "running"

    def test_members_do_not_see_each_others(self, lead, fit, as_bob):
        lead.call("put", f"{TEAM}/bob", {"role": "member"})
        assert "administrators" in as_bob.refused("get", "tenants/research/work")
        assert as_bob.refused("get", "users/alice/jobs/fit") == "job: no such job"

    @pytest.mark.long
    def test_uploads_applications_and_automation_are_ended_too(self, lead, alice, research):
        members.put(tenant="research", user="alice", role="member", by="test")
        members.make_default(user=alice, tenant="research", by="alice")
        alice.refresh_from_db()
        put(Dataset, alice, "coming", "creating")
        put(Application, alice, "calc", "ready")
        put_sweep(alice, put(Job, alice, "done", "finished"))
        put_schedule(alice)
        work = {(item["kind"], item["name"]) for item in lead.call("get", "tenants/research/work").json()}
        assert work == {("dataset", "coming"), ("application", "calc"), ("sweep", "tune"), ("schedule", "night")}
        for kind, name in work:
            body = {"kind": kind, "user": "alice", "name": name}
            assert lead.call("put", "tenants/research/work:end", body).status_code == 200, kind
        assert lead.call("get", "tenants/research/work").json() == []


def test_limits_are_set_by_the_tenants_administrator(lead, alice, as_alice):
    lead.call("put", f"{TEAM}/alice", {"role": "member"})
    assert lead.call("put", "tenants/research/limits/alice", {"rom": 5}).json()["rom"] == 5
    body = {"name": "one", "size": 6, "tenant": "research"}
    assert "rom: requested 6 bytes" in as_alice.refused("post", "users/alice/datasets", body)
    assert as_alice.call("get", "tenants/research/limits").json()[0]["rom"] == 5


def test_what_is_shared_with_a_tenant_is_read_by_all_in_it(lead, research, alice, as_alice, bob, as_bob):
    put(Job, alice, "fit", "running")
    for name, role in (("alice", "member"), ("bob", "viewer")):
        lead.call("put", f"{TEAM}/{name}", {"role": role})
    body = {"kind": "job", "name": "fit", "audience": "tenant", "tenant": "research"}
    assert as_alice.refused("post", "users/alice/shares", {**body, "tenant": "none"}) == "tenant: no such tenant"
    assert as_alice.call("post", "users/alice/shares", body).json()["shared_with"] == "research"
    assert as_bob.call("get", "users/alice/jobs/fit").status_code == 200
    lead.call("delete", f"{TEAM}/bob")
    assert as_bob.refused("get", "users/alice/jobs/fit") == "job: no such job"
    lead.call("put", f"{TEAM}/bob", {"role": "viewer"})
    lead.call("delete", f"{TEAM}/alice")
    assert as_bob.refused("get", "users/alice/jobs/fit") == "job: no such job", "its owner has left"


class TestPages:
    @pytest.fixture
    def lena(self, lead):
        return visitor(User.objects.get(username="lena"))

    @pytest.fixture
    def alices(self, alice):
        return visitor(alice)

    def test_the_administrator_adds_a_member_and_sets_a_limit(self, lena, alice):
        address = "/tenants/in/research"
        wrong = lena.post(address, {"user": "nobody", "role": "member"})
        assert "no active user has this name" in wrong.content.decode()
        assert lena.post(address, {"user": "alice", "role": "member"}).status_code == 302
        assert roles(alice)["research"] == "member"
        assert lena.post(address, {"action": "limit", "user": "alice", "cpu": "1.5"}).status_code == 302
        assert "1.5" in lena.get(address).content.decode()
        assert lena.post(address, {"action": "limit", "user": "alice"}).status_code == 302
        assert lena.post(address + "/remove", {"user": "alice"}).status_code == 302
        assert "research" not in roles(alice)

    def test_others_get_no_forms_and_no_effect(self, lena, alice, alices):
        assert alices.get("/tenants/in/research").status_code == 404
        lena.post("/tenants/in/research", {"user": "alice", "role": "viewer"})
        text = alices.get("/tenants/in/research").content.decode()
        assert "viewer" in text
        assert "Add a member" not in text
        assert alices.post("/tenants/in/research", {"user": "alice", "role": "admin"}).status_code == 404
        assert alices.post("/tenants/in/research/remove", {"user": "lena"}).status_code == 404
        ending = {"kind": "job", "user": "lena", "name": "x"}
        assert alices.post("/tenants/in/research/end", ending).status_code == 404

    @pytest.mark.long
    def test_the_forms_offer_the_tenants_that_one_may_submit_to(self, lena, alice, alices, research):
        assert b'id="tenant"' not in alices.get("/jobs?new=1").content
        members.put(tenant="research", user="alice", role="member", by="test")
        for address in ("/jobs?new=1", "/datasets", "/models?new=1", "/apps?new=1"):
            assert b'id="tenant"' in alices.get(address).content, address
        form = {"name": "photos", "size": "5", "tenant": "research"}
        assert alices.post("/datasets", form).status_code == 302
        assert Dataset.objects.get().tenant == research
        assert alices.post("/tenants/default", {"tenant": "research"}).status_code == 302
        assert "research" in alices.get("/account").content.decode()


class TestGroups:
    """What a sign-in's groups give and take back (accounts.signin; the providers themselves are in test_oidc)."""

    def follow(self, user, *given):
        members.follow_groups(user, given, "sign-in:corp")
        user.refresh_from_db()
        return roles(user), user.tenant.name

    def test_they_give_and_take_their_own(self, research, alice):
        Tenant.objects.create(name="ops")
        both = self.follow(alice, ("research", "admin"), ("ops", "viewer"))
        assert both == ({"default": "member", "research": "admin", "ops": "viewer"}, "default")
        assert self.follow(alice, ("research", "viewer")) == ({"default": "member", "research": "viewer"}, "default")
        assert self.follow(alice) == ({"default": "member"}, "default")

    def test_what_an_administrator_gave_stays(self, research, alice):
        members.put(tenant="research", user="alice", role="member", by="oscar")
        assert self.follow(alice, ("research", "viewer"))[0]["research"] == "member"
        assert self.follow(alice)[0]["research"] == "member"

    def test_who_is_in_no_group_any_more_keeps_no_tenant_of_groups(self, research, alice):
        members.follow_groups(alice, [("research", "member")], "sign-in:corp")
        members.forget_first(alice, ["research"])
        alice.refresh_from_db()
        assert (roles(alice), alice.tenant.name) == ({"research": "member"}, "research")
        assert self.follow(alice) == ({"default": "member"}, "default")

    def test_a_tenant_that_does_not_exist_changes_nothing(self, research, alice):
        with pytest.raises(Refused, match="the tenant nowhere, which does not exist"):
            members.follow_groups(alice, [("research", "member"), ("nowhere", "member")], "sign-in:corp")
        assert roles(alice) == {"default": "member"}


def test_members_that_an_older_release_did_not_write_are_added_at_the_start(alice, research):
    alice.memberships.all().delete()
    assert members.mend() == 1
    assert roles(alice) == {"default": "member"}
    assert members.mend() == 0

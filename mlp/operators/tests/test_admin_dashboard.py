"""The administrators' overview: counts, names and links; a slow component does not delay it."""

from __future__ import annotations

import html
import re
import threading

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

import runners
from accounts import lifecycle as accounts
from accounts.models import Delivery, User, Visit
from apps.models import Application
from datasets.models import Dataset
from jobs.models import Job
from kernel.admin_display import list_address, short, url_of
from kernel.models import StateChange
from mlp.operators import admin as site
from mlp.operators import machine
from mlp.tests.page_world import EVIL
from mlp.tests.patience import LIMIT_S
from resources import tcc
from resources.models import UserLimit
from runners import confine
from supervision import health

from .admin_world import fill, put


def overview(client):
    answer = client.get("/admin/")
    assert answer.status_code == 200
    return answer


def test_it_counts_every_state_and_links_to_the_filtered_list(staff_client, alice):
    for index, state in enumerate(("running", "running", "error")):
        put(Job, alice, "abc"[index], state)
    put(Dataset, alice, "digits", "ready")
    answer = overview(staff_client)
    kinds = {str(kind["name"]): kind for kind in answer.context["kinds"]}
    assert list(kinds)[:2] == ["Jobs", "Datasets"]
    jobs = {state["label"]: state for state in kinds["Jobs"]["states"]}
    assert {str(label): state["count"] for label, state in jobs.items()} == {
        "queued": 0, "running": 2, "finished": 0, "failed": 1, "deleting": 0,
    }  # fmt: skip
    running = next(state for label, state in jobs.items() if str(label) == "running")
    page = staff_client.get(running["url"])
    assert page.context["cl"].result_count == 2


def test_it_shows_recent_changes_and_failures_with_reasons(staff_client, alice):
    job = put(Job, alice, "train", "running")
    job.fail(by="runner", reason="exit code 1: Traceback\n  File x\nMemoryError: no more")
    job.save()
    cancelled = put(Job, alice, "other", "running")
    cancelled.fail(by="alice", reason="cancelled", outcome="cancelled")
    cancelled.save()
    stopped = put(Application, alice, "shown", "ready")
    stopped.stop(by="alice", reason="stopped")
    stopped.save()
    answer = overview(staff_client)
    assert [(entry.subject, entry.who) for entry in answer.context["failed"]] == [("alice/train", "runner")]
    assert {"stopped", "cancelled"} < {entry.why for entry in answer.context["latest"]}
    text = answer.content.decode()
    assert "exit code 1: … MemoryError: no more" in text
    assert url_of(job) in text


def test_users_awaiting_approval_are_listed_until_they_are_activated(staff_client, make_user):
    for name in ("carol", "dave"):
        make_user(name, active=False)
    accounts.deregister(username=make_user("erin").username, by="operator:oscar")
    answer = overview(staff_client)
    assert [user.username for user in answer.context["waiting"]] == ["carol", "dave"]
    listed = staff_client.get(answer.context["waiting_url"]).context["cl"].queryset
    assert sorted(user.username for user in listed) == ["carol", "dave"]
    carol = User.objects.get(username="carol")
    button = reverse("admin:accounts_user_verb", args=[carol.pk, "activate"])
    assert button in answer.content.decode()
    assert staff_client.post(button, {"next": "/admin/"})["Location"] == "/admin/"
    assert [user.username for user in overview(staff_client).context["waiting"]] == ["dave"]


def test_it_shows_what_each_tenant_has_in_use(staff_client, default_tenant):
    tcc.try_(id="ext-1", applier="jm", request_type="request", cpu=8, ram=4000)
    [tenant] = overview(staff_client).context["tenants"]
    bars = {str(row["name"]): row["bar"] for row in tenant["bars"]}
    assert "8 of 8" in bars["CPU"]
    assert "mlp-danger" in bars["CPU"]
    assert 'value="25"' in bars["Memory"]


def test_it_shows_addresses_and_the_log_models_state(staff_client, alice, staff):
    text = overview(staff_client).content.decode()
    assert "/api/v1/docs" in text
    assert "none yet" in text
    fill(alice, staff)
    answer = overview(staff_client)
    assert answer.context["logs"]["alerts"] == 1


# --- what it stands on --------------------------------------------------------------------------------------------
def test_it_shows_isolation_and_versions(staff_client):
    answer = staff_client.get(reverse("admin:machine"))
    versions = dict(answer.context["versions"])
    assert re.fullmatch(r"\d+\.\d+.*", versions["PostgreSQL"])
    assert {name for name in ("Valkey", "NATS", "nginx") if not versions[name]} == set()
    rows = {row[0]: row for row in answer.context["isolation"]["rows"]}
    files, network, users = (rows.pop(name) for name in ("Files", "Network", "Users"))
    assert bool(rows.pop("Internet", None)) == bool(confine.decide(settings.MLP_CONFINEMENT).network)
    bounds = list(rows.values())
    confinement = confine.decide(settings.MLP_CONFINEMENT)
    assert files[2] == ("danger" if confinement.isolation == "none" else "success")
    assert network[2] == ("success" if confinement.network else "danger")
    assert (users[2] == "success") == confinement.own_uid
    assert len(bounds) == 4
    text = html.unescape(answer.content.decode())
    assert all(str(how) in text for _what, how, _tone in (files, network, users, *bounds))


def test_missing_isolation_is_shown_with_its_reason(staff_client, monkeypatch):
    nothing = confine.Confinement("none", "", False, {}, why_not=("bwrap: <b>not allowed</b>",))
    monkeypatch.setattr(runners.get(), "_confinement", nothing)
    answer = staff_client.get(reverse("admin:machine"))
    text = answer.content.decode()
    assert "a script can read what the platform can" in text
    assert "shared: a run can reach what the machine can" in text
    assert "bwrap: &lt;b&gt;not allowed" in text
    assert "mlp-danger" in text


def test_a_server_that_does_not_answer_hides_no_other_version(staff_client, monkeypatch):
    monkeypatch.setattr(machine, "nats", lambda: 1 / 0)
    versions = dict(staff_client.get(reverse("admin:machine")).context["versions"])
    assert versions["NATS"] == ""
    assert versions["Valkey"]


# --- who did what -------------------------------------------------------------------------------------------------
def audit(client, **asked):
    answer = client.get(reverse("admin:audit"), asked)
    assert answer.status_code == 200
    return answer


def entries(answer) -> list[tuple]:
    return [(entry.who, entry.subject, entry.what) for entry in answer.context["rows"]]


def test_the_audit_log_has_state_changes_and_operators_actions(staff_client, alice, staff):
    job = put(Job, alice, "train", "running")
    staff_client.post(reverse("admin:jobs_job_verb", args=[job.pk, "cancel"]), {"confirmed": "yes"})
    staff_client.post(reverse("admin:accounts_user_verb", args=[alice.pk, "rotate"]), {"confirmed": "yes"})
    rows = entries(audit(staff_client))
    assert rows[0][:2] == ("operator:oscar", "alice")
    assert ("operator:oscar", "alice/train", "fail") in rows
    assert {who for who, *_rest in entries(audit(staff_client, operators="1"))} == {"operator:oscar"}
    assert {who for who, *_rest in entries(audit(staff_client, who="operator:oscar"))} == {"operator:oscar"}
    assert entries(audit(staff_client, who="nobody")) == []
    assert [what for _who, _subject, what in entries(audit(staff_client, q="train"))] == ["fail", "start", "create"]


def test_the_audit_log_is_paged_without_gaps_or_duplicates(staff_client, alice):
    for number in range(30):
        put(Job, alice, "n" * (number + 1), "running")
    first = audit(staff_client)
    assert len(first.context["rows"]) == 50
    second = staff_client.get(reverse("admin:audit") + "?" + first.context["older"])
    rows = [*entries(first), *entries(second)]
    assert len(rows) == len(set(rows)) == StateChange.objects.count()
    assert second.context["older"] == ""


@pytest.mark.parametrize("asked", [{"before": "x"}, {"before": "2026-13-45T99:00"}, {"q": "\0"}, {"who": EVIL}])
def test_the_audit_log_answers_any_filter(staff_client, alice, asked):
    assert "<script>alert" not in audit(staff_client, **asked).content.decode()


@pytest.mark.parametrize("name", ["audit", "machine"])
def test_the_operators_pages_require_staff_rights(client, alice, name):
    client.force_login(alice)
    assert client.get(reverse(f"admin:{name}")).status_code in (302, 403)


# --- notifications and sessions -----------------------------------------------------------------------------------
def test_a_failed_delivery_can_be_retried(staff_client, alice, staff):
    row = fill(alice, staff)["accounts.delivery"]
    Delivery.objects.filter(pk=row.pk).update(attempts=6)
    assert "failed" in staff_client.get(reverse("admin:accounts_delivery_changelist")).content.decode()
    staff_client.post(reverse("admin:accounts_delivery_verb", args=[row.pk, "again"]))
    row.refresh_from_db()
    assert (row.open, row.attempts) == (True, 0)


def test_an_operator_can_end_a_session(staff_client, alice):
    alice_page, other = Client(), Client()
    for client in (alice_page, other):
        client.force_login(alice)
    visit = Visit.objects.get(session_key=alice_page.session.session_key)
    staff_client.post(reverse("admin:accounts_visit_verb", args=[visit.pk, "delete"]), {"confirmed": "yes"})
    assert alice_page.get("/index").status_code == 302
    assert other.get("/index").status_code == 200


# --- the parts ----------------------------------------------------------------------------------------------------
def test_the_overview_itself_queries_no_component(staff_client, monkeypatch):
    monkeypatch.setattr(health, "report", lambda: 1 / 0)
    assert reverse("admin:parts") in overview(staff_client).content.decode()


def test_each_component_has_its_own_state(staff_client, monkeypatch):
    monkeypatch.setattr(health, "report", lambda: {"nats": "ok", "worker": "no heart-beat"})
    answer = staff_client.get(reverse("admin:parts"))
    assert [(row["name"], row["ok"]) for row in answer.context["parts"]] == [("nats", True), ("worker", False)]
    assert "no heart-beat" in answer.content.decode()
    assert "no-store" in answer["Cache-Control"]


def test_a_hanging_component_does_not_delay_the_answer(staff_client, monkeypatch):
    asked_long_enough = threading.Event()
    monkeypatch.setattr(health, "report", lambda: {"nats": "late"} if not asked_long_enough.wait(LIMIT_S) else {})
    monkeypatch.setattr(site, "PATIENCE_S", 0.2)
    overview(staff_client)
    answer = staff_client.get(reverse("admin:parts"))
    assert not asked_long_enough.is_set()
    asked_long_enough.set()
    assert "did not respond in time" in answer.content.decode()


def test_a_broken_health_report_counts_as_no_answer(staff_client, monkeypatch):
    def broken():
        raise RuntimeError("broken")

    monkeypatch.setattr(health, "report", broken)
    assert "did not respond" in staff_client.get(reverse("admin:parts")).content.decode()


# --- around the pages ------------------------------------------------------------------------------------------------
def test_the_sidebar_links_to_every_list(staff_client, alice, staff):
    fill(alice, staff)
    text = overview(staff_client).content.decode()
    for model in site.admin.site._registry:
        assert f'href="{list_address(f"{model._meta.app_label}_{model._meta.model_name}")}"' in text


def test_the_search_finds_objects_by_their_names(staff_client, alice):
    job = put(Job, alice, "train", "running")
    page = staff_client.get(reverse("admin:search"), {"s": "train", "extended": "1"}).content.decode()
    assert url_of(job) in page


def test_the_admin_is_available_in_chinese(staff_client):
    page = staff_client.get("/admin/", headers={"accept-language": "zh-hans"})
    assert page.status_code == 200
    assert 'lang="zh-hans"' in page.content.decode()


def test_a_long_reason_is_shortened_in_the_middle():
    assert short("plain words") == "plain words"
    assert "exit code 1: … Boom" in short("exit code 1: Traceback\n  line\nBoom")
    assert short("x" * 500).count("x") == 500 + 90
    assert short("") == ""
    assert "<b>" not in short("<b>\n<i>")


def test_the_default_limit_has_a_name(staff_client, default_tenant):
    UserLimit.objects.create(tenant=default_tenant, user="", gpu=1)
    assert "all users" in staff_client.get(reverse("admin:resources_userlimit_changelist")).content.decode()

"""The verbs of the admin: each button is there exactly when the verb is legal, does what its lifecycle does, in the
operator's name, and a refusal is shown."""

from __future__ import annotations

import re

import pytest
from django.contrib import admin
from django.contrib.messages import get_messages
from django.db import connection
from django.urls import reverse

from accounts import lifecycle as accounts
from accounts import sessions
from accounts.models import Token, User
from apps.models import Application
from datasets.models import Dataset
from jobs import admin as jobs_admin
from jobs.models import Job, Project
from kernel.admin import Verb
from kernel.admin_display import list_address, url_of
from kernel.errors import Fault, Refused
from kernel.models import StateChange, history_of
from mlp.tests.page_world import visitor
from mlp.tests.tiers import few
from models_app.models import Model
from workspaces.models import Workspace

from .admin_world import put

LEGAL = {
    (Job, "creating"): {"cancel", "exempt"},
    (Job, "running"): {"cancel", "exempt"},
    (Job, "finished"): {"delete", "trash"},
    (Job, "error"): {"delete", "trash"},
    (Job, "deleting"): set(),
    (Dataset, "creating"): {"end"},
    (Dataset, "ready"): {"delete", "trash"},
    (Dataset, "error"): {"delete", "trash"},
    (Dataset, "deleting"): set(),
    (Model, "creating"): {"end"},
    (Model, "ready"): {"delete", "trash"},
    (Model, "error"): {"delete", "trash"},
    (Model, "deleting"): set(),
    (Application, "creating"): {"stop"},
    (Application, "ready"): {"restart", "stop", "delete", "trash"},
    (Application, "error"): {"start", "delete", "trash"},
    (Application, "deleting"): set(),
    (Workspace, "creating"): {"stop"},
    (Workspace, "ready"): {"stop"},
    (Workspace, "error"): {"start", "delete", "trash"},
    (Workspace, "deleting"): set(),
}


def verb_url(obj, name: str) -> str:
    return reverse(f"admin:{obj._meta.app_label}_{obj._meta.model_name}_verb", args=[obj.pk, name])


def buttons(client, obj) -> set[str]:
    return set(re.findall(r'data-verb="(\w+)"', client.get(url_of(obj)).content.decode()))


def messages_of(answer) -> list[tuple[str, str]]:
    return [(message.level_tag, str(message)) for message in get_messages(answer.wsgi_request)]


def do(client, obj, name: str, **values):
    return client.post(verb_url(obj, name), {"confirmed": "yes", **values})


def act(client, model, name: str, *objects, **values):
    address = list_address(f"{model._meta.app_label}_{model._meta.model_name}")
    return client.post(address, {"action": f"do_{name}", "_selected_action": [o.pk for o in objects], **values})


# --- jobs and datasets ----------------------------------------------------------------------------------------------
@pytest.fixture
def things(alice) -> dict:
    """An object of each kind in each state, by both."""
    return {(model, state): put(model, alice, f"in{state}", state) for model, state in LEGAL}


@pytest.mark.long
def test_the_buttons_are_the_allowed_verbs(staff_client, things):
    assert {each: buttons(staff_client, obj) for each, obj in things.items()} == LEGAL


def test_a_verb_that_is_not_allowed_is_refused_with_a_message(staff_client, things):
    rows, wrong = StateChange.objects.count(), {}
    for (model, state), obj in things.items():
        for name in set(admin.site._registry[model].verbs) - LEGAL[model, state]:
            staff_client.cookies.pop("messages", None)  # what was said of the one before, and has not been shown
            answer = do(staff_client, obj, name)
            levels = [level for level, _text in messages_of(answer)]
            if (answer.status_code, levels, model.objects.get(pk=obj.pk).state) != (302, ["error"], state):
                wrong[model, state, name] = (answer.status_code, levels)
    assert wrong == {}
    assert StateChange.objects.count() == rows


@pytest.mark.parametrize(
    ("model", "state", "name", "after"),
    few(
        [
            (Job, "creating", "cancel", "error"),
            (Job, "running", "cancel", "error"),
            (Job, "finished", "delete", "deleting"),
            (Job, "error", "delete", "deleting"),
            (Dataset, "creating", "end", "error"),
            (Dataset, "ready", "delete", "deleting"),
            (Dataset, "error", "delete", "deleting"),
            (Application, "ready", "stop", "error"),
        ],
        3,
    ),
)
def test_a_verb_is_confirmed_and_recorded_in_the_operators_name(staff_client, alice, model, state, name, after):
    obj = put(model, alice, "thing", state)
    page = staff_client.get(verb_url(obj, name))
    assert page.status_code == 200
    assert 'name="confirmed"' in page.content.decode()
    assert staff_client.post(verb_url(obj, name)).status_code == 200, "a POST that was not asked before asks"
    assert model.objects.get(pk=obj.pk).state == state
    answer = do(staff_client, obj, name)
    assert (answer.status_code, answer["Location"]) == (302, url_of(obj))
    assert [level for level, _text in messages_of(answer)] == ["success"]
    assert model.objects.get(pk=obj.pk).state == after
    last = history_of(obj).order_by("-id").first()
    assert (last.by, last.source, last.target) == ("operator:oscar", state, after)
    assert "operator:oscar" in staff_client.get(url_of(obj)).content.decode()


def test_a_refusal_is_shown_as_an_error_message(staff_client, alice, monkeypatch):
    job = put(Job, alice, "train", "running")

    def refuse(*, user, name, by):
        raise Refused("state: somebody was faster")

    monkeypatch.setattr(jobs_admin.lifecycle, "cancel", refuse)
    assert messages_of(do(staff_client, job, "cancel")) == [("error", "alice/train: state: somebody was faster")]


def test_a_fault_propagates(staff_client, alice, monkeypatch):
    job = put(Job, alice, "train", "running")

    def fail(*, user, name, by):
        raise Fault()

    monkeypatch.setattr(jobs_admin.lifecycle, "cancel", fail)
    with pytest.raises(Fault):
        do(staff_client, job, "cancel")


def test_a_verb_runs_outside_of_the_admins_transaction(staff_client, alice, monkeypatch, transactional_db):
    job = put(Job, alice, "train", "running")
    seen = []
    monkeypatch.setattr(jobs_admin.lifecycle, "cancel", lambda **_: seen.append(connection.in_atomic_block))
    do(staff_client, job, "cancel")
    assert seen == [False]


def test_verbs_that_do_not_exist_are_not_found(staff_client, alice):
    job = put(Job, alice, "train", "running")
    assert do(staff_client, job, "explode").status_code == 404


def test_the_return_address_is_never_another_site(staff_client, alice):
    for index, wanted in enumerate(("https://example.org/", "//example.org/", "javascript:alert(1)")):
        job = put(Job, alice, "abc"[index], "running")
        assert do(staff_client, job, "cancel", next=wanted)["Location"] == url_of(job)
    job = put(Job, alice, "train", "running")
    assert do(staff_client, job, "cancel", next="/admin/")["Location"] == "/admin/"


# --- lists ----------------------------------------------------------------------------------------------------------
def test_a_bulk_action_is_confirmed_once_and_reports_each_result(staff_client, alice):
    good = [put(Job, alice, name, "running") for name in ("one", "two")]
    bad = put(Job, alice, "three", "finished")
    page = act(staff_client, Job, "cancel", *good, bad)
    assert page.status_code == 200
    assert all(str(job) in page.content.decode() for job in good)
    assert Job.objects.filter(state="running").count() == 2
    answer = act(staff_client, Job, "cancel", *good, bad, confirmed="yes")
    messages = messages_of(answer)
    assert sorted(level for level, _text in messages) == ["error", "success"]
    assert "alice/three" in dict(messages)["error"]
    assert {"alice/one", "alice/two"} <= set(re.findall(r"alice/\w+", dict(messages)["success"]))
    assert Job.objects.filter(state="error", reason="cancelled").count() == 2
    assert StateChange.objects.filter(target="error", by="operator:oscar").count() == 2


def test_a_fault_during_a_bulk_action_keeps_and_reports_the_finished_part(staff_client, alice, monkeypatch):
    jobs = [put(Job, alice, name, "running") for name in ("one", "two")]
    real, calls = jobs_admin.lifecycle.cancel, []

    def cancel(**values):
        calls.append(values["name"])
        if len(calls) == 2:
            raise Fault()
        return real(**values)

    monkeypatch.setattr(jobs_admin.lifecycle, "cancel", cancel)
    staff_client.raise_request_exception = False
    answer = act(staff_client, Job, "cancel", *jobs, confirmed="yes")
    assert answer.status_code == 503
    assert sorted(Job.objects.values_list("state", flat=True)) == ["error", "running"]
    assert any(level == "success" and f"alice/{calls[0]}" in text for level, text in messages_of(answer))


def test_a_bulk_action_can_cover_all_pages(staff_client, alice, monkeypatch):
    monkeypatch.setattr(jobs_admin.JobAdmin, "list_per_page", 2)
    jobs = [put(Job, alice, name, "running") for name in ("one", "two", "three")]
    page = act(staff_client, Job, "cancel", jobs[0], select_across="1", index="0")
    assert 'name="select_across" value="1"' in page.content.decode()
    act(staff_client, Job, "cancel", jobs[0], select_across="1", confirmed="yes")
    assert Job.objects.filter(state="error").count() == 3


# --- users ----------------------------------------------------------------------------------------------------------
def test_users_are_activated_and_deactivated(staff_client, make_user):
    carol = make_user("carol", active=False)
    assert buttons(staff_client, carol) == {"activate", "password"}
    assert do(staff_client, carol, "activate").status_code == 302
    carol = User.objects.get(pk=carol.pk)
    assert carol.is_active
    assert buttons(staff_client, carol) == {"password", "rotate", "operator", "deregister"}
    do(staff_client, carol, "deregister")
    assert not User.objects.get(pk=carol.pk).is_active
    changes = list(history_of(carol).order_by("id").values_list("transition", "by"))
    assert changes[-2:] == [("activate", "operator:oscar"), ("deregister", "operator:oscar")]


def test_granting_and_revoking_staff_rights_is_recorded(staff_client, alice):
    do(staff_client, alice, "operator")
    alice = User.objects.get(pk=alice.pk)
    assert alice.is_staff
    assert "takeback" in buttons(staff_client, alice)
    do(staff_client, alice, "takeback")
    assert not User.objects.get(pk=alice.pk).is_staff
    page = staff_client.get(url_of(alice)).content.decode()
    assert "Make administrator" in page
    assert "operator:oscar" in page


@pytest.mark.parametrize("name", ["deregister", "takeback"])
def test_operators_cannot_lock_themselves_out(staff_client, staff, name):
    answer = do(staff_client, staff, name)
    assert messages_of(answer)[0][0] == "error"
    again = User.objects.get(pk=staff.pk)
    assert again.is_active
    assert again.is_staff


def test_a_password_is_set_through_the_lifecycle(staff_client, alice):
    answer = do(staff_client, alice, "password", password="short", again="short")
    assert "password: must have 8 to 128" not in answer.content.decode()
    assert "must have 8 to 128 characters" in answer.content.decode()
    assert (
        "do not match" in do(staff_client, alice, "password", password="one password", again="another").content.decode()
    )
    assert do(staff_client, alice, "password", password="new horse staple", again="new horse staple").status_code == 302
    assert User.objects.get(pk=alice.pk).check_password("new horse staple")
    page = staff_client.get(url_of(alice)).content.decode()
    assert "operator:oscar" in page
    assert "horse" not in page


def test_changing_ones_own_password_keeps_the_session(staff_client, staff):
    assert staff_client.get(reverse("admin:password_change"))["Location"] == verb_url(staff, "password")
    in_another_thread = visitor(staff)
    do(staff_client, staff, "password", password="new horse staple", again="new horse staple")
    assert staff_client.get("/admin/").status_code == 200
    assert in_another_thread.get("/admin/").status_code == 302
    (listed,) = sessions.visits_of(staff)
    assert listed.session_key == staff_client.cookies["sessionid"].value
    staff.refresh_from_db()
    later = visitor(staff)
    later.post("/account/sessions")
    assert staff_client.get("/admin/").status_code == 302


def test_a_password_set_by_an_operator_ends_the_users_sessions(staff_client, alice):
    alice_page = visitor(alice)
    do(staff_client, alice, "password", password="new horse staple", again="new horse staple")
    assert sessions.visits_of(alice) == []
    assert alice_page.get("/index").status_code == 302
    assert staff_client.get("/admin/").status_code == 200


def test_a_user_is_added_by_registering(staff_client):
    words = {"username": "dora", "password": "correct horse battery", "again": "correct horse battery"}
    answer = staff_client.post(reverse("admin:accounts_user_add"), {**words, "active": "on"})
    dora = User.objects.get(username="dora")
    assert answer["Location"] == url_of(dora)
    assert dora.is_active
    assert not dora.is_staff
    assert history_of(dora).order_by("id").first().by == "operator:oscar"
    again = staff_client.post(reverse("admin:accounts_user_add"), words)
    assert "is already taken" in again.content.decode()
    wrong = staff_client.post(reverse("admin:accounts_user_add"), {**words, "username": "Not Legal"})
    assert "must be 1 to 50 lowercase letters" in wrong.content.decode()


# --- tokens ---------------------------------------------------------------------------------------------------------
def test_a_service_token_is_shown_once_works_and_is_revoked(staff_client, staff, api):
    page = staff_client.post(reverse("admin:accounts_token_add"), {"name": "shipper", "user": staff.pk})
    assert "no-store" in page["Cache-Control"]
    text = re.search(r'id="token">(mlp_s[^<]+)<', page.content.decode())[1]
    body = {"id": "x", "applier": "jm"}
    assert api(text).call("put", "resource_request:confirm", body).status_code == 200
    token = Token.objects.get(name="shipper")
    assert text not in staff_client.get(url_of(token)).content.decode()
    assert buttons(staff_client, token) == {"revoke"}
    do(staff_client, token, "revoke")
    assert "token" in api(text).refused("put", "resource_request:confirm", body)


def test_a_users_token_is_replaced(staff_client, alice, api):
    old = accounts.token_of(alice)
    token = Token.objects.get(user=alice)
    assert buttons(staff_client, token) == {"replace"}
    do(staff_client, token, "replace")
    assert api(old).call("get", "auth").status_code == 403
    assert accounts.token_of(User.objects.get(pk=alice.pk)) != old


# --- the trash ------------------------------------------------------------
def test_the_trash_is_listed_and_restored(staff_client, alice):
    job, other = put(Job, alice, "thing", "error"), put(Job, alice, "other", "error")
    Job.objects.filter(pk=other.pk).update(reason="cancelled", outcome="cancelled", tags={"team": "vision"})
    project = Project.objects.create(user=alice, name="sweeps")
    Job.objects.filter(pk=job.pk).update(project=project)
    do(staff_client, job, "trash")
    assert Job.objects.get(pk=job.pk).trashed
    do(staff_client, project, "delete")
    jobs = list_address("jobs_job")

    def listed(**query) -> list[str]:
        return [row.name for row in staff_client.get(jobs, query).context["cl"].result_list]

    assert listed(trash="1") == ["thing"]
    assert listed(trash="0") == ["other"]
    assert listed(shown="cancelled") == ["other"]
    assert listed(q="vision") == ["other"]
    assert listed(project__id__exact=project.pk) == ["thing"]
    refused = do(staff_client, job, "restore")
    assert "restore the project" in messages_of(refused)[0][1]
    do(staff_client, project, "restore")
    do(staff_client, job, "restore")
    assert listed(trash="1") == []


# --- the class itself -------------------------------------------------------------------------------------------------
def test_every_verb_has_a_label_an_icon_and_a_tone():
    for model_admin in admin.site._registry.values():
        for name, verb in getattr(model_admin, "verbs", {}).items():
            assert isinstance(verb, Verb)
            assert re.fullmatch(r"[a-z]+", name)
            assert str(verb.label)
            assert verb.icon
            assert verb.tone in {"default", "primary", "danger"}
            assert verb.tone != "danger" or verb.question, f"{name} is dangerous and does not ask"

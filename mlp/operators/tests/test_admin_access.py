"""Access to the admin, permissions of its buttons, and rate limits of its login."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import URLResolver, get_resolver, reverse

from accounts import throttle
from accounts.models import User
from jobs.models import Job
from kernel.admin_display import url_of
from mlp.tests.tiers import few

from .admin_world import fill, put
from .test_admin_verbs import act, buttons, do, verb_url

PASSWORD = "correct horse battery"
LOGIN = "/admin/login/"


@pytest.fixture
def pages(alice, staff):
    """One address of each kind."""
    world = fill(alice, staff)
    job = world["jobs.job"]
    return [
        "/admin/",
        reverse("admin:parts"),
        reverse("admin:search") + "?s=alice",
        reverse("admin:accounts_user_add"),
        *(url_of(obj) for obj in world.values()),
        verb_url(job, "cancel"),
    ]


def test_an_anonymous_user_gets_nothing(client, pages):
    for page in pages:
        answer = client.get(page)
        assert answer.status_code == 302
        assert answer["Location"].startswith(LOGIN)
        assert client.post(page).status_code == 302


def test_a_user_without_staff_rights_gets_nothing(client, bob, pages):
    client.force_login(bob)
    for page in pages:
        assert client.get(page)["Location"].startswith(LOGIN), page
    job = Job.objects.get()
    assert do(client, job, "cancel")["Location"].startswith(LOGIN)
    assert act(client, Job, "cancel", job, confirmed="yes").status_code == 302
    assert Job.objects.get().state == "running"


def test_a_deactivated_operator_loses_access_at_once(staff_client, staff):
    assert staff_client.get("/admin/").status_code == 200
    user = User.objects.get(pk=staff.pk)
    user.deregister(by="test")
    user.save()
    assert staff_client.get("/admin/")["Location"].startswith(LOGIN)


@pytest.fixture
def reader(make_user, client):
    """An administrator who may only view jobs."""
    user = make_user("rita")
    User.objects.filter(pk=user.pk).update(is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_job", content_type__app_label="jobs"))
    client.force_login(User.objects.get(pk=user.pk))
    return client


def test_view_permission_gives_no_buttons_and_no_actions(reader, alice):
    job = put(Job, alice, "train", "running")
    assert reader.get(url_of(job)).status_code == 200
    assert buttons(reader, job) == set()
    assert "do_cancel" not in reader.get(reverse("admin:jobs_job_changelist")).content.decode()
    assert reader.get(verb_url(job, "cancel")).status_code == 403
    assert do(reader, job, "cancel").status_code == 403
    act(reader, Job, "cancel", job, confirmed="yes")
    assert Job.objects.get().state == "running"


def test_view_permission_for_jobs_shows_no_users(reader, alice):
    assert reader.get(url_of(alice)).status_code == 403
    refused = reader.get(reverse("admin:accounts_user_add"))
    assert refused.status_code == 403
    assert "Permission denied" in refused.content.decode()
    assert "expired" not in refused.content.decode()
    overview = reader.get("/admin/").content.decode()
    assert reverse("admin:jobs_job_changelist") in overview
    assert reverse("admin:datasets_dataset_changelist") not in overview


def addresses(patterns, prefix: str = "/"):
    """Yield the addresses of pages without an object."""
    for pattern in patterns:
        address = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from addresses(pattern.url_patterns, address)
        elif "<" not in address and "(?P" not in address:
            yield address.replace("\\Z", "").replace("$", "")


def test_one_permission_opens_no_page_about_anything_else(reader, alice, staff):
    fill(alice, staff)
    open_to_all = {"/admin", "/admin/", "/admin/search/", "/admin/parts/", "/admin/jsi18n/", "/admin/jobs/job/"}
    open_to_all |= {"/admin/login/", "/admin/logout/", "/admin/password_change/", "/admin/password_change/done/"}
    pages = [address for address in addresses(get_resolver().url_patterns) if address.startswith("/admin")]
    assert len(pages) > 70
    assert {page for page in pages if reader.get(page).status_code != 403} <= open_to_all
    text = reader.get("/admin/search/", {"s": "a"}).content.decode()
    assert [word for word in ("digits", "calc", "alice@") if word in text] == []


def test_verbs_need_the_csrf_token(staff, alice):
    client = Client(enforce_csrf_checks=True)
    client.force_login(staff)
    job = put(Job, alice, "train", "running")
    assert do(client, job, "cancel").status_code == 403
    assert Job.objects.get().state == "running"


# --- login ------------------------------------------------------------------------------------------------------------
def log_in(client, username: str, password: str):
    return client.post(LOGIN, {"username": username, "password": password, "next": "/admin/"})


def test_an_operator_logs_in(client, staff):
    assert log_in(client, "oscar", PASSWORD)["Location"] == "/admin/"
    assert client.get("/admin/").status_code == 200


def test_a_user_cannot_log_in(client, alice):
    page = log_in(client, "alice", PASSWORD)
    assert page.status_code == 200
    assert client.get("/admin/").status_code == 302


def test_login_is_rate_limited(client, staff, settings, monkeypatch):
    settings.LOGIN_FAILURES_BEFORE_SLOWDOWN = 3
    monkeypatch.setattr(throttle, "FIRST_S", 60)
    for _ in range(4):
        assert log_in(client, "oscar", "wrong guess").status_code == 200
    page = log_in(client, "oscar", PASSWORD)
    assert page.status_code == 200
    assert "too many failed logins; try again in" in page.content.decode()


def test_a_success_resets_the_users_failures(client, staff, settings):
    settings.LOGIN_FAILURES_BEFORE_SLOWDOWN = 3
    for _ in range(3):
        log_in(client, "oscar", "wrong guess")
        log_in(client, "oscar", "wrong guess")
        assert log_in(client, "oscar", PASSWORD).status_code == 302
        client.logout()


@pytest.mark.parametrize("form", few([{"username": "oscar"}, {"username": "oscar", "password": ""}, {}], 1))
def test_an_empty_form_resets_no_failures(client, staff, settings, monkeypatch, form):
    settings.LOGIN_FAILURES_BEFORE_SLOWDOWN = 3
    monkeypatch.setattr(throttle, "FIRST_S", 60)
    for _ in range(4):
        log_in(client, "oscar", "wrong guess")
        assert client.post(LOGIN, form).status_code == 200
    assert "too many failed logins" in log_in(client, "oscar", PASSWORD).content.decode()

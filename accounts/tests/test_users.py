"""Registration, deactivation, the token and /api/v1/auth over REST."""

from __future__ import annotations

import base64
import re
import time
from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone
from redis.exceptions import ConnectionError as ConnectionLost

from accounts import lifecycle, reconcile, service_accounts, sessions, throttle, tokens
from accounts.auth import user_of_token
from accounts.models import Notice, Throttle, Token, User
from conftest import PASSWORD
from kernel import broker
from kernel.models import StateChange
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db


def basic(username: str, password: str) -> dict:
    return {"HTTP_AUTHORIZATION": "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()}


class TestRegister:
    def test_it_returns_the_user_without_the_password(self, as_anonymous, default_tenant):
        response = as_anonymous.call("post", "users", {"username": "carol", "password": PASSWORD})
        assert response.status_code == 201
        assert response.json()["username"] == "carol"
        assert response.json()["state"] == "Actived"
        assert "password" not in response.json()

    def test_it_writes_the_history(self, as_anonymous, default_tenant):
        as_anonymous.call("post", "users", {"username": "carol", "password": PASSWORD})
        rows = StateChange.objects.filter(kind="user", name="carol").order_by("id")
        assert [(row.transition, row.target, row.by) for row in rows] == [
            ("create", "NotActive", "carol"),
            ("activate", "Actived", "carol"),
        ]

    @pytest.mark.parametrize(
        ("body", "field"),
        few(
            [
                ({"username": "carol"}, "password"),
                ({"password": PASSWORD}, "username"),
                ({"username": "Carol", "password": PASSWORD}, "username"),
                ({"username": "carol\n", "password": PASSWORD}, "username"),
                ({"username": "a" * 51, "password": PASSWORD}, "username"),
                ({"username": 8, "password": PASSWORD}, "username"),
                ({"username": "carol", "password": "short"}, "password"),
                ({"username": "carol", "password": "x" * 129}, "password"),
                ({"username": "carol", "password": "12345678901"}, "password"),
                ({"username": "carol", "password": True}, "password"),
                ({"username": "carol", "password": PASSWORD, "state": "Actived"}, "state"),
                ({"username": "carol", "password": None}, "password"),
            ],
            4,
        ),
    )
    def test_it_names_the_wrong_field(self, as_anonymous, default_tenant, body, field):
        assert as_anonymous.refused("post", "users", body).startswith(f"{field}:")
        assert not User.objects.filter(username="carol").exists()

    def test_a_username_stays_taken_after_deactivation(self, as_anonymous, as_alice):
        as_alice.call("put", "users/alice")
        assert "taken" in as_anonymous.refused("post", "users", {"username": "alice", "password": PASSWORD})

    def test_the_platforms_own_name_is_reserved(self, as_anonymous, default_tenant):
        """The platform's logs have that name as their namespace, and users see the logs of their own."""
        assert "taken" in as_anonymous.refused("post", "users", {"username": "platform", "password": PASSWORD})
        assert not User.objects.filter(username="platform").exists()

    def test_registration_is_rate_limited_by_address_with_retry_after(self, as_anonymous, default_tenant, settings):
        settings.REGISTRATIONS_PER_HOUR = 2
        for name in ("carol", "dave"):
            assert as_anonymous.call("post", "users", {"username": name, "password": PASSWORD}).status_code == 201
        assert "try again in" in as_anonymous.refused("post", "users", {"username": "erin", "password": PASSWORD})

    def test_staff_are_not_limited(self, as_staff, settings):
        settings.REGISTRATIONS_PER_HOUR = 1
        for name in ("carol", "dave", "erin"):
            assert as_staff.call("post", "users", {"username": name, "password": PASSWORD}).status_code == 201

    def test_with_approval_a_user_waits_until_an_operator_activates_them(
        self, as_anonymous, api, default_tenant, settings
    ):
        settings.REGISTRATION_NEEDS_APPROVAL = True
        response = as_anonymous.call("post", "users", {"username": "carol", "password": PASSWORD})
        assert response.json()["state"] == "NotActive"
        assert "not active" in as_anonymous.refused("get", "users/carol/token", **basic("carol", PASSWORD))
        lifecycle.activate(username="carol", by="operator:oscar")
        assert as_anonymous.call("get", "users/carol/token", **basic("carol", PASSWORD)).status_code == 200


class TestToken:
    def test_the_password_returns_the_same_token_each_time(self, as_anonymous, alice):
        first = as_anonymous.call("get", "users/alice/token", **basic("alice", PASSWORD)).json()
        assert isinstance(first, str)
        assert as_anonymous.call("get", "users/alice/token", **basic("alice", PASSWORD)).json() == first

    def test_the_token_and_the_session_return_it_too(self, as_alice, alice):
        assert as_alice.call("get", "users/alice/token").json() == as_alice.token
        session = Client()
        session.force_login(alice)
        assert session.get("/api/v1/users/alice/token").json() == as_alice.token

    def test_an_administrator_gets_nobody_elses(self, as_staff, as_alice, alice, staff):
        """With one they could act as the user without a record. They may replace and revoke tokens, with a notice."""
        service_accounts.create(owner=alice, name="builder", by="alice")
        session = Client()
        session.force_login(staff)
        assert "only its owner" in session.get("/api/v1/users/alice/token").json()["msg"]
        assert "only its owner" in as_staff.refused("get", "users/alice/token")
        for path in ("users/alice/tokens", "users/alice/service_accounts/builder/tokens"):
            assert "only its owner" in as_staff.refused("post", path, {"name": "mine", "scope": "full"})
        assert not Token.objects.filter(kind=Token.Kind.NAMED).exists()
        assert as_alice.call("get", "auth").json() == "alice"
        assert as_staff.call("put", "users/alice/token:rotate").json() == ""
        as_alice.refused("get", "auth")
        assert Notice.objects.filter(user=alice, reason__contains="replaced by").exists()
        assert as_staff.call("get", "users/oscar/token").json() == as_staff.token

    def test_the_password_is_accepted_for_no_other_call(self, as_anonymous, alice):
        as_anonymous.refused("get", "users/alice", **basic("alice", PASSWORD))

    def test_the_token_is_not_in_the_database(self, as_alice):
        row = Token.objects.values().get(user__username="alice")
        secret = as_alice.token.split("_", 2)[2]  # which may contain underscores
        assert all(secret not in str(value) for value in row.values())

    def test_another_key_gives_another_token(self, as_alice, settings, alice):
        settings.SECRET_KEY = "another key altogether"
        assert lifecycle.token_of(alice) != as_alice.token

    def test_rotation_revokes_the_old_token_at_once(self, as_alice, api):
        assert as_alice.call("get", "auth").json() == "alice"
        fresh = as_alice.call("put", "users/alice/token:rotate").json()
        assert fresh != as_alice.token
        as_alice.refused("get", "auth")
        as_alice.refused("get", "users/alice")
        assert api(fresh).call("get", "auth").json() == "alice"

    def test_a_slow_reader_cannot_cache_a_revoked_token(self, as_alice):
        """The read of the old row ends after the rotation; it must not be cached."""
        pk = Token.objects.get(user__username="alice").pk
        old = tokens._load(pk)
        as_alice.call("put", "users/alice/token:rotate")
        tokens.fill(tokens.CACHE_KEY.format(pk=pk), old, tokens.CACHE_S)
        as_alice.refused("get", "auth")

    def test_rotation_is_refused_while_the_cache_is_unavailable(self, as_alice, monkeypatch):
        def away(*args, **options):
            raise ConnectionLost

        monkeypatch.setattr(broker.broker().client, "set", away)
        assert as_alice.call("put", "users/alice/token:rotate").status_code == 503
        monkeypatch.undo()
        assert as_alice.call("get", "auth").json() == "alice"

    def test_password_guessing_is_rate_limited(self, as_anonymous, alice, settings, monkeypatch):
        settings.LOGIN_FAILURES_BEFORE_SLOWDOWN = 3
        monkeypatch.setattr(throttle, "FIRST_S", 60)
        for _ in range(3):
            assert "wrong" in as_anonymous.refused("get", "users/alice/token", **basic("alice", "wrong password"))
        assert "try again in" in as_anonymous.refused("get", "users/alice/token", **basic("alice", PASSWORD))

    def test_the_announced_wait_is_long_enough(self, as_anonymous, alice, settings, monkeypatch):
        settings.LOGIN_FAILURES_BEFORE_SLOWDOWN = 1
        monkeypatch.setattr(throttle, "FIRST_S", 60)
        as_anonymous.refused("get", "users/alice/token", **basic("alice", "wrong password"))
        until = timezone.now() + timedelta(seconds=20.4)
        assert Throttle.objects.filter(until__gt=timezone.now()).update(until=until)
        response = as_anonymous.call("get", "users/alice/token", **basic("alice", PASSWORD))
        seconds = int(re.search(r"try again in (\d+) s", response.json()["msg"])[1])
        assert (until - timezone.now()).total_seconds() <= seconds <= 21
        assert response["Retry-After"] == str(seconds)

    @pytest.mark.parametrize(
        "token", few(["", "x", "mlp_u1_", "mlp_u1_" + "a" * 43, "mlp_j1_" + "a" * 43, "mlp_u\u0661_x"], 3)
    )
    def test_a_forged_token_is_refused(self, api, alice, token):
        api(token or " ").refused("get", "auth")
        api(token or " ").refused("get", "users/alice")


class TestDeregister:
    def test_the_token_is_revoked_and_the_state_changes(self, as_alice):
        response = as_alice.call("put", "users/alice")
        assert (response.status_code, response.json()["state"]) == (200, "NotActive")
        as_alice.refused("get", "users/alice")
        as_alice.refused("get", "auth")

    def test_any_body_is_ignored(self, as_alice):
        response = Client().put(
            "/api/v1/users/alice", "{not json", content_type="text/x", HTTP_AUTHORIZATION=f"Bearer {as_alice.token}"
        )
        assert response.status_code == 200

    def test_it_is_idempotent_for_staff(self, as_staff, alice):
        for _ in range(2):
            assert as_staff.call("put", "users/alice").json()["state"] == "NotActive"

    def test_sessions_end_too(self, as_alice, alice):
        session = Client()
        session.force_login(alice)
        as_alice.call("put", "users/alice")
        assert session.get("/api/v1/users/alice").status_code == 403

    def test_reactivation_does_not_revive_old_sessions(self, as_staff, alice):
        before, between = Client(), Client()
        before.force_login(alice)
        as_staff.call("put", "users/alice")
        alice.refresh_from_db()
        between.force_login(alice)  # a log-in that was under way meanwhile
        lifecycle.activate(username="alice", by="test")
        assert sessions.visits_of(alice) == []
        for session in (before, between):
            assert session.get("/api/v1/users/alice").status_code == 403
        before.post("/regist_login", {"username": "alice", "password": PASSWORD, "action": "login"})
        assert before.get("/api/v1/users/alice").status_code == 200

    def test_a_session_without_its_user_is_invalid(self, as_staff, alice):
        Client().force_login(alice)
        as_staff.call("put", "users/alice")
        assert not Session.objects.exists()

    def test_another_user_may_not(self, as_bob, alice):
        as_bob.refused("put", "users/alice")
        alice.refresh_from_db()
        assert alice.is_active


class TestServiceToken:
    def test_a_service_token_is_accepted_for_internal_calls_only(self, api, staff):
        service = api(lifecycle.create_service_token(user=staff, name="metrics", by="test"))
        body = {"id": "x", "applier": "jm", "request_type": "request", "cpu": 1}
        assert service.call("put", "resource_request:try", body).status_code == 200
        service.refused("get", "users/oscar/jobs")
        service.refused("get", "auth")
        assert user_of_token(service.token) is None

    def test_a_service_token_ends_when_revoked_or_its_operator_loses_staff_rights(self, api, staff):
        service = api(lifecycle.create_service_token(user=staff, name="metrics", by="test"))
        body = {"id": "x", "applier": "jm"}
        assert service.call("put", "resource_request:confirm", body).status_code == 200
        lifecycle.set_staff(username="oscar", staff=False, by="test")
        service.refused("put", "resource_request:confirm", body)

    def test_ordinary_users_may_not_make_the_internal_calls(self, as_alice):
        as_alice.refused("put", "resource_request:try", {"id": "x", "applier": "jm", "request_type": "request"})


class TestCleanUp:
    @pytest.fixture
    def hour(self, monkeypatch):
        """Let an hour pass between two reconcile rounds; the first round cleans up."""

        def passes() -> None:
            monkeypatch.setattr("accounts.reconcile._tidied", time.monotonic() - reconcile.TIDY_EVERY_S - 1)

        passes()
        return passes

    @staticmethod
    def _expired(count: int) -> None:
        long_ago = timezone.now() - timedelta(days=1)
        Session.objects.bulk_create(Session(session_key=f"old{n}", expire_date=long_ago) for n in range(count))

    def test_only_expired_sessions_are_removed(self, alice, hour):
        here = Client()
        here.force_login(alice)
        self._expired(3)
        reconcile.run()
        assert [row.session_key for row in Session.objects.all()] == [here.cookies["sessionid"].value]
        assert here.get("/api/v1/users/alice").status_code == 200
        self._expired(1)
        reconcile.run()
        assert Session.objects.count() == 2, "once an hour is enough"
        hour()
        reconcile.run()
        assert Session.objects.count() == 1

    def test_each_round_removes_a_limited_number(self, hour, monkeypatch):
        monkeypatch.setattr("accounts.reconcile.EXPIRED_AT_ONCE", 2)
        self._expired(5)
        left = []
        for _ in range(4):
            reconcile.run()
            left.append(Session.objects.count())
        assert left == [3, 1, 0, 0]


def test_other_users_and_missing_users_are_answered_alike(as_alice, bob):
    theirs = as_alice.refused("get", "users/bob")
    assert theirs == as_alice.refused("get", "users/nobody")

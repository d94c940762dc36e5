"""What the verbs of users and tokens do and refuse, each beside users and tokens that it must leave alone."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone

from accounts import lifecycle, sessions
from accounts.auth import user_of_token
from accounts.models import Membership, Notice, Token, User
from accounts.tokens import lookup
from conftest import PASSWORD
from kernel.errors import Refused
from kernel.models import history_of
from kernel.tests.pages import Recorder
from resources.models import Tenant

pytestmark = pytest.mark.django_db(transaction=True)

NOT_ACTIVE = r"^user: the account is not active$"


@pytest.fixture
def people(make_user) -> list[User]:
    """Three users with a token and a session each; the one who is meant is in the middle."""
    users = [make_user(name) for name in ("first", "alice", "last")]
    for user in users:
        Client().force_login(user)
    return users


@pytest.fixture
def alice(people) -> User:
    return people[1]


@pytest.fixture
def others(people) -> list[User]:
    return [people[0], people[2]]


def fresh(user: User) -> User:
    return User.objects.get(pk=user.pk)


def credentials(users: list[User]) -> list[tuple]:
    """Return all that a verb on another user must not change."""
    rows = User.objects.filter(pk__in=[user.pk for user in users]).order_by("pk").values()
    tokens = Token.objects.filter(user__in=users).order_by("pk").values("pk", "nonce", "rotated")
    return [*rows, *tokens, *(len(sessions.visits_of(user)) for user in users)]


@pytest.fixture(autouse=True)
def others_stay_as_they_are(others):
    before = credentials(others)
    yield
    assert credentials(others) == before


class TestRegister:
    def test_a_user_has_a_token_and_no_special_rights(self, default_tenant):
        user = fresh(lifecycle.register(username="carol", password=PASSWORD, by="carol"))
        assert (user.is_active, user.is_staff, user.is_superuser) == (True, False, False)
        assert (user.tenant, user.check_password(PASSWORD)) == (default_tenant, True)
        assert Token.objects.get(user=user).kind == "user"
        history = [(row.transition, row.by, row.reason) for row in history_of(user)]
        assert history == [("activate", "carol", "registered"), ("create", "carol", "")]

    def test_an_administrator_has_both_flags_of_django(self):
        user = lifecycle.register(username="carol", password=PASSWORD, by="test", is_staff=True)
        assert (fresh(user).is_staff, fresh(user).is_superuser) == (True, True)

    def test_a_user_who_needs_approval_is_not_active(self):
        user = lifecycle.register(username="carol", password=PASSWORD, by="test", active=False)
        assert not fresh(user).is_active
        assert [row.transition for row in history_of(user)] == ["create"]

    @pytest.mark.parametrize("username", ["alice", "platform"])
    def test_a_name_that_is_taken_is_refused_by_name(self, username):
        with pytest.raises(Refused, match=r"^username: is already taken$"):
            lifecycle.register(username=username, password=PASSWORD, by="test")

    @pytest.mark.parametrize("username", ["Carol", "", "a b"])
    def test_an_invalid_name_is_refused(self, username):
        with pytest.raises(Refused, match=r"^username:"):
            lifecycle.register(username=username, password=PASSWORD, by="test")

    def test_a_weak_password_is_refused_unless_it_is_not_validated(self):
        with pytest.raises(Refused, match=r"^password:"):
            lifecycle.register(username="carol", password="password", by="test")
        user = lifecycle.register(username="carol", password="password", by="test", judge=False)
        assert user.check_password("password")


class TestPassword:
    @pytest.mark.parametrize("length", [8, 128])
    def test_a_password_of_8_to_128_characters_is_accepted(self, alice, length):
        lifecycle.change_password(user=alice, password=("tiger lily " * 20)[:length], by="alice")

    @pytest.mark.parametrize("length", [0, 7, 129])
    def test_a_password_of_another_length_is_refused(self, alice, length):
        with pytest.raises(Refused, match=r"^password: must have 8 to 128 characters$"):
            lifecycle.change_password(user=alice, password=("tiger lily " * 20)[:length], by="alice")
        assert fresh(alice).check_password(PASSWORD)

    def test_an_easily_guessed_password_is_refused(self, alice):
        for password in ("12345678901", "password"):
            with pytest.raises(Refused, match=r"^password: This password"):
                lifecycle.check_password(password, alice)

    def test_a_new_password_replaces_the_old_one(self, alice, monkeypatch):
        pages = Recorder(monkeypatch)
        lifecycle.change_password(user=alice, password="battery horse staple", by="alice")
        assert fresh(alice).check_password("battery horse staple")
        assert pages.sent == {"pages"}

    def test_its_user_is_told_who_has_changed_it(self, alice):
        lifecycle.change_password(user=alice, password="battery horse staple", by="oscar")
        (notice,) = Notice.objects.filter(user=alice)
        assert "was changed by oscar" in str(notice.reason)


class TestServiceAccounts:
    """Accounts of programs, which a user owns."""

    @pytest.fixture
    def builder(self, alice) -> User:
        return lifecycle.register(username="builder", password=None, by="alice", judge=False, owner=alice)

    def test_it_is_in_its_owners_tenant_without_being_a_member(self, alice, builder):
        other = Tenant.objects.create(name="other")
        User.objects.filter(pk=alice.pk).update(tenant=other)
        tester = lifecycle.register(username="tester", password=None, by="alice", judge=False, owner=fresh(alice))
        assert (fresh(tester).tenant, fresh(tester).owner) == (other, alice)
        assert not Membership.objects.filter(user__in=[builder, tester]).exists()
        assert lookup(lifecycle.token_of(tester)).username == "tester"

    def test_it_ends_before_its_owner_and_comes_back_only_beside_an_active_one(self, alice, builder):
        ended = []

        def receive(user, **_more):
            ended.append(user.username)

        lifecycle.deregistered.connect(receive)
        try:
            lifecycle.deregister(username="alice", by="oscar")
        finally:
            lifecycle.deregistered.disconnect(receive)
        assert ended == ["builder", "alice"]
        assert [row.by for row in history_of(builder)][:1] == ["oscar"]
        with pytest.raises(Refused, match=r"^user: the owner of this service account is not active$"):
            lifecycle.activate(username="builder", by="oscar")
        lifecycle.activate(username="alice", by="oscar")
        assert not fresh(builder).is_active
        lifecycle.activate(username="builder", by="oscar")
        assert fresh(builder).is_active

    def test_one_that_is_made_while_its_owner_ends_ends_too(self, alice, builder):
        late = []

        def receive(user, **_more):
            if user == builder and not late:
                late.append(lifecycle.register(username="late", password=None, by="alice", judge=False, owner=alice))

        lifecycle.deregistered.connect(receive)
        try:
            lifecycle.deregister(username="alice", by="oscar")
        finally:
            lifecycle.deregistered.disconnect(receive)
        assert [fresh(user).is_active for user in (alice, builder, *late)] == [False] * 3

    def test_it_has_neither_a_password_nor_rights_of_an_administrator(self, builder):
        with pytest.raises(Refused, match=r"^user: a service account has no password$"):
            lifecycle.change_password(user=builder, password="battery horse staple", by="oscar")
        with pytest.raises(Refused, match=r"^user: a service account cannot be an administrator$"):
            lifecycle.set_staff(username="builder", staff=True, by="oscar")
        lifecycle.set_staff(username="builder", staff=False, by="oscar")
        assert not fresh(builder).has_usable_password()


class TestAccount:
    def test_neither_tokens_nor_sessions_outlive_a_deactivation(self, alice):
        token = lifecycle.token_of(alice)
        assert user_of_token(token) == alice
        assert not lifecycle.deregister(username="alice", by="oscar").is_active
        assert (sessions.visits_of(alice), user_of_token(token)) == ([], None)
        with pytest.raises(Refused, match=NOT_ACTIVE):
            lifecycle.token_of(fresh(alice))
        Client().force_login(fresh(alice))  # a log-in that was under way
        lifecycle.activate(username="alice", by="oscar")
        assert (sessions.visits_of(alice), user_of_token(token)) == ([], None)
        assert user_of_token(lifecycle.token_of(fresh(alice))) == alice
        assert [(row.transition, row.by) for row in history_of(alice)][:2] == [
            ("activate", "oscar"),
            ("deregister", "oscar"),
        ]

    def test_a_second_deactivation_does_nothing(self, alice):
        lifecycle.deregister(username="alice", by="test")
        rows = history_of(alice).count()
        assert lifecycle.deregister(username="alice", by="test") == alice
        assert history_of(alice).count() == rows

    def test_the_signal_carries_the_user_and_the_author(self, alice):
        heard = []

        def receive(sender, user, by, **_more):
            heard.append((sender, user, user.is_active, by))

        lifecycle.deregistered.connect(receive)
        try:
            lifecycle.deregister(username="alice", by="oscar")
        finally:
            lifecycle.deregistered.disconnect(receive)
        assert heard == [(User, alice, False, "oscar")]

    def test_only_an_active_user_can_be_locked_for_a_new_object(self, alice):
        lifecycle.deregister(username="alice", by="test")
        gone = User(pk=alice.pk + 1000, username="gone")
        for user in (alice, gone):
            with transaction.atomic(), pytest.raises(Refused, match=NOT_ACTIVE):
                lifecycle.hold_active(user)
        lifecycle.activate(username="alice", by="test")
        with transaction.atomic():
            lifecycle.hold_active(alice)

    def test_administrator_rights_take_effect_immediately(self, alice, monkeypatch):
        token = lifecycle.token_of(alice)
        assert not lookup(token).is_administrator
        lifecycle.set_staff(username="alice", staff=True, by="test")
        user = fresh(alice)
        assert (user.is_staff, user.is_superuser, lookup(token).is_administrator) == (True, True, True)
        service = lifecycle.create_service_token(user=fresh(alice), name="metrics", by="test")
        assert lookup(service).kind == "service"
        pages = Recorder(monkeypatch)
        lifecycle.set_staff(username="alice", staff=False, by="test")
        assert (fresh(alice).is_staff, fresh(alice).is_superuser, lookup(token).is_administrator) == (
            False,
            False,
            False,
        )
        assert lookup(service) is None
        assert pages.sent == {"pages"}


class TestTokens:
    def test_rotation_revokes_the_old_token(self, alice):
        before = lifecycle.token_of(alice)
        assert lookup(before) is not None
        after = lifecycle.rotate_token(user=alice, by="alice")
        assert (after == before, lookup(before), user_of_token(after)) == (False, None, alice)
        assert lifecycle.token_of(alice) == after
        assert timezone.now() - Token.objects.get(user=alice).rotated < timedelta(minutes=1)

    def test_the_user_is_notified_of_who_has_rotated_the_token(self, alice):
        lifecycle.rotate_token(user=alice, by="root")
        (notice,) = Notice.objects.filter(user=alice)
        assert str(notice.reason) == "Your API token was replaced by root."

    def test_an_inactive_user_cannot_rotate_the_token(self, alice):
        lifecycle.deregister(username="alice", by="test")
        with pytest.raises(Refused, match=NOT_ACTIVE):
            lifecycle.rotate_token(user=alice, by="alice")

    def test_only_administrators_have_service_tokens(self, alice):
        with pytest.raises(Refused, match=r"^user: only administrators can have service tokens$"):
            lifecycle.create_service_token(user=alice, name="metrics", by="test")
        assert Token.objects.filter(user=alice).count() == 1

    def test_a_service_token_has_a_name_and_is_not_the_users_own(self, alice):
        lifecycle.set_staff(username="alice", staff=True, by="test")
        user = fresh(alice)
        with pytest.raises(Refused, match=r"^name:"):
            lifecycle.create_service_token(user=user, name="My Metrics", by="test")
        text = lifecycle.create_service_token(user=user, name="metrics", by="test")
        assert (lookup(text).username, lookup(text).kind) == ("alice", "service")
        assert Token.objects.get(user=user, kind="service").name == "metrics"
        own = lifecycle.token_of(user)
        assert lookup(own).kind == "user"
        assert lookup(lifecycle.rotate_token(user=user, by="alice")).kind == "user"
        assert lookup(text).kind == "service"

    def test_other_service_tokens_stay_valid_when_one_is_revoked(self, alice):
        lifecycle.set_staff(username="alice", staff=True, by="test")
        names = ("first", "metrics", "last")
        texts = [lifecycle.create_service_token(user=fresh(alice), name=name, by="test") for name in names]
        assert all(lookup(text) for text in texts)
        pk = Token.objects.get(name="metrics").pk
        for _ in range(2):  # the second finds none
            lifecycle.revoke_service_token(pk=pk, by="test")
        assert [lookup(text) is not None for text in texts] == [True, False, True]

    def test_a_user_token_is_not_revoked_as_a_service_token(self, alice):
        text = lifecycle.token_of(alice)
        lifecycle.revoke_service_token(pk=Token.objects.get(user=alice).pk, by="test")
        assert user_of_token(text) == alice

"""Authentication by token, password and session; revalidation of open connections; `/api/v1/auth`'s fast path."""

from __future__ import annotations

import base64
import json
from datetime import timedelta

import pytest
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.models import Session
from django.db.utils import OperationalError
from django.test import Client, RequestFactory
from django.utils import timezone

from accounts import auth, lifecycle, logins, named_tokens
from accounts.models import User
from conftest import PASSWORD
from kernel.errors import Fault, Refused

pytestmark = pytest.mark.django_db


def with_token(user: User):
    """Return a request with this bearer token, its user resolved as the REST interface does."""
    request = RequestFactory().get("/", HTTP_AUTHORIZATION=f"Bearer {lifecycle.token_of(user)}")
    request.user = user
    return request


def with_session(user: User):
    client = Client()
    client.force_login(user)
    request = RequestFactory().get("/")
    request.user, request.session = user, client.session
    return request


@pytest.fixture(params=[with_token, with_session])
def asks(request):
    return request.param


class TestAccessCheck:
    def test_only_the_owner_and_operators_may_continue(self, alice, bob, staff, asks):
        still = {user.username: auth.access_check(asks(user), alice.pk) for user in (alice, bob, staff)}
        assert {name: ask() for name, ask in still.items()} == {"alice": True, "bob": False, "oscar": True}

    def test_every_check_reads_the_database(self, alice, staff, asks):
        own, others = auth.access_check(asks(alice), alice.pk), auth.access_check(asks(staff), alice.pk)
        assert own()
        assert others()
        lifecycle.set_staff(username="oscar", staff=False, by="test")
        assert not others()
        lifecycle.deregister(username="alice", by="test")
        assert not own()

    def test_a_token_is_valid_until_it_is_rotated(self, alice):
        token, session = (
            auth.access_check(with_token(alice), alice.pk),
            auth.access_check(with_session(alice), alice.pk),
        )
        lifecycle.rotate_token(user=alice, by="test")
        assert not token()
        assert session()

    def test_a_session_is_valid_until_it_ends_or_the_password_changes(self, alice):
        token, first = auth.access_check(with_token(alice), alice.pk), auth.access_check(with_session(alice), alice.pk)
        assert first()
        Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
        assert not first()
        Session.objects.update(expire_date=timezone.now() + timedelta(days=1))
        assert first()
        Session.objects.all().delete()
        assert not first()
        second = auth.access_check(with_session(alice), alice.pk)
        assert second()
        lifecycle.change_password(user=alice, password="battery horse staple", by="test")
        assert not second()
        assert token()

    def test_a_job_token_is_valid_until_the_job_ends(self, alice):
        request = RequestFactory().get("/", HTTP_AUTHORIZATION="Bearer mlp_j1_x")
        request.user = alice
        assert auth.access_check(request, alice.pk)() is True


class TestValidEntries:
    def test_each_entry_gets_its_own_user(self, alice, bob):
        by_token = auth.Credentials(alice.pk, token=lifecycle.token_of(alice))
        by_session = auth.credentials_of_session(bob, with_session(bob).session.session_key)
        assert auth.valid_credentials([by_token, by_session]) == {by_token: alice, by_session: bob}
        assert auth.valid_credentials([]) == {}

    def test_a_session_is_invalid_for_another_user(self, alice, bob):
        key = with_session(alice).session.session_key
        own = auth.credentials_of_session(bob, key)
        assert auth.valid_credentials([own, auth.Credentials(alice.pk, session_key=key)]) != {}
        assert auth.valid_credentials([auth.Credentials(alice.pk, session_key=key, session_hash="x")]) == {}
        unnamed = auth.Credentials(alice.pk, session_key="", session_hash=alice.get_session_auth_hash())
        assert auth.valid_credentials([unnamed]) == {}

    def test_a_valid_token_of_an_inactive_user_is_refused(self, alice, bob):
        entry = auth.Credentials(bob.pk, token=lifecycle.token_of(bob))
        lifecycle.deregister(username="bob", by="test")
        assert auth.valid_credentials([entry, auth.Credentials(alice.pk, token="mlp_u1_x")]) == {}

    def test_a_remaining_session_of_an_inactive_user_is_invalid(self, alice, bob):
        entries = [auth.credentials_of_session(user, with_session(user).session.session_key) for user in (alice, bob)]
        User.objects.filter(pk=bob.pk).update(state="NotActive")
        assert auth.valid_credentials(entries) == {entries[0]: alice}

    def test_any_number_of_entries_takes_three_queries(self, alice, bob, django_assert_num_queries):
        entries = [auth.Credentials(user.pk, token=lifecycle.token_of(user)) for user in (alice, bob)]
        entries.append(auth.credentials_of_session(alice, with_session(alice).session.session_key))
        with django_assert_num_queries(3):
            assert len(auth.valid_credentials(entries)) == 3

    def test_secrets_are_not_in_its_repr(self, alice):
        entry = auth.Credentials(1, token="secret", session_key="secret", session_hash="secret")
        assert "secret" not in repr(entry)


class TestLinks:
    """A visitor whose session has opened links to shared objects, with or without an account."""

    @staticmethod
    def visit(user, links):
        request = with_session(user if user.is_authenticated else User.objects.get(username="alice"))
        request.user = user
        session = request.session
        session[auth.LINKS] = links
        session.save()
        return request

    def test_only_whole_numbers_are_keys_of_links(self, alice):
        assert auth.links_of(None) == ()
        assert auth.links_of({}) == ()
        assert auth.links_of({auth.LINKS: [3, "4", 5]}) == (3, 5)

    def test_a_visitor_without_an_account_is_valid_while_the_session_is(self, alice):
        request = self.visit(AnonymousUser(), [9, 7])
        entry = auth.credentials_of(request)
        assert (entry.user_id, entry.links, entry.token, entry.session_hash) == (0, (9, 7), "", "")
        assert auth.valid_credentials([entry])[entry].is_anonymous
        Session.objects.all().delete()
        assert auth.valid_credentials([entry]) == {}

    def test_connections_are_counted_by_user_or_else_by_link(self):
        assert auth.Credentials(5, links=(9,)).slot_key == 5
        assert auth.Credentials(0, links=(9, 7)).slot_key == -7
        assert auth.Credentials(0).slot_key == 0

    def test_a_websocket_of_a_page_with_links_needs_no_account(self, alice):
        scope = TestSessionOfAWebsocket.scope(alice)
        scope["user"] = AnonymousUser()
        scope["session"][auth.LINKS] = [7]
        user, entry = auth.user_and_credentials_of_session(scope)
        assert (user.is_anonymous, entry.user_id, entry.links) == (True, 0, (7,))
        assert auth.user_and_credentials_of_session({**scope, "session": None}) == (None, None)

    def test_an_account_keeps_its_links(self, alice):
        entry = auth.credentials_of(self.visit(alice, [7]))
        assert (entry.user_id, entry.links) == (alice.pk, (7,))
        assert auth.valid_credentials([entry]) == {entry: alice}

    def test_a_share_decides_for_those_who_do_not_own_the_object(self, alice, bob):
        asked = []

        def shared(user, entry):
            asked.append((user, entry.user_id))
            return user == bob

        assert auth.access_check(with_token(bob), alice.pk, shared)()
        assert auth.access_check(with_token(alice), alice.pk, shared)()
        assert asked == [(bob, bob.pk)], "the owner is not asked for"
        visitor = self.visit(AnonymousUser(), [7])
        assert not auth.access_check(visitor, alice.pk, shared)()
        assert not auth.access_check(visitor, alice.pk)()


class TestSessionOfAWebsocket:
    @staticmethod
    def scope(user, origin: bytes | None = b"https://mlp.example", host: bytes = b"mlp.example") -> dict:
        headers = [(b"host", host), *([(b"origin", origin)] if origin is not None else [])]
        return {"user": user, "session": with_session(user).session, "headers": headers}

    def test_a_same_origin_page_gets_its_user_and_a_valid_entry(self, alice):
        user, entry = auth.user_and_credentials_of_session(self.scope(alice))
        assert user == alice
        assert auth.valid_credentials([entry]) == {entry: alice}

    @pytest.mark.parametrize(
        "origin", [None, b"", b"null", b"https://evil.example", b"https://mlp.example.evil.example"]
    )
    def test_a_page_of_another_origin_gets_no_user(self, alice, origin):
        assert auth.user_and_credentials_of_session(self.scope(alice, origin)) == (None, None)

    def test_without_a_host_header_no_origin_is_accepted(self, alice):
        assert auth.user_and_credentials_of_session(self.scope(alice, b"", b"")) == (None, None)

    def test_an_anonymous_user_gets_no_entry(self, alice):
        own = self.scope(alice)
        for user in (None, AnonymousUser()):
            assert auth.user_and_credentials_of_session({**own, "user": user}) == (None, None)


class TestAuthEndpoint:
    """`GET /api/v1/auth`, which the gateway calls for every data request."""

    @staticmethod
    def ask(header: str | None) -> tuple[str, dict, object]:
        environ = {} if header is None else {"HTTP_AUTHORIZATION": header}
        seen: list = []
        body = auth.auth(environ, lambda *answer: seen.extend(answer))
        return seen[0], dict(seen[1]), json.loads(b"".join(body))

    def test_it_returns_the_username(self, alice):
        status, headers, body = self.ask(f"Bearer {lifecycle.token_of(alice)}")
        assert (status, body) == ("200 OK", "alice")
        assert headers == {"Content-Type": "application/json", "Content-Length": "7"}

    @pytest.mark.parametrize("header", [None, "", "Basic YTpi", "Bearer", "Bearer a b", "Bearer mlp_u1_x"])
    def test_other_requests_are_refused_in_the_contracts_form(self, header):
        status, _, body = self.ask(header)
        assert status == "403 Forbidden"
        assert set(body) == {"msg"}

    def test_the_message_names_the_field(self):
        assert self.ask(None)[2] == {"msg": "not authenticated: send Authorization: Bearer {token}"}
        assert self.ask("Bearer mlp_u1_x")[2] == {"msg": "token: not valid"}

    def test_without_a_database_it_answers_503_with_retry_after(self, alice, monkeypatch):
        def away(_):
            raise OperationalError("gone")

        monkeypatch.setattr(auth.tokens, "user_holder", away)
        closed = []
        monkeypatch.setattr(auth, "close_old_connections", lambda: closed.append(True))
        status, _, body = self.ask(f"Bearer {lifecycle.token_of(alice)}")
        assert (status, set(body), closed) == ("503 Service Unavailable", {"msg"}, [True])


class TestOwnToken:
    """`GET …/token` with the token itself, which Django need not answer."""

    @staticmethod
    def environ(path: str, token: str, **more) -> dict:
        return {"PATH_INFO": path, "REQUEST_METHOD": "GET", "HTTP_AUTHORIZATION": f"Bearer {token}", **more}

    def test_the_answer_is_that_of_django(self, alice, as_alice):
        token = lifecycle.token_of(alice)
        environ = self.environ("/api/v1/users/alice/token", token)
        assert auth.shows_own_token(environ)
        seen: list = []
        body = b"".join(auth.own_token(environ, lambda *answer: seen.extend(answer)))
        response = as_alice.call("get", "users/alice/token")
        assert (seen[0], body) == ("200 OK", response.content)
        headers = dict(seen[1])
        assert headers["Content-Type"] == response["Content-Type"] == "application/json"
        assert headers["Cache-Control"] == response["Cache-Control"] == "no-store"

    def test_everything_else_is_left_to_django(self, alice, bob):
        path, token = "/api/v1/users/alice/token", lifecycle.token_of(alice)
        _row, named = named_tokens.create(user=alice, name="ci", by="test")
        for other in ("", "x", "a b", lifecycle.token_of(bob), named):
            assert not auth.shows_own_token(self.environ(path, other))
        for other in ("/api/v1/users/bob/token", "/other/token", "/token", "/api/v1/users/alice/x/token"):
            assert not auth.shows_own_token(self.environ(other, token))
        left = ({"REQUEST_METHOD": "PUT"}, {"QUERY_STRING": "a=1"}, {"CONTENT_LENGTH": "3"})
        for more in (*left, {"HTTP_TRANSFER_ENCODING": "chunked"}, {"HTTP_AUTHORIZATION": ""}):
            assert not auth.shows_own_token(self.environ(path, token, **more))
        for more in ({"QUERY_STRING": ""}, {"CONTENT_LENGTH": ""}, {"CONTENT_LENGTH": "0"}):
            assert auth.shows_own_token(self.environ(path, token, **more))
        lifecycle.rotate_token(user=alice, by="test")
        assert not auth.shows_own_token(self.environ(path, token))

    @pytest.mark.parametrize("problem", [OperationalError("gone"), Fault("the cache is not available")])
    def test_without_a_database_or_cache_django_says_what_is_wrong(self, alice, monkeypatch, problem):
        def away(_token):
            raise problem

        environ, closed = self.environ("/api/v1/users/alice/token", lifecycle.token_of(alice)), []
        monkeypatch.setattr(auth.tokens, "user_holder", away)
        monkeypatch.setattr(auth, "close_old_connections", lambda: closed.append(True))
        assert not auth.shows_own_token(environ)
        assert closed == [True]


class TestHeaders:
    @pytest.mark.parametrize("header", ["", "Basic YTpi", "Digest x", "bearerx"])
    def test_another_scheme_is_not_a_token(self, header):
        assert auth.bearer(header) is None

    @pytest.mark.parametrize("header", ["Bearer x", "bearer x", "BEARER  x "])
    def test_the_scheme_is_read_in_any_case_and_spaces_are_trimmed(self, header):
        assert auth.bearer(header) == "x"

    @pytest.mark.parametrize("header", ["Bearer", "Bearer ", "Bearer a b"])
    def test_a_malformed_token_is_refused(self, header):
        with pytest.raises(Refused, match=r"^Authorization:"):
            auth.bearer(header)

    def test_a_password_may_hold_colons_and_any_letters(self):
        coded = base64.b64encode("alice:ä:ö:".encode()).decode()
        assert auth.basic(f"Basic {coded}") == auth.basic(f"basic  {coded} ") == ("alice", "ä:ö:")

    @pytest.mark.parametrize("coded", ["", "YWxpY2U=", "YWxp=Y2U", "%%%", "/+8=", "ä"])
    def test_malformed_basic_credentials_are_refused(self, coded):
        with pytest.raises(Refused, match=r"^Authorization:"):
            auth.basic(f"Basic {coded}")

    @pytest.mark.parametrize("header", ["", "Bearer x", "Basicx"])
    def test_another_scheme_is_not_basic(self, header):
        assert auth.basic(header) is None

    def test_a_refusal_names_the_accepted_schemes(self):
        assert auth.BearerAuthentication().authenticate_header(RequestFactory().get("/")) == "Bearer"


class TestUserOfToken:
    def test_only_an_active_users_valid_user_token_authenticates(self, alice, bob, staff):
        token = lifecycle.token_of(alice)
        assert (auth.user_of_token(token), auth.user_of_token(lifecycle.token_of(bob))) == (alice, bob)
        assert auth.user_of_token("mlp_u1_x") is None
        assert auth.user_of_token(lifecycle.create_service_token(user=staff, name="x", by="test")) is None
        User.objects.filter(pk=alice.pk).update(state="NotActive")  # while the cache still knows the token
        assert auth.user_of_token(token) is None

    def test_an_inactive_user_is_refused_though_the_token_is_cached(self, as_alice, alice):
        assert as_alice.call("get", "users/alice").status_code == 200
        User.objects.filter(pk=alice.pk).update(state="NotActive")
        assert "token" in as_alice.refused("get", "users/alice")


class TestLogin:
    @pytest.fixture
    def request_(self, rf):
        request = rf.post("/")
        request.user = AnonymousUser()
        return request

    def test_a_name_and_password_authenticate(self, request_, alice):
        assert logins.check(request_, "alice", PASSWORD) == alice

    @pytest.mark.parametrize(
        ("username", "password"), [("alice", "wrong"), ("nobody", PASSWORD), ("Alice", PASSWORD), ("a\0", PASSWORD)]
    )
    def test_all_wrong_credentials_get_the_same_answer(self, request_, alice, username, password):
        with pytest.raises(Refused) as refusal:
            logins.check(request_, username, password)
        assert str(refusal.value.msg) == "username: wrong username or password"

    def test_only_the_right_password_reveals_that_a_user_is_inactive(self, request_, alice):
        lifecycle.deregister(username="alice", by="test")
        refusal = r"^username: this account is not active; an administrator can activate it$"
        with pytest.raises(Refused, match=refusal):
            logins.check(request_, "alice", PASSWORD)
        with pytest.raises(Refused, match="wrong"):
            logins.check(request_, "alice", "wrong")

    def test_failures_are_counted_and_a_success_resets_the_count(self, request_, alice, settings):
        settings.LOGIN_FAILURES_BEFORE_SLOWDOWN = 2
        for _ in range(3):
            with pytest.raises(Refused, match="wrong"):
                logins.check(request_, "alice", "wrong")
            logins.check(request_, "alice", PASSWORD)
        for _ in range(2):
            with pytest.raises(Refused, match="wrong"):
                logins.check(request_, "alice", "wrong")
        with pytest.raises(Refused, match="try again in"):
            logins.check(request_, "alice", PASSWORD)

"""Named tokens: made, shown once, used, ended; and what each scope may do at each kind of endpoint."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from accounts import lifecycle, named_tokens, tokens
from accounts.models import Notice, Token
from accounts.tests.logins import at
from conftest import Api
from kernel.errors import Refused
from mlp.tests.page_world import visible_text, visitor
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db

SCOPES = ("full", "read", "submit", "dataset", "application")


def create_token(user, scope: str = "full", **fields) -> str:
    target = {"dataset": "photos", "application": "digits"}.get(scope, "")
    return named_tokens.create(user=user, name=f"for-{scope}", scope=scope, target=target, by="test", **fields)[1]


@pytest.fixture
def narrow(alice):
    """A client for each scope."""
    return {scope: Api(create_token(alice, scope)) for scope in SCOPES}


def may(clients: dict[str, Api], method: str, path: str, body=None) -> set[str]:
    """Return the scopes whose tokens get past the token's check; the call itself may be refused for other reasons."""
    answers = {scope: client.call(method, path, body) for scope, client in clients.items()}
    return {scope for scope, answer in answers.items() if b"this token is only for" not in answer.content}


class TestLife:
    def test_it_is_made_listed_and_revoked_by_rest(self, alice, as_alice):
        body = {"name": "ci", "scope": "submit", "days": 30}
        answer = as_alice.call("post", "users/alice/tokens", body)
        assert answer.status_code == 201
        token = answer.json()["token"]
        [listed] = as_alice.call("get", "users/alice/tokens").json()
        assert (listed["name"], listed["scope"], listed["target"], listed["used"]) == ("ci", "submit", "", None)
        assert token not in as_alice.call("get", "users/alice/tokens").content.decode()
        assert Api(token).call("get", "users/alice/jobs").status_code == 200
        assert as_alice.call("delete", "users/alice/tokens/ci").status_code == 200
        assert Api(token).refused("get", "users/alice/jobs") == "token: not valid"
        assert as_alice.call("delete", "users/alice/tokens/ci").status_code == 403
        told = visible_text(visitor(alice).get("/notifications"))
        assert "alice made the token ci." in told
        assert "alice revoked the token ci." in told

    @pytest.mark.parametrize(
        ("field", "body"),
        few(
            [
                ("name", {"name": ""}),
                ("name", {"name": "-ci"}),
                ("name", {"name": "a b"}),
                ("name", {"name": "x" * 51}),
                ("scope", {"scope": "everything"}),
                ("target", {"scope": "dataset"}),
                ("target", {"scope": "dataset", "target": "../x"}),
                ("target", {"scope": "read", "target": "photos"}),
                ("days", {"days": 0}),
                ("days", {"days": 3651}),
                ("days", {"days": "7"}),
            ],
            4,
        ),
    )
    def test_what_is_wrong_is_named(self, as_alice, field, body):
        assert as_alice.refused("post", "users/alice/tokens", {"name": "ci", **body}).startswith(f"{field}:")
        assert as_alice.call("get", "users/alice/tokens").json() == []

    def test_a_name_is_taken_once_by_each_user(self, alice, bob, as_alice):
        create_token(alice), create_token(bob)
        assert as_alice.refused("post", "users/alice/tokens", {"name": "for-full"}).startswith("name: you already have")

    def test_there_is_a_most(self, alice, monkeypatch):
        monkeypatch.setattr(named_tokens, "MAX", 1)
        create_token(alice)
        with pytest.raises(Refused):
            create_token(alice, "read")

    def test_it_ends_at_its_time_also_where_it_is_cached(self, alice, monkeypatch):
        token = create_token(alice, days=1)
        assert tokens.user_holder(token).username == "alice"
        assert tokens.valid_of({token}) == {token}
        Token.objects.filter(kind="named").update(expires=timezone.now())
        assert tokens.valid_of({token}) == set()
        later = (timezone.now() + timedelta(days=1, seconds=1)).timestamp()
        monkeypatch.setattr(tokens.time, "time", lambda: later)
        assert tokens.user_holder(token) is None

    def test_it_ends_with_the_account(self, alice):
        token = create_token(alice)
        lifecycle.deregister(username="alice", by="test")
        assert tokens.user_holder(token) is None

    def test_the_rotation_of_the_api_token_leaves_it_alone(self, alice):
        token = create_token(alice)
        lifecycle.rotate_token(user=alice, by="alice")
        assert tokens.user_holder(token) is not None

    def test_its_last_use_and_address_are_kept(self, alice):
        Api(create_token(alice)).call("get", "users/alice/jobs", **at("203.0.113.7"))
        row = Token.objects.get(kind="named")
        assert (row.address, row.used is not None) == ("203.0.113.7", True)

    def test_its_user_is_told_once_that_it_ends_soon(self, alice):
        create_token(alice, days=6), create_token(alice, "read", days=30), create_token(alice, "submit")
        Notice.objects.all().delete()
        assert (named_tokens.warn(), named_tokens.warn()) == (1, 0)
        assert "for-full" in str(Notice.objects.get(user=alice).reason)


class TestScopes:
    """What a token of each scope may do; the calls of the whole interface are in mlp/tests/attack/test_scopes.py."""

    def test_none_touches_the_account_or_its_tokens(self, alice, narrow):
        for method, path in (
            ("get", "users/alice/token"), ("put", "users/alice/token:rotate"), ("get", "users/alice/tokens"),
            ("post", "users/alice/tokens"), ("delete", "users/alice/tokens/for-full"), ("put", "users/alice"),
        ):  # fmt: skip
            assert may(narrow, method, path, {"name": "more"} if method == "post" else None) == set(), (method, path)
        assert Token.objects.filter(kind="named").count() == len(SCOPES)
        alice.refresh_from_db()
        assert alice.is_active

    def test_a_full_one_of_an_operator_reads_nobodys_token(self, alice, staff):
        client = Api(create_token(staff))
        assert client.call("get", "users/alice/jobs").status_code == 200
        assert "this token is only for" in client.refused("get", "users/alice/token")

    def test_reading(self, narrow):
        readers = {"full", "read", "submit"}
        for path in ("users/alice/jobs", "users/alice/models", "users/alice/apps", "users/alice", "tenants/default"):
            assert may(narrow, "get", path) == readers, path
        assert may(narrow, "get", "users/alice/datasets/photos") == readers | {"dataset"}
        assert may(narrow, "get", "users/alice/datasets/other") == readers

    def test_submitting(self, narrow):
        submitters = {"full", "submit"}
        for path in ("users/alice/jobs", "users/alice/datasets", "users/alice/sweeps", "users/alice/job_metrics/fit"):
            assert may(narrow, "post", path, {}) == submitters, path
        assert may(narrow, "put", "users/alice/jobs/fit:cancel") == submitters
        assert may(narrow, "put", "users/alice/datasets/photos:heartbeat", {}) == submitters | {"dataset"}

    def test_what_only_a_full_one_may(self, narrow):
        for method, path in (
            ("post", "users/alice/apps"), ("post", "users/alice/models"), ("post", "users/alice/shares"),
            ("delete", "users/alice/jobs/fit"), ("delete", "users/alice/datasets/photos"),
        ):  # fmt: skip
            assert may(narrow, method, path, {}) == {"full"}, (method, path)

    def test_a_narrow_one_of_an_operator_submits_for_nobody_else(self, alice, staff):
        client = Api(create_token(staff, "submit"))
        assert "this token is only for" in client.refused("post", "users/alice/jobs", {})

    def test_the_gateways_own_question_takes_full_ones_only(self, narrow):
        assert {scope for scope, client in narrow.items() if client.call("get", "auth").status_code == 200} == {"full"}

    @pytest.mark.long
    def test_metrics_of_the_platform_are_read_with_a_reading_one_of_an_operator(self, alice, staff):
        def status(token: str) -> int:
            return Client().get("/metrics", HTTP_AUTHORIZATION=f"Bearer {token}").status_code

        assert [status(create_token(staff, scope)) for scope in SCOPES] == [200, 200, *[status("x")] * 3]
        assert status(create_token(alice, "read")) == 403


class TestPage:
    def test_one_is_made_shown_once_and_revoked(self, alice):
        client = Client()
        client.force_login(alice)
        form = {"name": "laptop", "scope": "dataset", "target": "photos", "days": "7"}
        page = client.post("/account/tokens", form)
        [token] = re.findall(r"mlp_n\w+", page.content.decode().replace("-", "_"))
        row = Token.objects.get(kind="named")
        assert tokens.derive(row).replace("-", "_") == token
        assert timedelta(days=6.9) < row.expires - timezone.now() < timedelta(days=7)
        again = client.get("/account/tokens").content.decode()
        assert "laptop" in again
        assert token not in again.replace("-", "_")
        assert client.post("/account/tokens/revoke", {"name": "laptop"}).status_code == 302
        assert not Token.objects.filter(kind="named").exists()

    def test_what_is_wrong_stands_at_its_field(self, alice):
        client = Client()
        client.force_login(alice)
        page = client.post("/account/tokens", {"name": "a b", "scope": "read", "target": "", "days": ""})
        assert page.status_code == 403
        assert 'id="name-error"' in page.content.decode()

"""Every address of the platform with a token of each scope: nothing beyond the scope is done or read at any."""

from __future__ import annotations

import re

import pytest

from accounts import named_tokens
from apps.models import Application
from conftest import Api
from datasets.models import Dataset
from mlp.operators.tests.admin_world import put
from mlp.tests.attack.test_tokens import OPEN, answer, calls, pages, snapshot
from mlp.tests.page_world import fill, visitor
from mlp.tests.test_mlflow_routes import calls as mlflow_calls

pytestmark = pytest.mark.django_db

BEYOND = ("this token is only for", "token: not valid")  # the second at doors that know no scopes
ACCOUNT = re.compile(r"/api/v1/users/alice(/(tokens?|service_accounts)(:rotate|/.*)?)?$")
WORK = re.compile(r"/api/v1/users/alice/(datasets|jobs|job_metrics|runs|projects|sweeps|schedules|pipelines)\b")
AUTH = "/api/v1/auth"  # the question of other gateways whose token it is
PHOTOS = re.compile(r"/api/v1/users/alice/datasets/fit(:heartbeat)?$")


def allowed(scope: str, method: str, path: str) -> bool:
    """Return whether the documentation (docs/tokens.md) gives this call to the scope."""
    reads = method == "get"
    if ACCOUNT.match(path) and not (reads and path.endswith("/alice")):
        return False
    if scope == "dataset":
        return bool(PHOTOS.match(path)) and method != "delete"
    return {
        "full": True,
        "read": reads and path != AUTH,
        "submit": (reads and path != AUTH) or (bool(WORK.match(path)) and method != "delete"),
        "application": False,
    }[scope]


def is_refused(response) -> bool:
    """Return whether the token was refused, rather than the call."""
    return not response.streaming and any(words in response.content.decode() for words in BEYOND)


@pytest.fixture
def token(alice, bob):
    """Return a function that makes alice's token of a scope; hers are objects of every kind."""
    fill(alice)
    for model in (Dataset, Application):
        put(model, alice, "fit", "ready")

    def make(scope: str, user=alice) -> str:
        target = "fit" if scope in ("dataset", "application") else ""
        return named_tokens.create(user=user, name=f"for-{scope}", scope=scope, target=target, by="test")[1]

    return make


@pytest.mark.parametrize("scope", ["read", "dataset", "application"])
def test_a_scope_without_submission_changes_nothing(token, scope):
    client = Api(token(scope))
    client.call("get", "users/alice/token")  # the last use is noted before what is compared
    before = snapshot()
    for method, path, body in calls():
        if (method, path) in OPEN or (scope == "dataset" and PHOTOS.match(path)):
            continue
        response = answer(client, method, path, body)
        assert is_refused(response) is not allowed(scope, method, path), (method, path)
        assert method == "get" or response.status_code == 403, (method, path)
    assert snapshot() == before


@pytest.mark.parametrize("scope", ["full", "submit"])
def test_beyond_a_scope_every_call_is_refused(token, scope):
    client = Api(token(scope))
    for method, path, body in calls():
        if (method, path) in OPEN or allowed(scope, method, path):
            continue
        assert is_refused(answer(client, method, path, body)), (method, path)


@pytest.mark.parametrize("scope", ["full", "read", "submit", "dataset", "application"])
def test_a_token_opens_no_page(token, scope):
    """Pages know sessions only, also those that the REST calls do not cover."""
    client = visitor()
    client.defaults["HTTP_AUTHORIZATION"] = f"Bearer {token(scope)}"
    for address in ("/account", "/account/tokens", "/admin/", "/settings", "/index", "/password"):
        assert client.get(address).status_code in (302, 404) or address == "/password", address
    assert len(pages()) > 150


@pytest.mark.parametrize("scope", ["read", "submit", "dataset", "application"])
def test_of_mlflows_calls_a_scope_has_those_that_it_names(token, scope):
    client, seen = visitor(), set()
    client.defaults["HTTP_AUTHORIZATION"] = f"Bearer {token(scope)}"
    for method, address in mlflow_calls():
        path = "/" + re.sub(r"<(?:\w+:)?(\w+)>", "1", address)
        response = client.generic(method, path, b"{}", content_type="application/json")
        beyond = is_refused(response)
        reads = method == "GET" or re.search(r"/(search|get)[\w-]*$", path) is not None
        tracks = re.search(r"mlflow(-artifacts)?/(runs|experiments|metrics|logged-models|artifacts|mpu)\b", path)
        deletes = method == "DELETE" or "delete" in path
        may = scope in ("read", "submit") and (reads or (scope == "submit" and bool(tracks) and not deletes))
        assert beyond is not may, (method, path, response.content[:200])
        seen.add(may)
    assert seen == ({True, False} if scope in ("read", "submit") else {False})


@pytest.mark.parametrize("scope", ["read", "submit", "dataset", "application"])
def test_doors_of_services_take_no_narrow_token(token, staff, scope):
    """Those that name no scope: the shippers' and Opni's."""
    header = {"HTTP_AUTHORIZATION": f"Bearer {token(scope, staff)}"}
    for address in ("/v1/logs", "/loki/api/v1/push", "/ModelTraining/model/train"):
        response = visitor().post(address, b"{}", content_type="application/json", **header)
        assert response.status_code == 401, (address, response.status_code)

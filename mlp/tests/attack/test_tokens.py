"""Every address of the platform, asked without a token, with another user's, and with a job's: each call of the schema
and each page of the URLconf.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from functools import cache

import pytest
from django.apps import apps
from django.db import connection
from django.urls import get_resolver

from accounts import lifecycle as accounts
from apps.models import Application
from conftest import Api
from datasets.models import Dataset
from jobs.auth import job_token
from jobs.models import Job
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import fill, visitor
from mlp.tests.rest_schema import rest_schema
from mlp.tests.tiers import TENTH, few, later

pytestmark = pytest.mark.django_db

VALUES = {
    "code": "BCDFGHJK",
    "step": "a",
    "guest": "bob",
    "owner": "host",
    "user": "alice",
    "tenant": "default",
    "cluster": "local",
    "version": "1",
    "path": "ckpt/model.pt",
    "name": "fit",
    "token": "fit",
    "id": "1",
    "share": "1",
    "number": "1",
    "alias": "champion",
    "key": "00000000-0000-0000-0000-000000000000",
    "digest": "0" * 32,
    "reference": "paint@1",
    "trace": "tr-0af7651916cd43dd8448eb211c80319c",
    "delivery": "00000000-0000-0000-0000-000000000000",
}
OPEN = {("post", "/api/v1/users"), ("get", "/api/v1/schema"), ("get", "/api/v1/docs")}
OF_A_JOB = {
    ("put", "/api/v1/users/alice/jobs/fit:heartbeat"),
    ("post", "/api/v1/users/alice/job_metrics/fit"),
    ("post", "/api/v1/users/alice/jobs/fit/values"),
    ("post", "/api/v1/users/alice/jobs/fit:trainer"),
}
NOT_FOR_JOBS = re.compile(
    "a job token cannot make this call|requires a service token|token: not valid|not authenticated"
)
OPEN_PAGES = re.compile(
    r"/(healthz(/live|/ready)?|ready|regist_login(\.jsp)?|data_client\.(pyz|jar)|mlp\.pyz|set_language|admin/login/|logout"
    r"|mlflow/(health|version|(ajax-)?api/3\.0/mlflow/server-info)?)$"  # what an MLflow client asks first; constants
)
LEAD_READS = re.compile("/api/v1/users/alice/(jobs|datasets|models|apps)/fit(/(?!uses$)|$)")  # not its trace elsewhere
UNCHANGED = ("accounts.user", "datasets.dataset", "jobs.job", "jobs.metrics", "models_app.model", "apps.application",
             "workspaces.workspace", "resources.tenant", "resources.resourcerequest")  # fmt: skip


def attacked(alice) -> None:
    """Make objects of alice's in every state, among them a job `fit` that runs."""
    fill(alice)
    for model in (Dataset, Application):
        put(model, alice, "fit", "ready")


@pytest.fixture(scope="module")
def attacked_files(keep_files):
    return keep_files(attacked)


@pytest.fixture
def world(attacked_files, bob):
    attacked_files()
    return snapshot()


@cache
def rows_of_all() -> str:
    """Return the query for everything that a call might have changed: one, since it is asked after many calls."""
    models = [apps.get_model(label) for label in UNCHANGED]
    tables = [model._meta.db_table for model in models]
    tables += [each.m2m_db_table() for model in models for each in model._meta.many_to_many]
    # the tests log in, which changes that time
    parts = (f"SELECT '{table}', (to_jsonb(each.*) - 'last_login')::text FROM \"{table}\" AS each" for table in tables)
    return " UNION ALL ".join(parts) + " ORDER BY 1, 2"


def snapshot() -> str:
    """Return a digest of everything that a call might have changed."""
    with connection.cursor() as cursor:
        cursor.execute(rows_of_all())
        return hashlib.sha256(repr(cursor.fetchall()).encode()).hexdigest()


@cache
def calls() -> list[tuple[str, str, dict]]:
    """Return (method, path, body) of each call of the REST schema, about alice's objects."""
    calls = []
    for path, methods in rest_schema()["paths"].items():
        address = re.sub(r"\{(\w+)\}", lambda name: VALUES[name.group(1)], path)
        calls += [(method, address, {}) for method in methods if method in {"get", "post", "put", "delete", "patch"}]
    assert len(calls) > 60
    return calls


def answer(client: Api, method: str, path: str, body: dict):
    return client.call(method, path.removeprefix("/api/v1/"), body if method in {"post", "put"} else None)


def test_without_a_token_every_call_is_refused(world, as_anonymous):
    for method, path, body in calls():
        status = answer(as_anonymous, method, path, body).status_code
        assert (method, path) in OPEN or status == 403, (method, path, status)
    assert snapshot() == world


@pytest.mark.parametrize(
    "token", few(["", "x", "mlp_u1_", "mlp_j1_x", "mlp_u0_" + "A" * 43, "\u00e9", "null", "mlp_u1_x, mlp_u2_y"], 3)
)
def test_an_invalid_token_is_no_token(world, token):
    for method, path, body in itertools.islice(calls(), 0, None, 7):
        status = answer(Api(token), method, path, body).status_code
        assert (method, path) in OPEN or status == 403, (method, path, status)
    assert snapshot() == world


# What a tenant's administrator may read is tried always; that such a one may do nothing else, test_roles tries.
@pytest.mark.parametrize("tried", [LEAD_READS, later(re.compile(".*/users/alice"))], ids=["read by a lead", "all"])
def test_with_another_users_token_every_call_about_a_user_is_refused(world, as_bob, tried):
    """And with the same words as for an object that does not exist."""
    for method, path, body in calls():
        if not tried.match(path):
            continue
        mine, nobodys = (answer(as_bob, method, path.replace("alice", name), body) for name in ("alice", "nobody"))
        assert mine.status_code == 403, (method, path)
        assert mine.json()["msg"].replace("alice", "nobody") == nobodys.json()["msg"], (method, path)
    assert snapshot() == world


def test_with_another_users_token_the_platforms_own_calls_are_refused(world, as_bob):
    own = ["resource_request:try", "resource_request:confirm", "resource_request:cancel"]
    own += [f"users/bob/job_metrics/fit:{verb}" for verb in ("begin", "finish", "delete")]
    for path in own:
        as_bob.refused(
            "put", path, {"id": "x", "applier": "jm", "request_type": "request"} if "resource" in path else {}
        )
    as_bob.refused("put", "tenants/default", {"cpu": 1000})
    as_bob.refused("post", "aiops/model/train", {})
    assert snapshot() == world


def test_a_jobs_token_may_report_on_its_job_and_nothing_else(world, alice):
    job = Job.objects.get(user=alice, name="fit")
    client = Api(job_token(job))
    for method, path, body in calls():
        if (method, path) in OPEN:
            continue
        response = answer(client, method, path, body)
        assert response.status_code == 403, (method, path)  # also its own: without a body
        says = response.json()["msg"]
        assert bool(NOT_FOR_JOBS.search(says)) is ((method, path) not in OF_A_JOB), (method, path, says)
    for method, path in OF_A_JOB:
        other = path.replace("fit", "done").replace("alice", "bob")
        for foreign in (path.replace("fit", "waiting"), other):
            client.refused(method, foreign.removeprefix("/api/v1/"), {"state": "finished", "progress": 100})
    assert snapshot() == world
    report = {"state": "running", "progress": 50}
    assert client.call("put", "users/alice/jobs/fit:heartbeat", report).status_code == 200


def test_the_token_of_a_job_that_has_ended_is_no_token(world, alice):
    client = Api(job_token(Job.objects.get(user=alice, name="done")))
    for method, path in OF_A_JOB:
        client.refused(
            method, path.removeprefix("/api/v1/").replace("fit", "done"), {"state": "finished", "progress": 100}
        )
    assert snapshot() == world


def pages() -> list[str]:
    """Return an address for each pattern of the URLconf outside of REST, about alice's objects."""

    def walk(patterns, before: str = ""):
        for pattern in patterns:
            text = before + str(pattern.pattern)
            if hasattr(pattern, "url_patterns"):
                yield from walk(pattern.url_patterns, text)
            else:
                yield text

    addresses = set()
    for text in walk(get_resolver().url_patterns):
        if not text.startswith("api/"):
            address = re.sub(r"<(?:\w+:)?(\w+)>", lambda name: VALUES.get(name.group(1), "1"), text)
            addresses.add("/" + re.sub(r"[\^$\\]|\(\?P.*?\)", "", address))
    assert len(addresses) > 150
    return sorted(addresses)


def let_in(client, address: str) -> list[int]:
    """Return the answers that are neither a refusal nor the way to the login."""
    answers = [client.get(address), client.post(address, {})]
    return [
        answer.status_code for answer in answers
        if answer.status_code < 300
        or (answer.status_code < 400 and not re.search("login|/admin$|/admin/$", answer["Location"]))
    ]  # fmt: skip


def test_without_a_session_every_page_leads_to_the_login(world):
    client = visitor()
    wrong = {address: let_in(client, address) for address in pages() if not OPEN_PAGES.match(address)}
    assert {address: codes for address, codes in wrong.items() if codes} == {}
    assert snapshot() == world


# in the quick tests, a tenant's administrator tries the others: see test_roles
@pytest.mark.parametrize(("below", "least"), [("/internal/", 5), later("/admin/", 80)])
def test_a_users_session_opens_no_page_of_the_administrators(world, bob, below, least):
    client = visitor(bob)
    admin = [address for address in pages() if address.startswith(below) and not OPEN_PAGES.match(address)]
    assert len(admin) > least
    wrong = {address: let_in(client, address) for address in admin}
    assert {address: codes for address, codes in wrong.items() if codes} == {}
    assert snapshot() == world


@pytest.mark.parametrize("part", TENTH)
def test_another_users_session_sees_nothing_of_theirs(world, bob, part):
    client = visitor(bob)
    theirs = [address for address in pages() if re.search(r"/(jobs|datasets|models|apps)/fit", address)]
    assert len(theirs) > 10
    for address in theirs[part]:
        for response in (client.get(address), client.post(address, {})):
            assert response.status_code in {403, 404, 405}, (address, response.status_code)
    assert snapshot() == world


def test_a_token_is_no_session_and_a_job_token_opens_no_page(world, alice):
    token = job_token(Job.objects.get(user=alice, name="fit"))
    for value in (token, accounts.token_of(alice)):
        for address in ("/index", "/jobs/fit", "/account", "/admin/"):
            answered = visitor().get(address, HTTP_AUTHORIZATION=f"Bearer {value}")
            assert answered.status_code == 302, address
        assert visitor().get(f"/index?token={value}").status_code == 302

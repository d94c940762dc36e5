"""One error form for everything below /api/v1, whatever raises it."""

from __future__ import annotations

import pytest
from django.db.utils import OperationalError
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel.errors import Fault, Refused
from mlp.tests.tiers import few, later

pytestmark = pytest.mark.django_db

PATHS = [
    "auth",
    "users",
    "users/alice",
    "users/alice/token",
    "users/alice/token:rotate",
    "users/alice/datasets",
    "users/alice/datasets/x",
    "users/alice/datasets/x:heartbeat",
    "users/alice/jobs",
    "users/alice/jobs/x",
    "users/alice/jobs/x:heartbeat",
    "users/alice/jobs/x:cancel",
    "users/alice/jobs/x/log",
    "users/alice/jobs/x/metrics",
    "users/alice/jobs/x/artifacts",
    "users/alice/jobs/x/artifacts/a/b",
    "users/alice/job_metrics/x",
    "users/alice/job_metrics/x:begin",
    "resource_request:try",
    "resource_request:confirm",
    "resource_request:cancel",
    "tenants",
    "tenants/default",
    "",
    "nothing",
    "users/",
    "users/alice/jobs/",
    "../x",
    "users/alice:verb",
    "users/%00",
]
METHODS = ["get", "post", "put", "patch", "delete", "options", "head", "trace"]
ALLOWED = {200, 201, 403, 503}


def assert_form(response, method: str = "get") -> None:
    assert response.status_code in ALLOWED
    if response.status_code >= 400 and method != "head":
        assert response["Content-Type"].startswith("application/json")
        assert set(response.json()) == {"msg"}
        assert response.json()["msg"].strip()
        assert "Traceback" not in response.json()["msg"]


@pytest.mark.parametrize("path", few(PATHS, 10))
def test_every_path_and_method_answers_in_the_error_form(api, as_alice, path):
    for method in METHODS:
        for caller in (as_alice, api(), api("false")):
            response = getattr(Client, method)(caller, f"/api/v1/{path}", **caller_headers(caller))
            assert_form(response, method)


def caller_headers(caller) -> dict:
    return {"HTTP_AUTHORIZATION": f"Bearer {caller.token}"} if caller.token else {}


@pytest.mark.parametrize(
    ("content_type", "body"),
    few(
        [
            ("application/json", b"{not json"),
            ("application/json", b""),
            ("application/json", b"null"),
            ("application/json", b"[]"),
            ("application/json", b'"text"'),
            ("application/json", b"\xff\xfe"),
            ("application/json", b'{"name": NaN}'),
            ("application/json", b'{"name": "x", "size": 1e999}'),
            ("application/json", b"[" * 100_000),
            ("application/json", b"[%s{}]" % (b"{}," * 300_000)),
            ("text/plain", b"name=x"),
            ("application/xml", b"<x/>"),
            ("multipart/form-data; boundary=x", b"--x--"),
            ("application/x-www-form-urlencoded", b"name=x&size=3"),
        ],
        4,
    ),
)
def test_every_body_is_answered_in_the_error_form(as_alice, content_type, body):
    for method, path in (
        ("post", "datasets"),
        ("post", "jobs"),
        ("post", "job_metrics/x"),
        ("put", "jobs/x:heartbeat"),
    ):
        call = getattr(super(type(as_alice), as_alice), method)
        response = call(f"/api/v1/users/alice/{path}", body, content_type=content_type, **caller_headers(as_alice))
        assert response.status_code == 403
        assert_form(response)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(["name", "entry", "size", "state", "progress", "gpu", "cpu", "ram", "env", "args", "datasets"])


@pytest.mark.parametrize("most", [4, later(100)])
def test_no_body_causes_a_server_error(as_alice, most):
    @settings(max_examples=most, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(body=st.dictionaries(FIELDS, JSON, max_size=6))
    def probe(body):
        for method, path in (
            ("post", "datasets"),
            ("post", "jobs"),
            ("put", "datasets/x:heartbeat"),
            ("put", "jobs/x:heartbeat"),
            ("post", "job_metrics/x"),
        ):
            response = as_alice.call(method, f"users/alice/{path}", body)
            assert response.status_code in {201, 403}, (path, body, response.content)
            assert_form(response)

    probe()


@pytest.mark.parametrize(
    ("method", "path", "body", "msg"),
    few(
        [
            ("delete", "datasets/x", b'{"\\ud800": 1}', "\\ud800: must be valid text"),
            ("delete", "datasets/x", b'{"a\\uDFFFb": 1}', "a\\udfffb: must be valid text"),
            ("put", "jobs/x:cancel", b'"\\ud800"', "body: must be valid text"),
            ("put", "jobs/x:cancel", b'{"x": "\\ud800"}', "x: must be valid text"),
            ("post", "jobs", b'{"name": "x", "env": {"A": "\\udc00\\ud800"}}', "env: must be valid text"),
            ("post", "jobs", b'{"name": "x", "env": {"\\ud800": ""}}', "env: must be valid text"),
            ("post", "job_metrics/x", b'[{"epoch": 1}, {"\\ud800": [[1]]}]', "\\ud800: must be valid text"),
            ("post", "datasets", b'{"size": 1, "no": {"a": [["\\ud800"]]}}', "no: must be valid text"),
            ("delete", "datasets/x", b'{"\\ud83d\\ude00": 1}', "\U0001f600: unknown field"),
            ("delete", "datasets/x", b'{"\\u0000": 1}', "\0: unknown field"),
            ("delete", "datasets/x", b'{"\\\\ud800": 1}', "\\ud800: unknown field"),
        ],
        3,
    ),
)
def test_lone_surrogates_are_refused_everywhere(as_alice, method, path, body, msg):
    call = getattr(super(type(as_alice), as_alice), method)
    response = call(f"/api/v1/users/alice/{path}", body, content_type="application/json", **caller_headers(as_alice))
    assert response.status_code == 403, response.content
    assert response.json() == {"msg": msg}


@pytest.mark.parametrize(
    ("body", "line", "field"),
    [
        (b'{"log": "\\ud800"}', 1, "log"),
        (b'{"log": "x"}\n{"log": "\\ud800"}', 2, "log"),
        (b'{"log": "x", "\\ud800": "\\ud800"}', 1, "attributes"),
    ],
)
def test_lone_surrogates_are_replaced_in_log_lines_and_named(as_alice, body, line, field):
    response = super(type(as_alice), as_alice).post(
        "/api/v1/aiops/logs", body, content_type="application/x-ndjson", **caller_headers(as_alice)
    )
    [problem] = response.json()["problems"]
    assert (response.status_code, problem["line"], problem["msg"].split(":")[0]) == (200, line, field)


@pytest.mark.parametrize("error", [Refused("half \ud800"), Fault("half \ud800")])
def test_unprintable_characters_in_a_message_are_replaced(as_alice, monkeypatch, error):
    def fails(*args, **options):
        raise error

    monkeypatch.setattr("kernel.errors.log.disabled", True)  # the reports of a parallel run cannot hold it either
    monkeypatch.setattr("datasets.lifecycle.create_dataset", fails)
    response = as_alice.call("post", "users/alice/datasets", {"name": "x", "size": 1})
    assert response.status_code == (403 if isinstance(error, Refused) else 503)
    assert response.json() == {"msg": "half \\ud800"}


def test_an_exception_answers_503_without_details(as_alice, monkeypatch):
    def broken(*args, **options):
        raise RuntimeError("secret inner detail")

    monkeypatch.setattr("datasets.lifecycle.create_dataset", broken)
    response = as_alice.call("post", "users/alice/datasets", {"name": "x", "size": 1})
    assert response.status_code == 503
    assert_form(response)
    assert "secret" not in response.content.decode()


def test_a_lost_database_answers_503(as_alice, monkeypatch):
    def lost(*args, **options):
        raise OperationalError("connection refused to 10.0.0.1")

    monkeypatch.setattr("accounts.tokens.lookup", lost)
    response = as_alice.call("get", "users/alice")
    assert response.status_code == 503
    assert_form(response)
    assert "10.0.0.1" not in response.content.decode()


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=-1", "offset=-1", "state=no", "foo=1"])
def test_wrong_parameters_are_named(as_alice, query):
    assert as_alice.refused("get", f"users/alice/datasets?{query}").startswith(query.split("=")[0] + ":")


def test_lists_are_plain_newest_first_and_counted(as_alice):
    for name in ("a", "b", "c"):
        as_alice.call("post", "users/alice/datasets", {"name": name, "size": 0})
    response = as_alice.call("get", "users/alice/datasets?limit=2&offset=1")
    assert [row["name"] for row in response.json()] == ["b", "a"]
    assert response["X-Total-Count"] == "3"
    assert len(as_alice.call("get", "users/alice/datasets?state=creating").json()) == 3
    assert as_alice.call("get", "users/alice/datasets?state=ready").json() == []


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    few(
        [
            ("put", "users/alice/token:rotate", {"x": 1}, "x"),
            ("put", "users/alice/jobs/x:cancel", {"x": 1}, "x"),
            ("put", "users/alice/jobs/x:cancel", [1], "body"),
            ("delete", "users/alice/jobs/x", {"x": 1}, "x"),
            ("get", "users/alice/jobs/x?y=1", None, "y"),
            ("get", "users/alice/jobs/x/log?foo=1", None, "foo"),
            ("post", "users/nobody/datasets", {"name": 1}, "name"),
        ],
        3,
    ),
)
def test_unknown_parameters_are_refused_before_objects_are_read(as_staff, method, path, body, field):
    assert as_staff.refused(method, path, body).startswith(f"{field}:")


@pytest.mark.parametrize("path", ["users/alice%00", "users/alice/jobs/x%00", "users/alice/jobs/x/artifacts/a%00b"])
def test_a_null_character_in_a_path_is_a_refusal(as_staff, path):
    assert as_staff.refused("get", path)


def test_too_many_parameters_are_a_refusal(as_alice):
    assert as_alice.refused("get", "users/alice/jobs?" + "&".join(["limit=1"] * 5000))


def test_responses_are_not_cached(as_alice):
    assert as_alice.call("get", "users/alice/token")["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/", "/api/v1/auth"])
def test_a_host_that_is_no_name_is_refused_without_a_traceback_in_the_log(client, caplog, path):
    assert client.get(path, headers={"host": "a b"}).status_code in {400, 403}
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize(
    "body", few([{"items": [{}] * 5000}, {"items": [], "x" * 100_000: 1}, {"items": [{"a" * 100_000: 1}]}], 1)
)
def test_a_refusal_is_short_whatever_is_refused(as_staff, body):
    assert len(as_staff.refused("post", "aiops/model/train", body)) < 5000

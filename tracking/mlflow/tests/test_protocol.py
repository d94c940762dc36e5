"""The form of the MLflow protocol: who may call, what an error looks like, where addresses lead."""

from __future__ import annotations

import base64
import uuid

import pytest
from django.db import OperationalError
from django.test import RequestFactory

from accounts import lifecycle as accounts
from jobs.models import Job
from kernel.errors import Fault, Refused, TooMany
from kernel.locking import Missing
from mlflow_protocol import protocol
from mlflow_protocol.protocol import MlflowError
from mlp.tests.page_world import fill, visitor
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db


def answer(handler, user, header: str | None = None, method: str = "POST", body: bytes = b"{}", **methods):
    request = getattr(RequestFactory(), method.lower())(
        "/mlflow/api/2.0/mlflow/x", body, content_type="application/json",
        HTTP_AUTHORIZATION=f"Bearer {accounts.token_of(user)}" if header is None else header,
    )  # fmt: skip
    return protocol.endpoint({"POST": handler, **methods})(request)


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def test_a_token_is_taken_as_bearer_and_as_the_password_of_basic(alice):
    token = accounts.token_of(alice)
    for header in (f"Bearer {token}", basic("alice", token), basic("", token)):
        response = answer(lambda call: {"by": call.caller.by}, alice, header)
        assert (response.status_code, response.content) == (200, b'{"by":"alice"}')


@pytest.mark.parametrize("header", ["", "Bearer mlp_u1_x", "Basic !", "Bearer a b", "Digest x"])
def test_another_credential_is_unauthenticated(alice, header):
    response = answer(lambda call: {}, alice, header)
    assert (response.status_code, b"UNAUTHENTICATED" in response.content) == (401, True)
    assert response["WWW-Authenticate"].startswith("Basic")
    assert answer(lambda call: {}, alice, basic("bob", accounts.token_of(alice))).status_code == 401
    assert answer(lambda call: {}, alice, basic("alice", "correct horse battery")).status_code == 401


@pytest.mark.parametrize(
    ("problem", "status", "code"),
    [
        (MlflowError("RESOURCE_ALREADY_EXISTS", "x"), 400, "RESOURCE_ALREADY_EXISTS"),
        (Missing("project"), 404, "RESOURCE_DOES_NOT_EXIST"),
        (Refused("must be %(x)s", field="name", x=1), 400, "INVALID_PARAMETER_VALUE"),
        (TooMany("later", seconds=7), 429, "RESOURCE_EXHAUSTED"),
        (Fault("away"), 503, "TEMPORARILY_UNAVAILABLE"),
        (OperationalError("gone"), 503, "TEMPORARILY_UNAVAILABLE"),
        (RuntimeError("bug: /etc/secret"), 500, "INTERNAL_ERROR"),
    ],
)
def test_every_error_has_the_form_of_mlflow(alice, problem, status, code):
    def fail(call):
        raise problem

    response = answer(fail, alice)
    assert (response.status_code, response["Content-Type"]) == (status, "application/json")
    assert f'"error_code": "{code}"' in response.content.decode()
    assert "secret" not in response.content.decode()
    assert ("Retry-After" in response) == (status in (429, 503))


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b"[%s0]" % (b"0," * 600_000)])
def test_a_body_that_is_no_object_is_an_invalid_parameter(alice, body):
    assert answer(lambda call: {}, alice, body=body).status_code == 400


def test_numbers_and_texts_are_read_as_protocol_buffers_write_them(alice):
    def read(call):
        fields = call.fields
        return {"a": fields.whole("a"), "b": fields.number("b") != fields.number("b"), "c": fields.whole("c", 5),
                "d": fields.pairs("d")}  # fmt: skip

    body = b'{"a": "12", "b": "NaN", "c": null, "d": [{"key": "k", "value": "v"}], "unknown": 1}'
    assert answer(read, alice, body=body).content == b'{"a":12,"b":true,"c":5,"d":[["k","v"]]}'
    for wrong in (b'{"a": true}', b'{"a": 1.5}', b'{"a": "x"}', b'{"a": 1e30}', b'{"a": 1, "b": "x"}'):
        assert answer(read, alice, body=wrong).status_code == 400


def test_another_method_and_another_address_are_no_endpoints(client, alice, mlflow):
    assert answer(lambda call: {}, alice, method="DELETE").status_code == 405
    assert mlflow.refused("post", "traces/search") == "ENDPOINT_NOT_FOUND"
    assert mlflow.send("get", "nothing").status_code == 404


def test_what_needs_no_token(client):
    assert client.get("/mlflow/health").content == b"OK"
    assert client.get("/mlflow/version").content.startswith(b"3.")
    for path in ("health", "version", "api/3.0/mlflow/server-info"):
        assert client.head(f"/mlflow/{path}").status_code == 200
    assert client.get("/mlflow/api/3.0/mlflow/server-info").status_code == 200
    assert b"mlflow.js" in client.get("/mlflow/").content


def test_the_address_of_a_run_leads_to_its_page_if_the_visitor_may_read_it(alice, bob):
    fill(alice)
    job = Job.objects.get(user=alice, name="fit")
    address = f"/mlflow/runs/{job.run_id.hex}"
    assert visitor(alice).get(address)["Location"] == "/jobs/fit"
    assert visitor(bob).get(address).status_code == 404
    assert visitor(alice).get(f"/mlflow/runs/{uuid.uuid4().hex}").status_code == 404
    assert visitor(alice).get("/mlflow/experiments/99999").status_code == 404


def test_a_workspace_is_the_callers_tenant(client, alice, mlflow, default_tenant):
    def call(method: str, route: str, workspace: str = ""):
        headers = {"HTTP_AUTHORIZATION": f"Bearer {mlflow.token}", "HTTP_X_MLFLOW_WORKSPACE": workspace}
        response = getattr(client, method)(f"/mlflow/api/{route}", content_type="application/json", **headers)
        return response.status_code, response.json()

    name = alice.tenant.name
    assert call("get", "3.0/mlflow/server-info")[1]["workspaces_enabled"] is True
    assert call("get", "3.0/mlflow/workspaces") == (200, {"workspaces": [{"name": name}]})
    assert call("get", f"3.0/mlflow/workspaces/{name}") == (200, {"workspace": {"name": name}})
    assert call("get", "3.0/mlflow/workspaces/other")[0] == 404
    assert call("post", "3.0/mlflow/workspaces")[1]["error_code"] == "PERMISSION_DENIED"
    address = "2.0/mlflow/experiments/get?experiment_id=0"
    assert call("get", address, name)[0] == call("get", address)[0] == 200
    status, answer = call("get", address, "other")
    assert (status, answer["error_code"]) == (404, "RESOURCE_DOES_NOT_EXIST")


@pytest.mark.parametrize(
    ("route", "fields", "message"),
    few(
        [
            ("runs/log-metric", {"run_id": 31}, "Invalid value 31 for parameter 'run_id' supplied"),
            ("runs/log-metric", {"step": "foo"}, "Invalid value \"foo\" for parameter 'step' supplied"),
            ("runs/log-metric", {"key": None}, "Missing value for required parameter 'key'"),
            ("runs/log-batch", {"metrics": "foo"}, "Invalid value \"foo\" for parameter 'metrics' supplied"),
            ("runs/log-batch", {"metrics": [{"key": "a", "value": 1}]}, "required parameter 'metrics[0].timestamp'"),
            ("runs/log-parameter", {"key": 31}, "Invalid value 31 for parameter 'key' supplied"),
            ("runs/set-tag", {"key": "k", "value": 41}, "Invalid value 41 for parameter 'value' supplied"),
            ("runs/search", {"max_results": 123456789}, "Invalid value 123456789 for parameter 'max_results' supplied"),
            ("experiments/create", {"name": 123}, "Invalid value 123 for parameter 'name' supplied"),
            ("experiments/create", {"name": "a", "artifact_location": 9.5}, "Invalid value 9.5 for parameter"),
        ],
        4,
    ),
)
def test_a_refusal_names_the_value_as_mlflow_does(mlflow, route, fields, message):
    run = mlflow.call("post", "runs/create", experiment_id="0")["run"]["info"]["run_id"]
    point = {"run_id": run, "key": "loss", "value": 0.5, "timestamp": 5, "step": 1}
    sent = {**(point if route == "runs/log-metric" else {"run_id": run}), **fields}
    response = mlflow.send("post", route, sent)
    assert (response.status_code, response.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert message in response.json()["message"]

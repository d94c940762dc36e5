"""The OpenAPI schema: real answers to generated requests match it."""

from __future__ import annotations

import gzip
import json
import re
from contextlib import contextmanager

import jsonschema
import pytest
import schemathesis
from django.core.cache import cache
from django.core.management import call_command
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, transaction
from django.urls import URLPattern, URLResolver, get_resolver
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from kernel.tests.nats_tools import Peer
from kernel.views import ContractView
from mlp.tests.tiers import later
from mlp.wsgi import application

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    negative_data_rejection,
]


SCHEMA = schemathesis.openapi.from_dict(SchemaGenerator().get_schema(public=True))
SCHEMA.app = application
# These end the caller's token; both are tested by hand.
LEFT_OUT = {"PUT /api/v1/users/{user}", "PUT /api/v1/users/{user}/token:rotate"}
OPERATIONS = [result.ok() for result in SCHEMA.get_all_operations() if result.ok().label not in LEFT_OUT]


@contextmanager
def kept_connection():
    """Keep the database connection open: the real WSGI application closes it after a request, but the test's
    transaction lives on it. Not a fixture, since Django's test client reconnects the signals after each request.
    """
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def training_controller():
    """A training controller that accepts every request and does nothing."""
    peer = Peer()
    peer.listen("train_model", answer=lambda data: b"training job submitted")
    yield
    peer.close()


def try_out(operation, token: str, most: int) -> None:
    """Send generated requests to an operation, about alice's objects named x and about others; judge the answers."""
    seen = set()

    @settings(max_examples=most, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(), known=st.booleans())
    def probe(case, known):
        if known or most == 1:
            case.path_parameters.update({name: "x" for name in case.path_parameters if name != "path"})
        if "user" in case.path_parameters:
            case.path_parameters["user"] = "alice"
        response = case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, checks=CHECKS)
        seen.add(response.status_code)

    with kept_connection():
        probe()
    assert seen


@pytest.mark.django_db
@pytest.mark.usefixtures("training_controller")
@pytest.mark.parametrize(("part", "most"), [(slice(None, None, 10), 1), later(slice(None), 3)])
def test_answers_match_the_schema(as_alice, as_staff, home, part, most):
    """Alice's objects are made once; what the requests to an operation do to them is undone before the next."""
    assert as_alice.call("post", "users/alice/datasets", {"name": "x", "size": 0}).status_code == 201
    assert as_alice.call("post", "users/alice/jobs", {"name": "x", "entry": "train.py"}).status_code == 201
    assert len(OPERATIONS) > 150
    wrong = {}
    for operation in OPERATIONS[part]:
        begin = transaction.savepoint()
        try:
            try_out(operation, as_staff.token, most)
        except (Exception, BaseExceptionGroup) as problem:  # the second is of several rules that are broken
            wrong[operation.label] = "\n".join([str(problem), *getattr(problem, "__notes__", [])])
        transaction.savepoint_rollback(begin)
        cache.clear()
    assert wrong == {}


def contract_views(patterns) -> list[str]:
    names = []
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            names += contract_views(pattern.url_patterns)
        elif isinstance(pattern, URLPattern):
            view = getattr(pattern.callback, "cls", None)
            if view is not None and issubclass(view, ContractView):
                names += [f"{method.lower()}{view.__name__}" for method in view.calls]
    return names


@pytest.mark.django_db
def test_every_call_is_in_the_schema_with_its_statuses_and_no_other(client):
    operations = {
        operation["operationId"]: set(operation["responses"])
        for path in client.get("/api/v1/schema").json()["paths"].values()
        for operation in path.values()
    }
    assert set(operations) == set(contract_views(get_resolver().url_patterns))
    assert all(statuses in ({"200", "403", "503"}, {"201", "403", "503"}) for statuses in operations.values())


@pytest.mark.long
@pytest.mark.django_db
def test_strangers_make_the_platform_generate_the_schema_once(client, as_alice, monkeypatch):
    """It takes a second of a processor, and anybody may ask for it: in any language, and with any other parameters."""
    generated, get_schema = [], SchemaGenerator.get_schema
    monkeypatch.setattr(SchemaGenerator, "get_schema", lambda *a, **k: generated.append(1) or get_schema(*a, **k))
    first = client.get("/api/v1/schema")
    assert as_alice.call("get", "schema?version=2&lang=xx").content == first.content
    assert client.get("/api/v1/schema?lang=../x", headers={"accept-language": "de"}).content == first.content
    packed = client.get("/api/v1/schema", headers={"accept-encoding": "br, gzip"})
    assert gzip.decompress(packed.content) == first.content
    for tag in (first["ETag"], packed["ETag"], first["ETag"].removeprefix("W/")):
        unchanged = client.get("/api/v1/schema", headers={"if-none-match": tag})
        assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert len(generated) == 1
    chinese = client.get("/api/v1/schema", headers={"accept-language": "zh-CN", "if-none-match": first["ETag"]})
    assert (chinese.status_code, len(generated)) == (200, 2)
    assert chinese.content != first.content
    assert client.get("/api/v1/schema?lang=zh-hans").content == chinese.content
    assert (client.post("/api/v1/schema").status_code, len(generated)) == (403, 2)


@pytest.mark.long
def test_the_schema_is_generated_without_warnings(capsys):
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", "/dev/null")


def operations_of(schema: dict) -> dict[str, tuple[str, dict]]:
    """Return (path, operation) by the operation's id."""
    return {each["operationId"]: (path, each) for path, at in schema["paths"].items() for each in at.values()}


def links_of(operation: dict) -> dict[str, dict]:
    return {name: link for answer in operation["responses"].values() for name, link in answer.get("links", {}).items()}


def test_links_lead_from_a_user_to_an_application_and_to_every_removal():
    operations = operations_of(SCHEMA.raw_schema)
    chain = [
        ("postUserList", "getUserToken"), ("postUserList", "postJobList"), ("postJobList", "getJobDetail"),
        ("getJobDetail", "getJobMetricsRows"), ("getJobDetail", "getJobLog"), ("getJobDetail", "getJobArtifacts"),
        ("getJobArtifacts", "getJobArtifact"), ("getJobDetail", "postModelList"), ("postModelList", "getModelDetail"),
        ("getModelDetail", "postAppList"), ("postAppList", "deleteAppDetail"), ("getAppList", "deleteAppDetail"),
        ("getModelDetail", "deleteModelDetail"), ("getJobDetail", "deleteJobDetail"), ("postUserList", "putUserDetail"),
        ("postDatasetList", "putDatasetHeartbeat"), ("deleteDatasetDetail", "getDatasetDetail"),
        ("putTryRequest", "putConfirmRequest"), ("getVersions", "putServeVersion"),
    ]  # fmt: skip
    assert [pair for pair in chain if pair[1] not in links_of(operations[pair[0]][1])] == []


def test_a_link_gives_each_variable_of_the_path_that_it_leads_to():
    operations = operations_of(SCHEMA.raw_schema)
    wrong = [
        (source, name)
        for source, (_path, operation) in operations.items()
        for name, link in links_of(operation).items()
        if set(re.findall(r"{(\w+)}", operations[link["operationId"]][0])) != set(link["parameters"])
    ]
    assert wrong == []
    assert not re.search(r'"x-(kind|after)"', json.dumps(SCHEMA.raw_schema))


def test_unknown_fields_of_a_body_are_excluded_by_the_schema():
    closed = {
        name: body.get("additionalProperties")
        for name, body in SCHEMA.raw_schema["components"]["schemas"].items()
        if name.endswith("In") or name == "Error"
    }
    assert set(closed.values()) == {False}, closed


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("body", "schema", "good", "bad"),
    [
        ("JobIn", "entry", ["train.py", "a/b.py", "..a", "a."], ["", "/a", "a/", "a//b", "../a", "a/..", "a/./b"]),
        ("ModelIn", "src", ["jobs/fit", "jobs/fit/a/b", "home/a b"], ["jobs/", "home/", "jobs/fit/../x", "home/a//b"]),
        ("TryIn", "id", ["a:1", "jobs:1", "job:"], ["job:1", "app:77", "", "a b"]),
        ("UserIn", "password", ["x" * 8, "x" * 128], ["x" * 7, "x" * 129, ""]),
    ],
)  # fmt: skip
def test_the_schema_of_a_text_tells_good_from_bad(body, schema, good, bad):
    declared = SCHEMA.raw_schema["components"]["schemas"][body]["properties"][schema]
    valid = jsonschema.Draft7Validator(declared).is_valid
    assert [text for text in good if not valid(text)] == []
    assert [text for text in bad if valid(text)] == []

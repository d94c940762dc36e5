"""The OpenAPI schema: real answers to generated requests match it."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import schemathesis
from django.core.management import call_command
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.urls import URLPattern, URLResolver, get_resolver
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from kernel.tests.nats_tools import Peer
from kernel.views import ContractView
from mlp.wsgi import application

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
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


@pytest.mark.django_db
@pytest.mark.usefixtures("training_controller")
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_answers_match_the_schema(operation, as_alice, as_staff, home):
    as_alice.call("post", "users/alice/datasets", {"name": "x", "size": 0})
    as_alice.call("post", "users/alice/jobs", {"name": "x", "entry": "train.py"})
    seen = set()

    @settings(max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(), known=st.booleans())
    def probe(case, known):
        if known:
            case.path_parameters.update({name: "x" for name in case.path_parameters if name != "path"})
        if "user" in case.path_parameters:
            case.path_parameters["user"] = "alice"
        response = case.call_and_validate(headers={"Authorization": f"Bearer {as_staff.token}"}, checks=CHECKS)
        seen.add(response.status_code)

    with kept_connection():
        probe()
    assert seen


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


def test_the_schema_is_generated_without_warnings(capsys):
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", "/dev/null")

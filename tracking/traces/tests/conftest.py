"""A sender of spans, and clients of the MLflow protocol."""

from __future__ import annotations

import json

import pytest
from django.test import Client

from accounts import lifecycle as accounts
from tracking.mlflow.tests.conftest import Mlflow, mlflow, mlflow_of_bob

__all__ = ["mlflow", "mlflow_of_bob"]

SECOND = 1_000_000_000
BEGIN = 1_790_000_000 * SECOND
TRACE = "0af7651916cd43dd8448eb211c80319c"


class Sender(Client):
    """Sends spans to the intake as one user."""

    def __init__(self, token: str):
        super().__init__(raise_request_exception=False)
        self.token = token

    def raw(self, data: bytes, kind: str = "application/json", address: str = "/v1/traces", **headers):
        headers.setdefault("HTTP_AUTHORIZATION", f"Bearer {self.token}")
        return self.post(address, data, content_type=kind, **headers)

    def spans(self, *spans: dict, resource: dict | None = None, **headers) -> dict:
        """Send spans as JSON; return the answer of a request that succeeds."""
        answer = self.raw(json.dumps(body(*spans, resource=resource)).encode(), **headers)
        assert answer.status_code == 200, answer.content
        return answer.json()["partialSuccess"]


def body(*spans: dict, resource: dict | None = None) -> dict:
    about = {"attributes": pairs(resource or {})}
    return {"resourceSpans": [{"resource": about, "scopeSpans": [{"scope": {"name": "tests"}, "spans": list(spans)}]}]}


def span(
    number: int, parent: int = 0, *, trace: str = TRACE, begin: float = 0, lasted: float | None = 1, **more
) -> dict:
    """Return a span; `begin` and `lasted` are seconds, `attributes` plain values."""
    started = BEGIN + int(begin * SECOND)
    made = {
        "traceId": trace, "spanId": f"{number:016x}", "name": more.pop("name", f"step {number}"), "kind": 1,
        "startTimeUnixNano": str(started), "attributes": pairs(more.pop("attributes", {})),
    }  # fmt: skip
    if parent:
        made["parentSpanId"] = f"{parent:016x}"
    if lasted is not None:
        made["endTimeUnixNano"] = str(started + int(lasted * SECOND))
    return {**made, **more}


def pairs(values: dict) -> list[dict]:
    return [{"key": name, "value": any_value(value)} for name, value in values.items()]


def any_value(value) -> dict:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [any_value(item) for item in value]}}
        case dict():
            return {"kvlistValue": {"values": pairs(value)}}
    return {"stringValue": value}


class Mlflow3(Mlflow):
    """Calls of MLflow 3."""

    def send(self, method: str, route: str, body=None, **headers):
        headers.setdefault("HTTP_AUTHORIZATION", f"Bearer {self.token}")
        address = f"/mlflow/api/3.0/mlflow/{route}"
        if method == "get":
            return self.get(address, body or {}, **headers)
        return getattr(self, method)(address, {} if body is None else body, content_type="application/json", **headers)


@pytest.fixture
def sender(alice):
    return Sender(accounts.token_of(alice))


@pytest.fixture
def mlflow3(alice):
    return Mlflow3(accounts.token_of(alice))


@pytest.fixture
def mlflow3_of_bob(bob):
    return Mlflow3(accounts.token_of(bob))

"""A client of the MLflow protocol for the tests below."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts import lifecycle as accounts

from .live import front, site

__all__ = ["front", "site"]


class Mlflow(Client):
    """Calls of one user by the names of MLflow's REST reference."""

    def __init__(self, token: str = ""):
        super().__init__(raise_request_exception=False)
        self.token = token

    def send(self, method: str, route: str, body=None, **headers):
        if self.token:
            headers.setdefault("HTTP_AUTHORIZATION", f"Bearer {self.token}")
        address = f"/mlflow/api/2.0/mlflow/{route}"
        if method == "get":
            return self.get(address, body or {}, **headers)
        return getattr(self, method)(address, {} if body is None else body, content_type="application/json", **headers)

    def call(self, method: str, route: str, /, **fields) -> dict:
        """Return the answer of a call that succeeds."""
        response = self.send(method, route, fields)
        assert response.status_code == 200, (response.status_code, response.content)
        return response.json()

    def refused(self, method: str, route: str, /, **fields) -> str:
        """Return the code of a call that is refused in MLflow's form."""
        response = self.send(method, route, fields)
        assert response.status_code >= 400, response.content
        assert set(response.json()) == {"error_code", "message"}
        assert response.json()["message"]
        return response.json()["error_code"]


@pytest.fixture
def mlflow(alice):
    return Mlflow(accounts.token_of(alice))


@pytest.fixture
def mlflow_of_bob(bob):
    return Mlflow(accounts.token_of(bob))

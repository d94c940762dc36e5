"""The three endpoints that take a password, as clients at some address call them."""

from __future__ import annotations

import base64

import pytest
from django.test import Client

from accounts import throttle
from conftest import Api
from mlp.tests.tiers import later

FREE = 3
HOME, CAFE, GUESSER = "203.0.113.7", "203.0.113.99", "198.51.100.1"


def at(address: str, **headers) -> dict:
    """Return what the gateway adds to the requests of a client at that address."""
    return {"REMOTE_ADDR": "", "HTTP_X_REAL_IP": address, "HTTP_X_GATEWAY_KEY": throttle.gateway_key(), **headers}


def page(password: str, address: str, client: Client | None = None, username: str = "alice"):
    form = {"username": username, "password": password, "action": "login"}
    return (client or Client()).post("/regist_login", form, **at(address))


def admin(password: str, address: str, client: Client | None = None, username: str = "alice"):
    form = {"username": username, "password": password, "next": "/admin/"}
    return (client or Client()).post("/admin/login/", form, **at(address))


def token(password: str, address: str, client: Client | None = None, username: str = "alice"):
    pair = base64.b64encode(f"{username}:{password}".encode()).decode()
    return Api().call("get", f"users/{username}/token", HTTP_AUTHORIZATION=f"Basic {pair}", **at(address))


def entered(response) -> bool:
    return response.status_code == 302 or (response.status_code == 200 and b"mlp_u" in response.content)


LOGINS = pytest.mark.parametrize("log_in", [page, later(admin), token])

"""Fixtures of the client's tests: the one file, as users run it, against the running data service and REST."""

from __future__ import annotations

import pytest

from client.tests.running import Client
from datasets.tests.live import alice_data, bob_data, servers, service

__all__ = ["alice_data", "bob_data", "servers", "service"]


@pytest.fixture
def client_of(tmp_path):
    """Return a function that makes a client with a home directory of its own."""
    return lambda url, token="": Client(tmp_path, url, token)


@pytest.fixture
def alice_client(client_of, service, alice_data):
    return client_of(service.url, alice_data.token)

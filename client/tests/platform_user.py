"""A user of the shared platform whose commands the tests run, and who leaves it as it was found."""

from __future__ import annotations

import base64
import json
import random
import string

from client.tests.running import Client
from supervision.tests.running import Platform

PASSWORD = "correct horse battery"


def joined(platform: Platform, folder) -> tuple[Client, str, dict]:
    """Register a user; return a client that is logged in, the name, and the headers that show the token."""
    name = "client" + "".join(random.choice(string.ascii_lowercase) for _ in range(8))
    body = json.dumps({"username": name, "password": PASSWORD}).encode()
    assert platform.get("/api/v1/users", data=body, **{"Content-Type": "application/json"})[0] == 201
    login = base64.b64encode(f"{name}:{PASSWORD}".encode()).decode()
    token = json.loads(platform.get(f"/api/v1/users/{name}/token", Authorization=f"Basic {login}")[2])
    client = Client(folder, f"http://127.0.0.1:{platform.base + 1}", token)
    return client, name, {"Authorization": f"Bearer {token}"}

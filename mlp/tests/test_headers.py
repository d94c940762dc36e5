"""Headers that keep browsers from sharing what they are sent; those under TLS as the settings have them then."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from django.conf import settings
from django.test import Client

UNDER_TLS = """
import json, django
django.setup()
from django.test import Client
response = Client(headers={"host": "mlp.example.org"}).get("/password", secure=True)  # asks no database
print(json.dumps({name: response[name] for name in response.headers}))
"""


@pytest.mark.django_db
@pytest.mark.parametrize("address", ["/regist_login", "/api/v1/auth", "/api/v1/docs", "/admin/login/", "/nothing"])
def test_no_other_origin_may_read_an_answer(address):
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "GET"}
    for method in ("get", "options"):
        response = getattr(Client(headers=headers), method)(address)
        assert [name for name in response.headers if name.lower().startswith("access-control")] == []
        assert response["Cross-Origin-Opener-Policy"] == "same-origin"
        assert response["X-Content-Type-Options"] == "nosniff"
        assert "Content-Security-Policy" in response
        assert ("no-store" if address.startswith("/api/v1/a") else "no-") in response["Cache-Control"]


@pytest.mark.long
def test_under_tls_browsers_are_told_to_use_nothing_else():
    environment = {**os.environ, "MLP_URL": "https://mlp.example.org", "DJANGO_SETTINGS_MODULE": "mlp.settings"}
    done = subprocess.run(
        [sys.executable, "-c", UNDER_TLS], cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True
    )
    headers = json.loads(done.stdout)
    assert headers["Strict-Transport-Security"] == "max-age=31536000; includeSubDomains; preload"

"""A request for another host name is refused, and fills no log with tracebacks. No address is made of what it names."""

from __future__ import annotations

import io
import logging
from urllib.parse import urlsplit

import pytest
from django.test import Client

from accounts import lifecycle as accounts
from jobs.models import Job
from kernel.environment import Section
from kernel.pages import address, app_address, program_address
from mlp import host_settings
from mlp.operators.tests.admin_world import put

PATHS = ["/", "/regist_login", "/admin/login/", "/api/v1/auth", "/api/v1/users"]


@pytest.fixture
def written():
    """Return what the platform's log has got, as the settings have it written."""
    (handler,) = [handler for handler in logging.getLogger().handlers if handler.get_name() == "stderr"]
    text = io.StringIO()
    before = handler.setStream(text)
    yield text.getvalue
    handler.setStream(before)


@pytest.mark.parametrize("host", ["evil.example", "a b", "x" * 300, "[::1", "evil.example\r\nX: 1", ""])
@pytest.mark.parametrize("path", PATHS)
def test_it_is_refused_without_a_traceback(path, host, settings, written):
    settings.ALLOWED_HOSTS = ["mlp.example.org"]
    response = Client(raise_request_exception=False).get(path, HTTP_HOST=host)
    assert response.status_code == (403 if path.startswith("/api") else 400)
    if path.startswith("/api"):
        assert set(response.json()) == {"msg"}
    assert "Traceback" not in written()
    assert len(written().splitlines()) <= 1


OURS = ["mlp.example.org", "MLP.example.org:30001", "apps.example.org", "10.1.2.3:30001", "[fd00::1]:80", "localhost"]


def test_with_an_address_of_its_own_the_platform_answers_to_its_own_names_only(settings, monkeypatch):
    monkeypatch.delenv("MLP_ALLOWED_HOSTS", raising=False)
    urls = ("https://mlp.example.org", "https://apps.example.org:8443", "")
    settings.ALLOWED_HOSTS = host_settings.read(Section("Hosts"), urls)
    for host in OURS:
        assert Client().get("/healthz/live", HTTP_HOST=host).status_code == 200, host
    for host in ("evil.example", "10.1.2.3.evil.example", "mlp.example.org.evil.example", "0x7f.1"):
        assert Client().get("/healthz/live", HTTP_HOST=host).status_code == 400, host
        assert Client().get("/api/v1/auth", HTTP_HOST=host, HTTP_X_FORWARDED_HOST=OURS[0]).status_code == 403, host


def test_which_hosts_are_ours(monkeypatch):
    monkeypatch.delenv("MLP_ALLOWED_HOSTS", raising=False)
    assert host_settings.read(Section("Hosts"), ()) == ["*"]
    monkeypatch.setenv("MLP_ALLOWED_HOSTS", "a.example, b.example")
    assert host_settings.read(Section("Hosts"), ()) == ["a.example", "b.example", "127.0.0.1"]


@pytest.mark.parametrize(
    ("host", "seen", "program"),
    [
        ("evil.example", "https://mlp.example.org", "https://mlp.example.org"),
        ("127.0.0.1:30007", "https://mlp.example.org", "http://127.0.0.1:30007"),
        ("mlp.mlp.svc:30001", "https://mlp.example.org", "http://mlp.mlp.svc:30001"),
    ],
)
def test_addresses_are_those_of_the_settings(rf, settings, host, seen, program):
    settings.ALLOWED_HOSTS, settings.GATEWAY_URL_GIVEN = ["*"], True
    settings.GATEWAY_URL, settings.RUN_GATEWAY_URL = "https://mlp.example.org", "http://mlp.mlp.svc:30001"
    request = rf.get("/", HTTP_HOST=host, HTTP_X_FORWARDED_HOST="evil.example", HTTP_X_FORWARDED_PROTO="ftp")
    assert (address(request), program_address(request)) == (seen, program)
    assert app_address(request) == f"https://mlp.example.org:{settings.APP_GATEWAY_PORT}"


SHARE = {"kind": "job", "name": "fit", "audience": "link"}
MLFLOW = "/mlflow/api/2.0/"


@pytest.mark.django_db
def test_what_leaves_the_platform_names_its_own_address(alice, settings):
    """The link of a share, the page at which a program is let in, and where the parts of an artifact go."""
    settings.ALLOWED_HOSTS, settings.GATEWAY_URL_GIVEN = ["*"], True
    settings.GATEWAY_URL, settings.RUN_GATEWAY_URL = "https://mlp.example.org", "http://mlp.mlp.svc:30001"
    put(Job, alice, "fit", "finished")
    headers = {"HTTP_AUTHORIZATION": f"Bearer {accounts.token_of(alice)}", "HTTP_HOST": "evil.example"}
    headers |= {"HTTP_X_FORWARDED_HOST": "evil.example", "HTTP_FORWARDED": "host=evil.example"}

    def ask(path: str, body: dict) -> dict:
        return Client().post(path, body, content_type="application/json", **headers).json()

    run = ask(f"{MLFLOW}mlflow/runs/create", {"experiment_id": "0"})["run"]["info"]
    create = f"{MLFLOW}mlflow-artifacts/mpu/create/{run['artifact_uri'].removeprefix('mlflow-artifacts:/')}"
    links = [
        ask("/api/v1/users/alice/shares", SHARE)["link"],
        ask("/api/v1/program_logins", {"program": "client"})["url"],
        ask(create, {"path": "model.bin", "num_parts": 1})["credentials"][0]["url"],
    ]
    assert [urlsplit(link)[:2] for link in links] == [("https", "mlp.example.org")] * 3

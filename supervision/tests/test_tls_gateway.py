"""TLS at the gateways: nginx alone, with the platform's own configuration and nothing behind it.

test_tls.py has the same on a whole platform, with its jobs and under load.
"""

from __future__ import annotations

import os
import signal
import socket
import ssl
from contextlib import suppress
from http.client import HTTPSConnection
from types import SimpleNamespace

import pytest
import requests
from cryptography import x509
from django.conf import settings
from django.test import override_settings

from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S
from mlp.tests.servers import begin
from mlp.tls_settings import Tls
from supervision import nginx, tls
from supervision.tests.certificates import NAMES, Authority
from supervision.tests.running import free_base

HOST = NAMES[0]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    """Start nginx; return the authority, the ports, the watcher of the files, and what it has said."""
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "root").mkdir()
    authority, base = Authority(folder), free_base()
    authority.write()
    given = Tls(folder / "cert.pem", folder / "key.pem", authority.path, "1.2", base + 3, base + 4, base + 5, 31536000)
    changes = {"GATEWAY_PORT": base + 1, "APP_GATEWAY_PORT": base + 2, "PLAIN_GATEWAY_PORT": base + 6}
    changes |= {"PLAIN_APP_GATEWAY_PORT": base + 7, "GATEWAY_URL": f"https://{HOST}:{base + 1}", "TLS": given}
    changes |= {
        "WORKSPACE_PORT": base + 8,
        "MLP_ROOT": folder / "root",
        "STATIC_ROOT": settings.BASE_DIR / "mlp" / "static",
    }
    with override_settings(**changes, SECURE_HSTS_SECONDS=given.hsts_s, INSTANCE_DIR=None):
        tls.install()
        nginx.render()
        said = []
        gateway = SimpleNamespace(authority=authority, base=base, watcher=tls.Watcher(lambda: None), said=said)
        process = begin(nginx.command(), folder / "nginx.log")
        until(lambda: socket.socket().connect_ex(("127.0.0.1", base + 1)) == 0)
        yield gateway
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(LIMIT_S)


def ask(gateway, port: int, path: str, scheme: str = "https", **options) -> requests.Response:
    options = {"verify": str(gateway.authority.path), "timeout": LIMIT_S, "allow_redirects": False} | options
    return requests.get(f"{scheme}://{HOST}:{gateway.base + port}{path}", **options)


def trusting(gateway) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(gateway.authority.path))


def serial(gateway, port: int = 1) -> int:
    """Return the serial number of the certificate that a new connection is shown."""
    with (
        socket.create_connection(("127.0.0.1", gateway.base + port), LIMIT_S) as bare,
        trusting(gateway).wrap_socket(bare, server_hostname=NAMES[1]) as link,
    ):
        return x509.load_der_x509_certificate(link.getpeercert(binary_form=True)).serial_number


def test_clients_that_trust_the_authority_get_through_and_others_do_not(gateway):
    statuses = {port: ask(gateway, port, "/healthz/nginx").status_code for port in (1, 3)}
    assert statuses == {1: 200, 3: 200}
    assert serial(gateway, 2) == serial(gateway, 4) == serial(gateway)
    with pytest.raises(requests.exceptions.SSLError):
        ask(gateway, 1, "/healthz/nginx", verify=True)


def test_every_answer_tells_browsers_to_use_tls_only(gateway):
    paths = "/regist_login", "/api/v1/auth", "/static/mlp/base.css", "/healthz/nginx", "/-jobs/x"
    headers = {path: ask(gateway, 1, path).headers.get("Strict-Transport-Security", "none") for path in paths}
    assert {path: said for path, said in headers.items() if not said.startswith("max-age=31536000")} == {}


def test_plain_http_is_redirected(gateway):
    ends = {1: 1, 2: 2, 3: 3, 5: 1}  # the port's number -> that of the address to which it sends
    answers = {}
    for port in ends:
        answer = ask(gateway, port, "/jobs?a=b", "http")
        answers[port] = answer.status_code, answer.headers["Location"]
    assert answers == {port: (308, f"https://{HOST}:{gateway.base + end}/jobs?a=b") for port, end in ends.items()}


def test_runs_of_this_machine_may_use_plain_http(gateway):
    assert ask(gateway, 6, "/healthz/nginx", "http").status_code == 200


def test_challenges_of_acme_are_answered_at_the_port_of_plain_http(gateway):
    folder = settings.MLP_ROOT / "acme" / ".well-known" / "acme-challenge"
    folder.mkdir(parents=True)
    (folder / "token").write_text("proof")
    (settings.MLP_ROOT / "secret-key").write_text("secret")
    there = "/.well-known/acme-challenge"
    assert ask(gateway, 5, f"{there}/token", "http").text == "proof"
    assert ask(gateway, 5, f"{there}/../../secret-key", "http").status_code == 308
    assert ask(gateway, 5, f"{there}/%2e%2e/%2e%2e/%2e%2e/secret-key", "http").status_code in {400, 404}


def test_old_versions_of_tls_are_refused(gateway):
    context = trusting(gateway)
    with suppress(ValueError):  # this Python's OpenSSL may not offer it at all
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
    bare = socket.create_connection(("127.0.0.1", gateway.base + 1), LIMIT_S)
    with bare, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(bare, server_hostname=HOST)


def test_a_new_certificate_is_used_without_a_restart_and_connections_are_kept(gateway):
    link = HTTPSConnection(HOST, gateway.base + 1, timeout=LIMIT_S, context=trusting(gateway))

    def status() -> int:
        link.request("GET", "/healthz/nginx")
        answer = link.getresponse()
        answer.read()
        return answer.status

    assert status() == 200
    kept = link.sock
    for _ in range(2):
        new = gateway.authority.write()
        gateway.watcher.poll(gateway.said.append)
        until(lambda new=new: {serial(gateway, port) for port in (1, 2, 3, 4)} == {new})
    assert status() == 200
    assert link.sock is kept
    link.close()
    assert all("the TLS certificate was replaced" in line for line in gateway.said)


@pytest.mark.long
def test_files_that_do_not_fit_change_nothing_until_they_do(gateway):
    before = tls.pair_path().read_bytes()
    cert, key, new = gateway.authority.issue()
    gateway.authority.put("cert.pem", cert)
    gateway.watcher.poll(gateway.said.append)
    assert "is not used: MLP_TLS_KEY" in gateway.said[-1]
    assert tls.pair_path().read_bytes() == before
    assert serial(gateway) != new  # after a reload nginx's older processes still answer for a while
    gateway.authority.put("key.pem", key)
    gateway.watcher.poll(gateway.said.append)
    until(lambda: serial(gateway) == new)

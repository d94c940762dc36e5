"""A platform that speaks TLS itself, with clients of every kind, while its certificate is replaced.

test_tls_gateway.py is the quick test: nginx alone.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import nats
import pytest
import requests
import websocket
from cryptography import x509

from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S
from supervision.tests.certificates import NAMES, Authority
from supervision.tests.running import Platform, free_base

pytestmark = [pytest.mark.e2e, pytest.mark.long]

NATS = 10  # its port, after the first one
WHO = {"username": "alice", "password": "correct horse battery"}
SCRIPT = b"""
import os, ssl, urllib.request
import mlp_report
for epoch in range(3):
    mlp_report.report(epoch=epoch, loss=1.0 / (epoch + 1))
address = os.environ["MLP_API_URL"]
print("ADDRESS", address, urllib.request.urlopen(address + "/healthz/live", timeout=300).status)
print("TRUST", os.environ.get("SSL_CERT_FILE", "none"))
"""


class User:
    """A user who reaches the platform by its host name, and trusts the tests' authority only."""

    def __init__(self, platform: Platform, authority: Authority):
        self.platform, self.authority = platform, authority
        self.gateway = f"https://{NAMES[0]}:{platform.base + 1}"
        self.api = f"{self.gateway}/api/v1/users/alice"
        assert self.ask("post", f"{self.gateway}/api/v1/users", json=WHO).status_code in {200, 201}
        self.token = self.ask("get", f"{self.api}/token", auth=tuple(WHO.values())).json()
        self.headers = {"Authorization": f"Bearer {self.token}"}

    def ask(self, method: str, address: str, **options) -> requests.Response:
        options = {"verify": str(self.authority.path), "timeout": LIMIT_S, "allow_redirects": False} | options
        return requests.request(method, address, **options)

    def call(self, method: str, path: str, **options) -> requests.Response:
        return self.ask(method, self.api + path, headers=self.headers, **options)

    def run(self, name: str, script: bytes = SCRIPT) -> str:
        """Run a script as a job to its end and return its log."""
        put = self.ask("put", f"{self.gateway}/data/alice/.home/{name}.py", data=script, headers=self.headers)
        assert put.status_code in {201, 204}, put.text
        body = {"name": name, "entry": f"{name}.py", "cpu": 0.1, "ram": 200}
        assert self.call("post", "/jobs", json=body).status_code == 201
        until(lambda: self.call("get", f"/jobs/{name}").json()["state"] in {"finished", "error"})
        log = self.call("get", f"/jobs/{name}/log").text
        assert self.call("get", f"/jobs/{name}").json()["state"] == "finished", log
        return log

    def follow(self) -> websocket.WebSocket:
        """Open a websocket of the pages' kind."""
        session = requests.Session()
        session.verify, session.trust_env = str(self.authority.path), False  # the variables of this machine win
        page = session.get(f"{self.gateway}/regist_login", timeout=LIMIT_S)
        mark = page.text.split('csrfmiddlewaretoken" value="')[1].split('"')[0]
        fields = {**WHO, "action": "login", "csrfmiddlewaretoken": mark}
        headers = {"Referer": f"{self.gateway}/regist_login"}
        session.post(f"{self.gateway}/regist_login", fields, headers=headers, timeout=LIMIT_S)
        cookie = f"__Host-sessionid={session.cookies['__Host-sessionid']}"
        return websocket.create_connection(
            f"wss://{NAMES[0]}:{self.platform.base + 1}/ws/live", timeout=LIMIT_S, cookie=cookie, origin=self.gateway,
            sslopt={"ca_certs": str(self.authority.path)},
        )  # fmt: skip

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.path))

    def serial(self, port: int = 1, **options) -> int:
        """Return the serial number of the certificate that a new connection is shown. To one that waits, NATS sends
        its greeting before TLS begins.
        """
        with socket.create_connection(("127.0.0.1", self.platform.base + port), timeout=LIMIT_S) as bare:
            if port == NATS:
                greeting = bare.makefile("rb", 0).readline()
                assert greeting.startswith(b"INFO "), greeting
            with self.context().wrap_socket(bare, server_hostname=NAMES[1]) as link:
                return x509.load_der_x509_certificate(link.getpeercert(binary_form=True)).serial_number


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("authority"))
    authority.write()
    return authority


@pytest.fixture(scope="module")
def user(authority, tmp_path_factory):
    """Of a platform whose jobs have the machine's network, so that they reach the gateway by TLS as others do."""
    root = tmp_path_factory.mktemp("tls") / "root"
    platform = Platform(root, **authority.environment(), MLP_RUN_NETWORK="shared", MLP_URL="", MLP_ALLOWED_HOSTS="")
    ports = free_base()
    platform.environment |= {
        "MLP_URL": f"https://{NAMES[0]}:{platform.base + 1}",
        "MLP_RUN_URL": f"https://{NAMES[0]}:{platform.base + 1}",
        "MLP_TLS_PORT": str(ports + 1),
        "MLP_TLS_APP_PORT": str(ports + 2),
        "MLP_TLS_REDIRECT_PORT": str(ports + 3),
    }
    platform.more = ports
    platform.start()
    yield User(platform, authority)
    assert platform.stop() == 0


# --- clients ---------------------------------------------------------------------------------------------------------
def test_clients_that_trust_the_authority_get_through_and_others_do_not(user):
    assert user.ask("get", f"{user.gateway}/healthz").json()["status"] == "ok"
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(f"{user.gateway}/healthz", timeout=LIMIT_S)
    more = user.platform.more
    assert user.ask("get", f"https://{NAMES[0]}:{more + 1}/healthz/live").status_code == 200
    for port in (user.platform.base + 2, more + 2):
        assert user.ask("get", f"https://{NAMES[0]}:{port}/healthz").status_code == 200


@pytest.mark.parametrize(
    "path", ["/regist_login", "/api/v1/auth", "/static/mlp/base.css", "/healthz/nginx", "/-jobs/x"]
)
def test_every_answer_tells_browsers_to_use_tls_only(user, path):
    answer = user.ask("get", user.gateway + path)
    assert answer.headers["Strict-Transport-Security"].startswith("max-age=31536000"), answer.status_code


def test_plain_http_is_redirected(user):
    base, more = user.platform.base, user.platform.more
    for port, there in ((base + 1, base + 1), (base + 2, base + 2), (more + 1, more + 1), (more + 3, base + 1)):
        answer = requests.get(f"http://{NAMES[0]}:{port}/jobs?a=b", timeout=LIMIT_S, allow_redirects=False)
        assert (answer.status_code, answer.headers["Location"]) == (308, f"https://{NAMES[0]}:{there}/jobs?a=b")


def test_challenges_of_acme_are_answered_at_the_port_of_plain_http(user):
    folder = user.platform.root / "acme" / ".well-known" / "acme-challenge"
    folder.mkdir(parents=True)
    (folder / "token").write_text("proof")
    address = f"http://{NAMES[0]}:{user.platform.more + 3}/.well-known/acme-challenge"
    assert requests.get(f"{address}/token", timeout=LIMIT_S).text == "proof"
    assert requests.get(f"{address}/../../secret-key", timeout=LIMIT_S, allow_redirects=False).status_code == 308
    assert requests.get(f"{address}/%2e%2e/%2e%2e/%2e%2e/secret-key", timeout=LIMIT_S).status_code in {400, 404}


def test_old_versions_of_tls_are_refused(user):
    context = user.context()
    with suppress(ValueError):  # this Python's OpenSSL may not offer it at all
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
    bare = socket.create_connection(("127.0.0.1", user.platform.base + 1), timeout=LIMIT_S)
    with bare, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(bare, server_hostname=NAMES[0])


def test_a_job_reports_over_tls_and_trusts_the_authority(user):
    log = user.run("reports")
    assert f"ADDRESS {user.gateway} 200" in log
    assert "TRUST none" not in log
    until(lambda: len(user.call("get", "/jobs/reports/metrics").json()) == 3)


def test_the_data_client_uploads_over_tls(user, tmp_path):
    client, folder = tmp_path / "client.pyz", tmp_path / "files"
    client.write_bytes(user.ask("get", f"{user.gateway}/data_client.pyz").content)
    folder.mkdir()
    (folder / "a.txt").write_text("12345")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MLP_TOKEN": user.token}
    command = [sys.executable, str(client), "upload", str(folder), "--name", "digits", "--url", user.gateway]
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert refused.returncode != 0
    assert "certificate" in refused.stderr
    environment["SSL_CERT_FILE"] = str(user.authority.path)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert user.call("get", "/datasets/digits").json()["state"] == "ready"


def test_the_client_trusts_the_certificates_that_it_is_given(user, tmp_path):
    program = tmp_path / "mlp.pyz"
    program.write_bytes(user.ask("get", f"{user.gateway}/mlp.pyz").content)

    def run(*words: str) -> subprocess.CompletedProcess:
        command = [sys.executable, str(program), *words]
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)

    refused = run("login", user.gateway, "--token", user.token)
    assert (refused.returncode, "--cacert FILE" in refused.stderr) == (5, True)
    done = run("login", user.gateway, "--token", user.token, "--cacert", str(user.authority.path))
    assert done.returncode == 0, done.stderr
    assert run("ps").returncode == 0  # the profile knows the certificates


def test_clients_of_nats_may_speak_tls(user):
    async def connect() -> bytes:
        client = await nats.connect(
            f"tls://{NAMES[0]}:{user.platform.base + NATS}", tls=user.context(), tls_hostname=NAMES[0],
            user="x", password="wrong", allow_reconnect=False, connect_timeout=LIMIT_S,
        )  # fmt: skip
        await client.close()

    assert user.serial(NATS) == user.serial(1)
    with pytest.raises(Exception, match=r"(?i)authorization"):  # it has got as far as to be asked who it is
        asyncio.run(connect())


# --- a new certificate -----------------------------------------------------------------------------------------------
class Load:
    """Clients that ask all the time, over connections that are kept and over new ones, and forgive nothing."""

    def __init__(self, user: User):
        self.user, self.over, self.problems, self.count = user, threading.Event(), [], itertools.count()

    def __enter__(self) -> Load:
        self.threads = ThreadPoolExecutor(4)
        self.work = [self.threads.submit(self._ask, keep) for keep in (True, True, False, False)]
        return self

    def __exit__(self, *_) -> None:
        self.over.set()
        for work in self.work:
            work.result()

    def _ask(self, keep: bool) -> None:
        with requests.Session() as session:
            session.verify, session.trust_env = str(self.user.authority.path), False
            while not self.over.is_set():
                try:
                    headers = self.user.headers | ({} if keep else {"Connection": "close"})
                    answer = session.get(f"{self.user.api}/jobs", headers=headers, timeout=LIMIT_S)
                    if answer.status_code != 200:
                        self.problems.append(answer.status_code)
                except requests.RequestException as problem:
                    self.problems.append(repr(problem))
                next(self.count)


def connections_of_nats(user: User) -> set[str]:
    """Return the processes' own connections to NATS, by the ports at their ends."""
    port = f":{user.platform.base + NATS:04X} 01"
    lines = Path("/proc/net/tcp").read_text().splitlines()
    return {line.split()[1] for line in lines if f"{port} " in " ".join(line.split()[2:4]) + " "}


def test_a_new_certificate_is_used_without_a_restart_and_no_request_fails(user):
    link = user.follow()
    nats_before = connections_of_nats(user)
    assert nats_before
    with Load(user) as load:
        until(lambda: next(load.count) > 20)
        for _ in range(2):
            serial = user.authority.write()
            until(lambda serial=serial: user.serial() == serial)
            until(lambda serial=serial: user.serial(2) == serial and user.serial(NATS) == serial)
        reached = next(load.count)
        until(lambda: next(load.count) > reached + 20)
    assert load.problems == []
    assert nats_before <= connections_of_nats(user)
    link.ping()
    link.send(json.dumps({"type": "nothing"}))
    opcode = websocket.ABNF.OPCODE_PONG
    while link.recv_frame().opcode != opcode:
        pass
    link.close()
    assert "the TLS certificate was replaced" in user.platform.output.read_text()


def test_files_that_do_not_fit_change_nothing_until_they_do(user):
    serial = user.authority.write()
    until(lambda: all(user.serial() == serial for _ in range(20)))  # each of nginx's processes looks for itself
    told = len(user.platform.output.read_text())
    cert, key, new = user.authority.issue()
    user.authority.put("cert.pem", cert)
    until(lambda: "is not used: MLP_TLS_KEY" in user.platform.output.read_text()[told:])
    assert user.serial() == serial
    user.authority.put("key.pem", key)
    until(lambda: user.serial() == new)


# --- starting --------------------------------------------------------------------------------------------------------
def test_jobs_with_a_network_of_their_own_need_no_certificate(authority, tmp_path):
    """They reach the gateway at the loopback interface, where it takes plain HTTP for them."""
    environment = {name: value for name, value in authority.environment().items() if name != "MLP_TLS_CA"}
    platform = Platform(tmp_path / "root", **environment)
    platform.environment["MLP_URL"] = f"https://{NAMES[0]}:{platform.base + 1}"
    platform.start()
    try:
        log = User(platform, authority).run("reports")
        assert "ADDRESS http://127.0.0.1:" in log
        assert "TRUST none" in log
    finally:
        assert platform.stop() == 0

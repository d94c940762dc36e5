"""The client's address, as the real gateway passes it on: its own word only, or that of a trusted proxy."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from accounts.throttle import client_address, gateway_key
from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S
from mlp.tests.servers import free_port
from supervision import nginx

CLAIMED = "203.0.113.66"
ADDRESSES = ("/regist_login", "/api/v1/users/alice/token", "/admin/login/", "/data/alice/x/y")


class Echo(BaseHTTPRequestHandler):
    """Stands for the platform behind the gateway, and answers with the headers that it was sent."""

    def do_GET(self):
        body = json.dumps({name.lower(): value for name, value in self.headers.items()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Suppress the access log."""


@pytest.fixture
def gateway(tmp_path):
    """Return a function that starts the gateway in front of Echo and returns its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    started: list[subprocess.Popen] = []

    def start(**changed: str) -> int:
        port = free_port()  # which no other test's server takes before nginx listens there
        behind = f"127.0.0.1:{server.server_port}"
        values = {
            **nginx.variables(), "root": str(tmp_path), "spool": str(tmp_path), "run": str(tmp_path),
            "gateway_listen": f"127.0.0.1:{port}", "app_listen": f'"unix:{tmp_path}/app"', "web_server": behind,
            "websocket_server": behind, "data_server": behind, "data_include": f'include "{tmp_path}/data.conf";',
            "apps": str(tmp_path / "none"), "workspace_listen": f'"unix:{tmp_path}/workspaces"',
            "writes_socket": f"unix:{tmp_path}/writes",
            **changed,
        }  # fmt: skip
        values["workspaces"] = nginx.fill("workspaces.conf.tmpl", values)
        (tmp_path / "temp").mkdir()
        for template, name in (("gateway.conf.tmpl", "nginx.conf"), ("data.conf.tmpl", "data.conf")):
            (tmp_path / name).write_text(nginx.fill(template, values))
        command = [nginx.nginx(), "-e", "stderr", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")]
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
        return port

    start.started = started
    yield start
    for process in started:
        process.terminate()
        process.wait(LIMIT_S)
    server.shutdown()
    server.server_close()


def passed_on(port: int, path: str, rf, headers: dict[str, str]) -> tuple[str, dict]:
    """Return the address that the platform believes, and the headers that it was sent."""
    link = HTTPConnection("127.0.0.1", port, timeout=60)
    link.request("GET", path, headers=headers)
    got = json.loads(link.getresponse().read())
    link.close()
    meta = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in got.items()}
    return client_address(rf.get("/", REMOTE_ADDR="", **meta)), got


def test_what_a_client_says_of_its_address_is_not_passed_on(gateway, rf):
    port = gateway()
    claims = {"X-Forwarded-For": CLAIMED, "X-Real-IP": CLAIMED, "X-Gateway-Key": "x", "Forwarded": f"for={CLAIMED}"}
    for path in ADDRESSES:
        address, got = passed_on(port, path, rf, claims)
        assert address == "127.0.0.1"
        assert got["x-real-ip"] == got["x-forwarded-for"] == "127.0.0.1"
        assert got["x-gateway-key"] == gateway_key()


@pytest.mark.parametrize(
    ("trusted", "chain", "believed"),
    [
        (["192.0.2.0/24"], CLAIMED, "127.0.0.1"),
        (["127.0.0.1"], "203.0.113.66, 198.51.100.9", "198.51.100.9"),
        (["127.0.0.1", "198.51.100.9"], "203.0.113.66, 198.51.100.9", CLAIMED),
        (["127.0.0.1"], "2001:db8::7", "2001:db8::7"),
        (["127.0.0.1"], "nonsense", "127.0.0.1"),
        (["127.0.0.1"], "", "127.0.0.1"),
    ],
    ids=["a stranger", "one proxy", "two proxies", "IPv6", "nonsense", "none"],
)
def test_only_a_trusted_proxys_word_counts_and_of_it_the_last(gateway, rf, settings, trusted, chain, believed):
    settings.TRUSTED_PROXIES = trusted
    port = gateway()
    for path in ADDRESSES:
        address, got = passed_on(port, path, rf, {"X-Forwarded-For": chain} if chain else {})
        assert address == got["x-real-ip"] == believed
        if path.startswith("/data"):
            continue
        assert got["x-forwarded-for"] == believed


def test_uploads_name_the_connection_also_behind_a_proxy(gateway, rf, settings):
    """The open connections of this machine are compared with it: a client behind the proxy has none."""
    settings.TRUSTED_PROXIES = ["127.0.0.1"]
    assert nginx.variables()["peer"] == "$realip_remote_addr:$realip_remote_port>$server_port"
    settings.TRUSTED_PROXIES = []
    assert nginx.variables()["peer"] == "$remote_addr:$remote_port>$server_port"


def test_answers_name_no_version(gateway):
    link = HTTPConnection("127.0.0.1", gateway(), timeout=60)
    for path in ("/regist_login", "/nothing", "/healthz/nginx", "/static/none"):
        link.request("GET", path)
        answer = link.getresponse()
        answer.read()
        assert answer.getheader("Server") == "nginx"
    link.close()


def test_a_reload_answers_what_comes_on_connections_that_are_in_use(gateway):
    """They were closed at once, so a request that was on its way got no answer, and a POST is not repeated."""
    given = nginx.variables()["kept_alive"]
    if not given:
        pytest.skip("the installed nginx is older than 1.27.4")
    port = gateway(kept_alive=given.replace("2s", "60s"))  # however slow this machine is
    links = [HTTPConnection("127.0.0.1", port, timeout=60) for _ in range(10)]
    for link in links:
        link.connect()
        link.auto_open = 0  # a closed one raises
    answers = 0
    while links:
        for link in list(links):
            link.request("GET", "/healthz/nginx")
            answer = link.getresponse()
            assert (answer.status, answer.read()) == (200, b"ok\n")
            answers += 1
            if answer.getheader("Connection") == "close":
                links.remove(link)
        if answers == 100:
            gateway.started[0].send_signal(signal.SIGHUP)


@pytest.mark.parametrize(("version", "known"), [("1.19.9", False), ("1.19.10", True)])
def test_an_older_nginx_keeps_no_connections_to_runs(monkeypatch, version, known):
    """It could not limit how long one is used; so nothing is sent to upstreams that it does not have."""
    monkeypatch.setattr("supervision.binaries.version_of", lambda *_arguments: version)
    text = nginx.fill("gateway.conf.tmpl", nginx.variables())
    assert ("keepalive_time " in text) == ("upstream via-0 " in text) == ('::http" $app_via;' in text) == known


@pytest.mark.parametrize(("version", "line"), [("1.27.3", ""), ("1.27.4", "keepalive_min_timeout 2s;")])
def test_an_older_nginx_is_not_given_what_it_does_not_know(monkeypatch, version, line):
    monkeypatch.setattr("supervision.binaries.version_of", lambda *_arguments: version)
    assert nginx.variables()["kept_alive"] == line

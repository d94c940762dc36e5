"""`login`, `logout` and `whoami` against the running platform, and addresses where there is none."""

from __future__ import annotations

import re
import stat
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.conf import global_settings
from django.test import Client as Page

from mlp.tests.patience import LIMIT_S

PASSWORD = "correct horse battery"


@pytest.fixture
def client(client_of, service, alice_data):
    return client_of(service.url)


@pytest.fixture
def other_server():
    """A web server that is no platform: /moved/… redirects to another address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            moved = self.path.startswith("/moved")
            self.send_response(301 if moved else 404)
            self.send_header("Location", "https://elsewhere.invalid/api/v1/auth")
            self.end_headers()

        def log_message(self, *_):
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.long
def test_a_login_is_kept_and_removed(client, service, alice, alice_data, bob_data, settings):
    settings.PASSWORD_HASHERS = global_settings.PASSWORD_HASHERS  # as the server has them
    alice.set_password(PASSWORD)
    alice.save()
    done = client.run("login", service.url + "/", typed=f"alice\n{PASSWORD}\n")
    assert "alice" in done.stdout
    assert alice_data.token not in done.stdout + done.stderr
    file = client.home / ".config/mlp/profiles.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert client.json("whoami") == {"user": "alice", "url": service.url, "profile": "default"}
    client.run("login", service.url, "--token-stdin", "--profile", "bob", typed=bob_data.token + "\n")
    assert [client.json("whoami", "--profile", name)["user"] for name in ("default", "bob")] == ["alice", "bob"]
    assert client.json("whoami")["user"] == "bob"
    client.environment["MLP_PROFILE"] = "default"
    assert client.json("whoami")["user"] == "alice"
    client.run("logout")
    assert "mlp login URL" in client.refused("whoami", code=3)
    assert "no profile" in client.refused("logout", code=2)


def test_a_browser_confirms_a_login(client, service, alice):
    page = Page()
    page.force_login(alice)
    client.environment["BROWSER"] = f"{sys.executable} -c pass %s"
    with client.start("login", service.url, "--browser") as process:
        (code,) = re.findall(r"type the code (\S+)\n", process.stderr.readline().decode())
        page.post("/account/program", {"code": code, "do": "allow", "scope": "full", "days": "7"})
        assert process.wait(LIMIT_S) == 0
    assert client.json("whoami")["user"] == "alice"
    with client.start("login", service.url, "--browser") as process:
        (code,) = re.findall(r"type the code (\S+)\n", process.stderr.readline().decode())
        page.post("/account/program", {"code": code, "do": "deny"})
        assert (process.wait(LIMIT_S), "denied" in process.stderr.read().decode()) == (3, True)


def test_a_saved_token_goes_to_its_own_address_only(client, service, alice_data, other_server):
    client.run("login", service.url, "--token", alice_data.token)
    assert "not logged in" in client.refused("whoami", "--url", other_server, code=3)
    client.environment.update(MLP_API_URL=service.url, MLP_TOKEN=alice_data.token)  # as in a job
    assert client.json("whoami")["user"] == "alice"


def test_without_a_home_directory_nothing_is_written(client, service, alice_data):
    """As in a container with any user id: the working folder is no place for a token."""
    client.environment["HOME"] = "~"  # what the path of such a user's home is
    assert "no home directory" in client.refused("login", service.url, "--token", alice_data.token, code=1)
    client.environment.update(MLP_URL=service.url, MLP_TOKEN=alice_data.token)
    assert client.json("whoami")["user"] == "alice"
    assert list(client.here.iterdir()) == []


@pytest.mark.long
def test_what_is_wrong_is_said(client, service, other_server, tmp_path, alice_data):
    def words(*arguments, code, typed=""):
        return client.refused("login", *arguments, code=code, typed=typed)

    assert "not a platform: HTTP 404" in words(other_server, code=5)
    assert "redirects to https://elsewhere.invalid;" in words(other_server + "/moved", code=2)
    assert "connection refused" in words("http://127.0.0.1:1", code=5)
    assert "must be http" in words("ftp://x", code=2)
    assert "no TLS there" in words(service.url.replace("http", "https"), code=5)
    assert "mlp login" in words(service.url, "--token", "nonsense", code=3)
    assert "invalid token" in words(service.url, "--token", "a b", code=3)
    assert "of alice, not of bob" in words(service.url, "--token", alice_data.token, "--user", "bob", code=3)
    assert words(service.url, code=3, typed="alice\nwrong\n")
    assert words(service.url, "--token", "nonsense", "--user", "alice", code=3)
    assert "no password" in words(service.url, code=3)
    assert "no certificates" in words(service.url, "--cacert", tmp_path / "none", code=1)
    assert not (client.home / ".config").exists()
    (client.home / ".config/mlp").mkdir(parents=True)
    (client.home / ".config/mlp/profiles.json").write_text("{")
    assert "cannot be read" in client.refused("whoami", code=1)

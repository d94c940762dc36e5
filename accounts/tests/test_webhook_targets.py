"""A webhook reaches no internal service, however its URL is written and whatever answers (SSRF)."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest
from django.db import transaction
from django.test import Client

from accounts import delivery, notices
from accounts.models import Delivery, Preference
from kernel import outbound, webhook
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db

PUBLIC, PUBLIC6 = "93.184.215.14", "2606:2800:21f:cb07::1"
REFUSED = 403


@pytest.fixture
def inside():
    """An internal service, which must get no request."""
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(self.path)
            self.send_response(200)
            self.end_headers()

        do_GET = do_CONNECT = do_POST

        def log_message(self, *args):
            """Suppress the access log."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield SimpleNamespace(port=server.server_port, got=got)
    server.shutdown()
    server.server_close()


@pytest.fixture
def resolve(monkeypatch):
    """Return a function that sets what each lookup of a name answers, in turn; the last answer stays."""

    def answer(*rounds: list[str]) -> list[str]:
        asked, left = [], list(rounds)

        def getaddrinfo(host, port, **options):
            asked.append(host)
            return [(0, 0, 0, "", (ip, port)) for ip in (left.pop(0) if len(left) > 1 else left[0])]

        monkeypatch.setattr(webhook, "socket", SimpleNamespace(SOCK_STREAM=1, getaddrinfo=getaddrinfo))
        return asked

    return answer


@pytest.fixture
def connected(monkeypatch):
    """Record the addresses that connections go to, and let none of them succeed."""
    to: list[tuple] = []

    def refuse(address, *args, **options):
        to.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", refuse)
    return to


def signed_in(user) -> Client:
    client = Client()
    client.force_login(user)
    return client


def save(alice, url: str) -> int:
    return signed_in(alice).post("/settings", {"webhook": url}).status_code


@contextmanager
def undone():
    """Undo what is written to the database, so that the next address finds it as this one did."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def send(alice, url: str) -> Delivery:
    """Send a notice to the webhook, as if it had been saved while it was accepted."""
    Preference.objects.update_or_create(user=alice, defaults={"webhook": url})
    notices.notify(user=alice, kind="job", name="fit", event="error")
    row = Delivery.objects.latest("pk")
    delivery.deliver(row.pk)
    row.refresh_from_db()
    return row


# --- forms of an address --------------------------------------------------------------------------------------------
LOOPBACK = [
    "127.0.0.1", "127.1", "127.0.1", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001", "2130706433", "017700000001",
    "127.0.0.2", "127.255.255.254", "0.0.0.0", "0", "localhost", "LOCALHOST", "localhost.", "[::1]", "[::]",
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "[::127.0.0.1]",
    "[::1%25lo]", "[::1%lo]",
]  # fmt: skip


def test_every_form_of_the_loopback_address_is_refused(alice, inside):
    client, wrong = signed_in(alice), {}
    for host in LOOPBACK:
        url = f"http://{host}:{inside.port}/"
        with undone():
            outcome = client.post("/settings", {"webhook": url}).status_code, "webhook" in send(alice, url).error
        if outcome != (REFUSED, True):
            wrong[host] = outcome
    assert wrong == {}
    assert inside.got == []


NOT_PUBLIC = [
    "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "169.254.169.254", "169.254.170.2", "192.0.0.1",
    "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1",
    "255.255.255.255", "0.1.2.3",
    "::ffff:10.0.0.1", "::ffff:8.8.8.8", "::ffff:0:7f00:1", "::7f00:1", "::808:808",  # mapped, SIIT, compatible
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "64:ff9b:1::808:808",  # NAT64
    "2002:7f00:1::", "2002:808:808::1", "2001:0:7f00:1::", "2001:0:4136:e378:8000:63bf:80ff:fffe",  # 6to4, Teredo
    "2606:2800::5efe:7f00:1", "2606:2800::200:5efe:a00:1",  # ISATAP
    "fe80::1", "fe80::1%lo", "fe80::1%1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "ff0e::1", "100::1",
    "100:0:0:1::1", "2001:db8::1", "2001:20::1", "3fff::1", "5f00::1", "4000::1", "::", "::1",
]  # fmt: skip


def test_a_name_that_leads_to_an_address_that_is_not_public_is_refused(alice, resolve, connected):
    client, url, wrong = signed_in(alice), "http://hook.example/", {}
    for address in NOT_PUBLIC:
        with undone():
            resolve([address])
            alone = client.post("/settings", {"webhook": url}).status_code
            error = send(alice, url).error
            resolve([PUBLIC, address])
            one_of_several = client.post("/settings", {"webhook": url}).status_code
        if (alone, one_of_several) != (REFUSED, REFUSED) or "must be a public address" not in error:
            wrong[address] = alone, one_of_several, error
    assert wrong == {}
    assert connected == []


@pytest.mark.parametrize("address", few([PUBLIC, PUBLIC6, "64:ff9b::5db8:d70e", "8.8.8.8"], 2))
def test_public_addresses_are_accepted(alice, resolve, connected, address):
    resolve([address])
    assert save(alice, "https://hook.example/in?x=1") == 302
    send(alice, "https://hook.example/in?x=1")
    assert connected == [(address, 443)]


def test_the_machines_own_public_address_is_refused(alice, resolve, connected, monkeypatch):
    """A server on it may be hidden from the internet by a firewall."""
    resolve([PUBLIC])
    monkeypatch.setattr(outbound, "_is_own", lambda address: str(address) == PUBLIC)
    assert save(alice, "http://hook.example/") == REFUSED


def test_the_addresses_of_this_machine_are_known():
    own = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), 80, socket.AF_INET)} | {"127.0.0.1"}
    assert all(outbound._is_own(outbound.ipaddress.ip_address(address)) for address in own)
    assert not outbound._is_own(outbound.ipaddress.ip_address(PUBLIC))


# --- forms of a URL -------------------------------------------------------------------------------------------------
AMBIGUOUS = [
    "http://hook.example@127.0.0.1/", "http://user@hook.example/", "http://user:word@hook.example/",
    "http://:word@hook.example/", "http://@hook.example/", "http://hook.example\\@127.0.0.1/",
    "http://127.0.0.1\\@hook.example/", "http:hook.example", "http:///x",
    "http://", "https://", "http://[::1/", "http://[hook.example]/", "http://hook.example:x/",
    "http://hook.example:99999/", "http://hook.example:-1/", "http://hook.example/\r\nX-Planted: 1",
    "http://hook.example/\tx", "http://hook.ex\u00e4mple/", "http://\u2460\u2461\u2466.0.0.1/",
    "http://hook\u3002example/", "gopher://hook.example/", "file:///etc/passwd", "ftp://hook.example/",
    "javascript:alert(1)", "unix:///run/x.sock", "HTTP+unix://x/", "dict://hook.example:11211/", "http://hook{}.example/",
]  # fmt: skip


def test_urls_that_two_readers_may_read_differently_are_refused(alice, resolve, connected):
    client, wrong = signed_in(alice), {}
    resolve([PUBLIC])
    for url in AMBIGUOUS:
        with undone():
            outcome = client.post("/settings", {"webhook": url}).status_code, "webhook" in send(alice, url).error
        if outcome != (REFUSED, True):
            wrong[url] = outcome
    assert wrong == {}
    assert connected == []


@pytest.mark.parametrize("port", few([1, 22, 23, 25, 53, 110, 143, 389, 445, 465, 587, 631, 1023], 4))
def test_ports_of_other_services_are_refused(alice, resolve, port):
    resolve([PUBLIC])
    assert save(alice, f"http://hook.example:{port}/") == REFUSED


@pytest.mark.parametrize("port", few([80, 443, 1024, 8080, 8443, 65535], 2))
def test_ports_of_web_servers_are_accepted(alice, resolve, port):
    resolve([PUBLIC])
    assert save(alice, f"http://hook.example:{port}/") == 302


# --- what changes on the way ----------------------------------------------------------------------------------------
def test_a_name_that_leads_elsewhere_later_is_refused_then(alice, resolve, connected):
    resolve([PUBLIC], ["127.0.0.1"])
    assert save(alice, "http://hook.example/") == 302
    assert "must be a public address" in send(alice, "http://hook.example/").error
    assert connected == []


def test_the_connection_goes_to_the_address_that_was_checked(alice, resolve, connected):
    """The name is asked for once: a second answer cannot lead elsewhere."""
    asked = resolve([PUBLIC], ["127.0.0.1"])
    send(alice, "http://hook.example:8080/")
    assert asked == ["hook.example"]
    assert connected == [(PUBLIC, 8080)]


def test_a_redirect_to_an_internal_service_is_not_followed(alice, inside, settings):
    settings.WEBHOOK_PRIVATE = True  # for the receiver, which runs on this machine as well
    link = socket.create_server(("127.0.0.1", 0))

    def redirect():
        for status in (301, 302, 303, 307, 308):
            connection, _ = link.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(
                    f"HTTP/1.1 {status} Elsewhere\r\nLocation: http://127.0.0.1:{inside.port}/\r\n"
                    f"Refresh: 0; url=http://127.0.0.1:{inside.port}/\r\nContent-Length: 0\r\n\r\n".encode()
                )

    thread = threading.Thread(target=redirect)
    thread.start()
    url = f"http://127.0.0.1:{link.getsockname()[1]}/"
    assert [send(alice, url).error[-3:] for _ in range(5)] == ["301", "302", "303", "307", "308"]
    thread.join(LIMIT_S)
    link.close()
    assert inside.got == []


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"])
def test_no_proxy_of_the_environment_is_used(alice, resolve, connected, monkeypatch, inside, name):
    monkeypatch.setenv(name, f"http://127.0.0.1:{inside.port}")
    resolve([PUBLIC])
    for scheme in ("http", "https"):
        send(alice, f"{scheme}://hook.example/")
    assert connected == [(PUBLIC, 80), (PUBLIC, 443)]
    assert inside.got == []

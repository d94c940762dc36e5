"""Notifications: on the page, by e-mail and by webhook; retries; deliveries to internal addresses are refused."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import re
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest
from django.core import mail
from django.db import connection
from django.test import Client
from django.utils import timezone

from accounts import delivery, lifecycle, notices, reconcile
from accounts.models import Delivery, Notice, Preference, Visit
from conftest import PASSWORD
from kernel import retries, webhook
from kernel.models import StateChange
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice_client(client, alice):
    client.force_login(alice)
    return client


@pytest.fixture
def hook():
    """A webhook receiver on this machine; `answers` are the statuses it returns first, then 200."""
    got, answers = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(answers.pop(0) if answers else 200)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args):
            """Suppress the access log."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    server.got, server.answers = got, answers
    server.url = f"http://127.0.0.1:{server.server_port}/in?x=1"
    yield server
    server.shutdown()
    server.server_close()


def change(
    owner: str, target: str, kind: str = "job", by: str = "reconcile", reason: str = "", outcome: str = ""
) -> None:
    StateChange.objects.create(
        kind=kind, owner=owner, name="fit", object_id=1, transition="x", source="running", target=target, by=by,
        reason=reason, outcome=outcome,
    )  # fmt: skip


class TestNotices:
    @pytest.mark.parametrize(("options", "notified"), few([
        ({"target": "finished"}, True),
        ({"target": "error", "reason": "exit code 1"}, True),
        ({"target": "error", "kind": "dataset"}, True),
        ({"target": "running"}, False),
        ({"target": "finished", "kind": "other"}, False),
        ({"target": "error", "by": "alice", "outcome": "cancelled"}, False),
        ({"target": "error", "by": "oscar", "outcome": "cancelled"}, True),
    ], 4))  # fmt: skip
    def test_users_are_notified_of_ends_and_failures_but_not_of_their_own_actions(self, alice, options, notified):
        change("alice", **options)
        assert Notice.objects.filter(user=alice).exists() is notified

    def test_a_notification_is_shown_to_its_user_until_it_is_read(self, alice_client, bob):
        change("alice", "error", reason="<b>exit code 9</b>")
        page = alice_client.get("/notifications").content.decode()
        assert "&lt;b&gt;exit code 9&lt;/b&gt;" in page
        assert re.search(r'class="count">\s*1\s*<', alice_client.get("/account").content.decode())
        newest = Notice.objects.get().pk
        other = Client()
        other.force_login(bob)
        assert "exit code 9" not in other.get("/notifications").content.decode()
        other.post("/notifications/read", {"newest": newest})
        assert not Notice.objects.get().read
        change("alice", "finished")
        alice_client.post("/notifications/read", {"newest": newest})
        assert list(Notice.objects.order_by("pk").values_list("read", flat=True)) == [True, False]

    @pytest.mark.parametrize("newest", ["", "x", "-1", "9" * 30, "²"])
    def test_invalid_read_marks_are_ignored(self, alice_client, newest):
        assert alice_client.post("/notifications/read", {"newest": newest}).status_code == 302


class TestDelivery:
    def test_a_webhook_request_is_signed(self, alice, hook, settings):
        settings.WEBHOOK_PRIVATE = True
        Preference.objects.create(user=alice, webhook=hook.url)
        change("alice", "error", reason="exit code 1")
        delivery.deliver(Delivery.objects.get().pk)
        headers, body = hook.got[0]
        mark = hmac.new(delivery.secret_of(alice).encode(), body, hashlib.sha256).hexdigest()
        assert headers["X-Platform-Signature"] == f"sha256={mark}"
        notification = json.loads(body)
        assert (notification["user"], notification["kind"], notification["name"], notification["event"]) == (
            "alice",
            "job",
            "fit",
            "error",
        )
        delivery.deliver(Delivery.objects.get().pk)
        assert len(hook.got) == 1, "a message that comes twice sends once"

    def test_failed_deliveries_are_retried_with_backoff_and_finally_given_up(self, alice, hook, settings):
        settings.WEBHOOK_PRIVATE = True
        hook.answers += [500, 302] + [500] * 10
        Preference.objects.create(user=alice, webhook=hook.url)
        change("alice", "error")
        pk = Delivery.objects.get().pk
        delivery.deliver(pk)
        delivery.deliver(pk)
        assert len(hook.got) == 1, "not before its pause is over"
        for _ in range(10):
            Delivery.objects.filter(pk=pk).update(not_before=timezone.now() - timedelta(minutes=1))
            delivery.deliver(pk)
        row = Delivery.objects.get()
        assert len(hook.got) == row.attempts == len(retries.PAUSES_S) + 1
        assert (row.open, "500" in row.error) == (False, True)

    def test_reconcile_sends_due_deliveries(self, alice, tasks):
        Preference.objects.create(user=alice, email="alice@example.org")
        change("alice", "finished")
        Delivery.objects.update(not_before=timezone.now() - timedelta(minutes=1))
        mail.outbox.clear()
        reconcile.run()
        assert Delivery.objects.get().open

    def test_an_e_mail_is_in_the_users_language(self, alice, settings):
        settings.EMAIL_HOST = "localhost"
        Preference.objects.create(user=alice, email="alice@example.org", language="en")
        change("alice", "error", reason="exit code 1")
        delivery.deliver(Delivery.objects.get().pk)
        (letter,) = mail.outbox
        assert letter.to == ["alice@example.org"]
        assert "fit" in letter.subject
        assert "exit code 1" in letter.body

    @pytest.mark.parametrize("url", few([
        "http://127.0.0.1/", "http://localhost:30001/", "http://169.254.169.254/latest", "http://[::1]/", "http://10.0.0.1/",
        "http://0.0.0.0/", "http://[::ffff:127.0.0.1]/", "ftp://example.org/", "file:///etc/passwd", "//example.org",
        "http://user:word@example.org/", "http://example.org/a b", "http://2130706433/", "x",
        "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/", "http://[::7f00:1]/", "http://224.0.0.1/", "http://[fec0::1]/",
    ], 5))  # fmt: skip
    def test_internal_and_invalid_webhook_addresses_are_refused(self, alice_client, alice, url):
        assert alice_client.post("/settings", {"webhook": url}).status_code == 403
        assert not Preference.objects.exists()
        Preference.objects.create(user=alice, webhook=url)
        change("alice", "error")
        delivery.deliver(Delivery.objects.get().pk)
        assert "webhook" in Delivery.objects.get().error


class TestSlowReceivers:
    """A server that answers slowly, or a byte at a time, occupies few threads, and only for a short time."""

    @pytest.fixture
    def slow(self, hook, settings):
        """Yield a webhook receiver that answers after it is released; `entered` is set when a request has arrived."""
        settings.WEBHOOK_PRIVATE = True
        hook.entered, hook.free = threading.Event(), threading.Event()
        handler = hook.RequestHandlerClass
        quick = handler.do_POST

        def wait(self):
            hook.entered.set()
            assert hook.free.wait(LIMIT_S)
            quick(self)

        handler.do_POST = wait
        yield hook
        hook.free.set()

    @staticmethod
    def rows(*users) -> list[int]:
        for user in users:
            change(user.username, "error")
        return list(Delivery.objects.order_by("pk").values_list("pk", flat=True))

    def begin(self, pk: int) -> threading.Thread:
        def work():
            delivery.deliver(pk)
            connection.close()

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def test_a_slow_name_server_does_not_block_others(self, alice_client, monkeypatch):
        """The slow name server is simulated: no real name is certain to take long."""
        ended = threading.Event()
        monkeypatch.setattr(webhook, "LOOKUP_S", 0.2)
        slow = SimpleNamespace(SOCK_STREAM=0, getaddrinfo=lambda *_, **__: ended.wait(LIMIT_S))
        monkeypatch.setattr(webhook, "socket", slow)
        try:
            for _ in range(6):  # more than are looked up at a time
                answer = alice_client.post("/settings", {"webhook": "https://slow.example.org/"})
                assert answer.status_code == 403
                assert "could not be resolved in time" in answer.content.decode()
        finally:
            ended.set()

    def test_a_dripping_response_is_cut_off(self, alice, hook, settings, monkeypatch):
        settings.WEBHOOK_PRIVATE = True
        monkeypatch.setattr(webhook, "LIMIT_S", 0.3)
        ended = threading.Event()

        def drip(self):
            with contextlib.suppress(OSError):
                for _ in range(20 * LIMIT_S):
                    if ended.wait(0.05):
                        return
                    self.wfile.write(b"H")

        hook.RequestHandlerClass.do_POST = drip
        Preference.objects.create(user=alice, webhook=hook.url)
        change("alice", "error")
        delivery.deliver(Delivery.objects.get().pk)
        ended.set()
        row = Delivery.objects.get()
        assert (row.open, "within 0.3 s" in row.error) == (True, True)

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("others", [False, True], ids=["of one user", "of all users"])
    def test_waiting_deliveries_occupy_no_thread(self, alice, bob, slow, monkeypatch, others):
        for user in (alice, bob):
            Preference.objects.create(user=user, webhook=slow.url)
        if others:
            monkeypatch.setattr(delivery.SENDER, "at_once", 1)
        first, second = self.rows(alice, bob if others else alice)
        thread = self.begin(first)
        assert slow.entered.wait(LIMIT_S)
        delivery.deliver(second)  # returns, though nothing has been answered
        assert list(Delivery.objects.order_by("pk").values_list("attempts", flat=True)) == [1, 0]
        slow.free.set()
        thread.join(LIMIT_S)
        assert not thread.is_alive()
        assert [json.loads(body)["user"] for _, body in slow.got] == ["alice", "bob" if others else "alice"]
        assert not Delivery.objects.filter(open=True).exists()


class TestSettings:
    def test_preferences_are_stored_and_apply_in_another_browser(self, alice_client, alice):
        answer = alice_client.post("/settings", {"language": "zh-hans", "theme": "dark", "email": "alice@example.org"})
        assert (answer.status_code, answer.cookies["theme"].value) == (302, "dark")
        other = Client()
        answer = other.post("/regist_login", {"username": "alice", "password": PASSWORD, "action": "login"})
        assert (answer.cookies["django_language"].value, answer.cookies["theme"].value) == ("zh-hans", "dark")

    @pytest.mark.parametrize(
        "form", few([{"language": "xx"}, {"theme": "pink"}, {"email": "alice"}, {"webhook": "h" * 600}], 2)
    )
    def test_invalid_preferences_are_refused(self, alice_client, form):
        assert alice_client.post("/settings", form).status_code == 403
        assert not Preference.objects.exists()


class TestSessions:
    def test_all_other_sessions_can_be_ended(self, alice):
        here, there = Client(), Client()
        for client in (here, there):
            client.post("/regist_login", {"username": "alice", "password": PASSWORD, "action": "login"})
        assert Visit.objects.filter(user=alice).count() == 2
        assert "Log out others" in here.get("/account").content.decode()
        here.post("/account/sessions")
        assert here.get("/account").status_code == 200
        assert there.get("/account").status_code == 302

    def test_a_login_changes_the_session_key(self, alice, client):
        session = client.session
        session["x"] = 1
        session.save()
        before = client.cookies["sessionid"] = session.session_key
        client.post("/regist_login", {"username": "alice", "password": PASSWORD, "action": "login"})
        assert client.cookies["sessionid"].value != before

    def test_a_password_change_ends_all_other_sessions(self, alice):
        here, there = Client(), Client()
        for client in (here, there):
            client.post("/regist_login", {"username": "alice", "password": PASSWORD, "action": "login"})
        here.post("/account/password", {"current": PASSWORD, "password": "another battery horse"})
        assert here.get("/account").status_code == 200
        assert there.get("/account").status_code == 302
        assert Visit.objects.filter(user=alice).count() == 1

    def test_the_last_use_of_a_token_is_shown(self, alice, api, alice_client):
        assert "not used yet" in alice_client.get("/account").content.decode()
        api(lifecycle.token_of(alice)).call("get", "users/alice/jobs")
        assert "last used" in alice_client.get("/account").content.decode()
        assert notices.unread(alice) == 0


def test_an_application_that_keeps_failing_is_notified_at_intervals(alice):
    for _ in range(3):
        app = {"kind": "application", "owner": "alice", "name": "calc", "object_id": 1, "by": "runner"}
        StateChange.objects.create(transition="lose", source="ready", target="creating", reason="exit code 3", **app)
        StateChange.objects.create(transition="up", source="creating", target="ready", **app)
    assert [(row.name, row.event, row.reason) for row in Notice.objects.all()] == [("calc", "down", "exit code 3")]
    Notice.objects.update(at=timezone.now() - timedelta(minutes=11))
    StateChange.objects.create(transition="lose", source="ready", target="creating", reason="again", **app)
    assert Notice.objects.count() == 2

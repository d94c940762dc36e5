"""Levels of notification for each kind, and digests by e-mail."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core import mail
from django.db.models import F

from accounts import delivery, notices
from accounts.models import Delivery, Notice, Preference
from kernel.messages import Message
from mlp.tests.page_world import visitor

from .test_notices import change

pytestmark = pytest.mark.django_db


@pytest.fixture
def mailed(alice, settings):
    settings.EMAIL_HOST = "mail.example"
    return Preference.objects.create(user=alice, email="alice@example.org")


def send() -> None:
    """Do what the workers do."""
    for row in Delivery.objects.filter(open=True):
        delivery.deliver(row.pk)


def later(minutes: int) -> None:
    """Let that time pass, for what is planned."""
    Delivery.objects.update(not_before=F("not_before") - timedelta(minutes=minutes))


def choose(user, **fields: str):
    row = Preference.objects.filter(user=user).first() or Preference()
    return visitor(user).post("/settings", {"email": row.email, **{f"notify_{kind}": fields[kind] for kind in fields}})


def test_without_a_choice_everything_is_told(alice, mailed):
    change("alice", "finished")
    send()
    assert notices.unread(alice) == len(mail.outbox) == 1


@pytest.mark.parametrize(("level", "heard"), [("failures", ["error"]), ("none", [])])
def test_what_is_not_chosen_is_listed_as_read_and_not_sent(alice, mailed, level, heard):
    assert choose(alice, job=level).status_code == 302
    for target in ("finished", "error"):
        change("alice", target)
    change("alice", "error", kind="model")
    assert set(Notice.objects.values_list("kind", "event")) == {
        ("job", "finished"),
        ("job", "error"),
        ("model", "error"),
    }
    unread = list(Notice.objects.filter(read=False).order_by("pk").values_list("kind", "event"))
    assert unread == [("job", event) for event in heard] + [("model", "error")]
    later(20)
    send()
    assert Delivery.objects.count() == len(unread)
    assert not any("finished" in message.subject + message.body for message in mail.outbox)


def test_what_concerns_the_account_is_always_told(alice, mailed):
    Preference.objects.update(notification_levels=dict.fromkeys(notices.LEVELS, "none"))
    notices.tell(alice, Message("your password was changed"))
    assert notices.unread(alice) == 1


def test_the_choices_are_kept_and_shown(alice):
    assert choose(alice, job="failures", alert="none").status_code == 302
    assert Preference.objects.get(user=alice).notification_levels == {"job": "failures", "alert": "none"}
    page = visitor(alice).get("/settings").content.decode()
    assert page.count('<option value="none" selected>') == page.count('<option value="failures" selected>') == 1
    assert choose(alice, job="").status_code == 302
    assert Preference.objects.get(user=alice).notification_levels == {}


@pytest.mark.parametrize("level", ["no-such", "failures"])  # an alert has no success
def test_another_choice_is_refused_at_its_field(alice, level):
    answer = choose(alice, alert=level)
    assert answer.status_code == 403
    assert "must be one of the choices offered" in answer.content.decode()
    assert not Preference.objects.exists()


def test_the_first_mail_is_sent_at_once_and_the_next_ones_in_one(alice, mailed):
    change("alice", "finished")
    send()
    assert [message.subject for message in mail.outbox] == ["job fit: finished"]
    for target in ["finished"] * 5 + ["error"]:
        change("alice", target, reason="exit code 3" if target == "error" else "")
        send()
    assert len(mail.outbox) == 1
    later(11)
    send()
    assert len(mail.outbox) == 2
    assert mail.outbox[1].subject == "6 notifications (finished 5, error 1)"
    assert mail.outbox[1].body.count("job fit: finished") == 5
    assert "exit code 3" in mail.outbox[1].body
    assert not Delivery.objects.filter(open=True).exists()
    later(11)
    change("alice", "finished")
    send()
    assert len(mail.outbox) == 3, "after a pause the first is sent at once again"


def test_a_mail_server_that_is_away_loses_and_doubles_nothing(alice, mailed, monkeypatch):
    def away(*_given, **_named):
        raise ConnectionRefusedError

    monkeypatch.setattr(delivery, "send_mail", away)
    for _ in range(3):
        change("alice", "error")
    send()
    later(11)
    send()
    assert Delivery.objects.filter(open=True, error__contains="ConnectionRefused").count() == 3
    monkeypatch.undo()
    later(11)
    send()
    assert [message.subject for message in mail.outbox] == ["3 notifications (error 3)"]
    later(500)
    send()
    assert len(mail.outbox) == 1


def test_a_delivery_that_comes_twice_at_the_same_time_is_sent_once(alice, mailed):
    for _ in range(2):
        change("alice", "error")
    later(11)
    stale = list(delivery.SENDER.due())
    for row in stale:
        delivery._attempt(row)
    assert [message.subject for message in mail.outbox] == ["2 notifications (error 2)"]


def test_users_do_not_get_the_mail_of_others(alice, bob, mailed):
    Preference.objects.create(user=bob, email="bob@example.org")
    for owner in ("alice", "bob", "alice", "bob"):
        change(owner, "error")
    later(11)
    send()
    assert sorted((message.to, message.subject) for message in mail.outbox) == [
        (["alice@example.org"], "2 notifications (error 2)"),
        (["bob@example.org"], "2 notifications (error 2)"),
    ]

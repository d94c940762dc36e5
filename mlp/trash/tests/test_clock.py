"""A clock that jumps ahead deletes nothing for its age, until it is set back, confirmed, or a day has passed."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.utils import timezone

import accounts.reconcile
from accounts.models import LoginAddress
from aiops.intake import accept
from aiops.models import LogLine
from aiops.services.housekeeping import Housekeeping
from jobs.models import Job
from kernel import clock, storage
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visible_text, visitor
from mlp.tests.tiers import few
from operations.checkup import machine
from resources import usage
from resources.models import Tenant, UsageSample

from .test_trash import KINDS, age, listed, purge, thing

__all__ = ["thing"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks")]
HOUR, DAY = 3600, 86_400


class Clocks:
    """The machine's clocks, which a test sets: the wall clock, which the platform reads, and the time since a start."""

    def __init__(self, monkeypatch):
        self.real, self.begun = timezone.now, time.time()
        self.jumped = self.passed = 0.0
        self.boot = "first"
        monkeypatch.setattr(timezone, "now", lambda: self.real() + timedelta(seconds=self.jumped + self.passed))
        self.poll()

    def poll(self) -> None:
        """Begin a round of reconcile."""
        clock.check(self.begun + self.jumped + self.passed, 1000 + self.passed, self.boot)

    def jump(self, seconds: float) -> None:
        self.jumped += seconds
        self.poll()

    def wait(self, seconds: float) -> None:
        """Let the time pass, with a round in each hour."""
        for _ in range(int(seconds // HOUR)):
            self.passed += HOUR
            self.poll()

    def restart(self, off_s: float) -> None:
        """Restart the machine, which was off for so long; nothing tells that from a clock that is wrong then."""
        self.boot += "+"
        self.jump(off_s)


@pytest.fixture
def clocks(monkeypatch):
    file = storage.root() / "run" / "clock.json"
    file.unlink(missing_ok=True)
    yield Clocks(monkeypatch)
    file.unlink(missing_ok=True)


def findings() -> list[str]:
    return [finding.level for finding in machine.clock_of_rounds()]


@pytest.mark.parametrize("kind", few(KINDS, 2))
def test_the_trash_is_not_emptied_by_a_jump(kind, thing, as_alice, tasks, clocks):
    thing(kind)
    as_alice.call("delete", f"users/alice/{KINDS[kind]}/thing?trash=1")
    clocks.jump(40 * DAY)
    purge()
    tasks.run()
    assert listed(as_alice) == [(kind, "thing")]
    clocks.jump(-40 * DAY)
    assert findings() == ["ok"]
    clocks.jump(40 * DAY)
    clocks.wait(23 * HOUR)
    purge()
    assert listed(as_alice) == [(kind, "thing")]
    clocks.wait(2 * HOUR)
    purge()
    tasks.run()
    assert (listed(as_alice), findings()) == ([], ["ok"])


def test_what_is_due_without_the_jump_is_deleted(thing, as_alice, tasks, clocks):
    thing("dataset")
    as_alice.call("delete", "users/alice/datasets/thing?trash=1")
    age("dataset", days=0.01)
    clocks.jump(40 * DAY)
    purge()
    assert listed(as_alice) == []


def test_administrators_are_told_and_confirm(thing, as_alice, staff, tasks, clocks, capsys):
    thing("dataset")
    as_alice.call("delete", "users/alice/datasets/thing?trash=1")
    clocks.jump(40 * DAY)
    assert findings() == ["problem"]
    client = visitor()
    client.force_login(staff)
    assert "The clock has jumped ahead by 960 hours." in visible_text(client.get("/admin/"))
    with pytest.raises(SystemExit):
        call_command("clock")
    call_command("clock", confirm=True)
    clocks.wait(HOUR)
    call_command("clock")
    assert "the clock is believed" in capsys.readouterr().out
    assert findings() == ["ok"]
    assert "The clock has jumped ahead" not in visible_text(client.get("/admin/"))
    purge()
    assert listed(as_alice) == []


def test_nothing_else_that_is_old_is_removed_by_a_jump(alice, tasks, clocks, monkeypatch, settings):
    Tenant.objects.filter(name="default").update(log_days=10, metrics_days=10, output_days=10)
    put(Job, alice, "fit", "finished")
    Job.objects.update(ended=clocks.real())
    session = Session.objects.create(session_key="a" * 32, expire_date=clocks.real() + timedelta(days=10))
    sample = UsageSample.objects.create(tenant=alice.tenant, at=clocks.real())
    address = LoginAddress.objects.create(user=alice, network="192.0.2.1", succeeded=clocks.real())
    settings.AIOPS_RETENTION_DAYS = 1
    at_ms = int((time.time() - 2 * DAY) * 1000)  # too old by the real clock, but not by the time that is believed
    accept.append([accept.line("old", namespace="alice", deployment="fit", id="old", at_ms=at_ms)])

    def rounds() -> list[int]:
        monkeypatch.setattr(accounts.reconcile, "_tidied", 0.0)
        accounts.reconcile.run()
        usage.record()
        purge()
        keeper = Housekeeping()
        keeper.retain()
        keeper.stop()
        left = Job.objects.filter(log_removed=None, metrics_removed=None, output_removed=None).count()
        rows = [type(row).objects.filter(pk=row.pk).count() for row in (session, sample, address)]
        return [left, *rows, LogLine.objects.count()]

    clocks.jump(100 * DAY)
    assert rounds() == [1] * 5
    clock.confirm()
    assert rounds() == [0] * 5


@pytest.mark.parametrize(
    ("off_s", "level"), [(20 * HOUR, "ok"), (40 * DAY, "problem")], ids=["over night", "a wrong clock at the start"]
)
def test_a_clock_that_is_wrong_after_a_restart(clocks, off_s, level):
    clocks.restart(off_s)
    assert findings() == [level]
    clocks.wait(25 * HOUR)
    assert findings() == ["ok"]


def test_small_corrections_and_a_platform_that_was_down_are_no_jump(clocks):
    for _ in range(50):
        clocks.jump(HOUR / 2)
    clocks.passed += 90 * DAY  # it did not run meanwhile
    clocks.poll()
    assert findings() == ["ok"]

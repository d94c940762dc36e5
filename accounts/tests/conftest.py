"""Fixtures of the tests of log-ins."""

from __future__ import annotations

import pytest

from accounts import lifecycle, logins, throttle

from .logins import FREE


@pytest.fixture
def long_waits(settings, monkeypatch):
    settings.LOGIN_FAILURES_BEFORE_SLOWDOWN = FREE
    monkeypatch.setattr(throttle, "FIRST_S", 60)
    monkeypatch.setattr(logins, "OF_AN_ACCOUNT", 2)
    monkeypatch.setattr(logins, "OF_A_NETWORK", 3)


@pytest.fixture
def owner(alice):
    """Make alice an administrator, so that all three log-ins are hers."""
    lifecycle.set_staff(username="alice", staff=True, by="test")
    return alice

"""Log-ins by password: how failed attempts are counted and limited, and when the owner is notified of them.

An attacker must not be able to lock the owner out. So attempts from known sources (a browser with the device cookie, a
network of an earlier log-in) are counted per source, and only those from unknown sources are counted together: by
account and network, by network, and by account. Used by the log-in page, the admin's form and the token call.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.db.models import F, Sum
from django.http import HttpResponse
from django.utils import timezone

from kernel import clock, names
from kernel.errors import Refused, TooMany
from kernel.messages import Message

from . import devices, notices, throttle
from .models import LoginAddress, User
from .throttle import Limit

log = logging.getLogger(__name__)

FORGET_S = 900  # one failure: what is left to a patient guesser is four attempts an hour
OF_A_NETWORK = 10  # times the free attempts of one user: a company may share an address
OF_AN_ACCOUNT = 5  # from all strangers together; then the owner is notified
KEPT = timedelta(days=90)  # how long a network counts as the owner's after a log-in
WORTH_TELLING = 3  # failures from where the user then logs in: fewer are typing errors
LONGEST_ELSEWHERE = 100  # characters of a username in a directory
SHOWN = 5  # networks in a notice


@dataclass(frozen=True)
class Directory:
    """How a directory is asked: accounts.signin.directory, which is above this module, sets it."""

    check: Callable[[str, str], Any]  # returns the person of that name and password, or None
    enter: Callable[[Any], User]


directory = Directory(lambda username, password: None, lambda person: person)


@dataclass(frozen=True)
class Attempt:
    """One try of a password, counted before the password is checked."""

    username: str
    user: User | None
    network: str
    limits: list[Limit]

    def matches(self, password: str) -> bool:
        """Return whether it is the user's password. Raises TooMany, and counts nothing, if too many try."""
        if self.limits[0].scope != "stranger":
            return self.user.check_password(password)
        try:
            with throttle.hashing():
                if self.user is not None:
                    return self.user.check_password(password)
                make_password(password)  # takes as long as to check one
                return False
        except TooMany:
            throttle.undo(self.limits)
            raise

    def failed(self) -> None:
        log.warning("log-in of %s from %s failed", self.username, self.network)
        if self.user is None or self.limits[0].scope == "device":
            return
        row, _ = LoginAddress.objects.get_or_create(user=self.user, network=self.network)
        LoginAddress.objects.filter(pk=row.pk).update(failures=F("failures") + 1, failed=timezone.now())
        if self.user.login_addresses.aggregate(n=Sum("failures"))["n"] == _of_account(self.username).free:
            report(self.user)

    def succeeded(self) -> None:
        """Forget the failures of this user here. Those of the network and of the account stay: others may have caused
        them, and an attacker could reset them with an account of their own.
        """
        log.info("log-in of %s from %s", self.username, self.network)
        throttle.reset(self.limits[:1])
        throttle.undo(self.limits[1:])


def begin(request, username: str) -> Attempt:
    """Count an attempt to log in and return it. Raises TooMany with the time to wait."""
    user, network = User.objects.filter(username=username).first(), network_of(request)
    mark = devices.mark_of(request, user)
    free = settings.LOGIN_FAILURES_BEFORE_SLOWDOWN
    if mark:
        limits = [Limit("device", (username, mark), free, FORGET_S)]
    elif user is not None and _is_usual(user, network):
        limits = [Limit("usual", (username, network), free, FORGET_S)]
    else:
        shared = free * OF_A_NETWORK
        limits = [
            Limit("stranger", (username, network), free, FORGET_S),
            Limit("network", (network,), shared, throttle.HOUR_S / shared),
            _of_account(username),
        ]
    _claim(limits, f"log-in of {username} from {network}")
    return Attempt(username, user, network, limits)


def check(request, username: str, password: str) -> User:
    """Return the active user with that password.

    Raises Refused when the credentials are wrong or the account is not active; the answer takes as long for a user that
    does not exist. Raises TooMany after too many failures.
    """
    elsewhere = settings.LDAP_DIRECTORY is not None
    try:
        names.name(username)
    except Refused:  # not a valid username, so there is no such user here
        if not elsewhere or "\0" in username or not 0 < len(username) <= LONGEST_ELSEWHERE:
            raise Refused("wrong username or password", field="username")
    attempt = begin(request, username)
    user = attempt.user
    if elsewhere and (user is None or not user.has_usable_password()):
        user = _by_directory(attempt, password)
    elif not attempt.matches(password):
        attempt.failed()
        raise Refused("wrong username or password", field="username")
    else:
        attempt.succeeded()
    if not user.is_active:
        raise Refused("this account is not active; an administrator can activate it", field="username")
    _remember(user, attempt.network)
    return user


def _by_directory(attempt: Attempt, password: str) -> User:
    """Return the user whom the directory knows by that password. That it cannot answer is no failure of theirs."""
    try:
        with throttle.hashing():  # it occupies a thread, too
            person = directory.check(attempt.username, password)
    except Refused:
        throttle.undo(attempt.limits)
        raise
    if person is None:
        attempt.failed()
        raise Refused("wrong username or password", field="username")
    attempt.succeeded()
    return directory.enter(person)


def confirm(user: User, password: str) -> None:
    """Check the password of a user who is logged in. Raises Refused naming `current`; TooMany after many failures."""
    limits = [Limit("confirm", (user.username,), settings.LOGIN_FAILURES_BEFORE_SLOWDOWN, FORGET_S)]
    _claim(limits, f"confirmation of {user.username}", field="current")
    if not user.check_password(password):
        raise Refused("That is not your current password.", field="current")
    throttle.reset(limits)


@contextlib.contextmanager
def second_step(request, user: User) -> Iterator[None]:
    """Count a try of a second factor; failures count for each browser that the user has logged in with, and for all
    others together. Raises TooMany after many.
    """
    mark = devices.mark_of(request, user)
    limits = [Limit("second", (user.username, mark), settings.LOGIN_FAILURES_BEFORE_SLOWDOWN, FORGET_S)]
    _claim(limits, f"second factor of {user.username} from {network_of(request)}", field="code")
    try:
        yield
    except Refused:
        log.warning("second factor of %s from %s was wrong", user.username, network_of(request))
        raise
    throttle.reset(limits)


def entered(request, response: HttpResponse, user: User) -> HttpResponse:
    """Complete a log-in in a browser: know the browser and its network from now on, and tell the user of failures by
    others.
    """
    network = network_of(request)
    devices.remember(request, response, user)
    _remember(user, network)
    user.login_addresses.filter(network=network, failures__lt=WORTH_TELLING).update(failures=0)
    report(user)
    return response


def network_of(request) -> str:
    return throttle.network(throttle.client_address(request))


def forgive(username: str) -> None:
    """Forget the failures of strangers, when an administrator has set a new password."""
    throttle.reset([_of_account(username)])


def report(user: User) -> None:
    """Notify the user of the failed log-ins since the last notice, if there are any."""
    rows = list(user.login_addresses.filter(failures__gt=0).order_by("-failures"))
    if not rows:
        return
    LoginAddress.objects.filter(pk__in=[row.pk for row in rows]).update(failures=0)
    shown = ", ".join(row.network for row in rows[:SHOWN]) + (", …" if len(rows) > SHOWN else "")
    reason = Message(
        "%(count)s failed log-ins with your username, from %(addresses)s",
        count=sum(row.failures for row in rows), addresses=shown,
    )  # fmt: skip
    notices.notify(user=user, kind="user", name=user.username, event="error", reason=reason)


def tidy() -> None:
    """Delete the networks from which there was neither a log-in nor a failure for a long time."""
    old = clock.settled(timezone.now()) - KEPT
    LoginAddress.objects.exclude(succeeded__gte=old).exclude(failed__gte=old).delete()


def _is_usual(user: User, network: str) -> bool:
    return user.login_addresses.filter(network=network, succeeded__gt=timezone.now() - KEPT).exists()


def _of_account(username: str) -> Limit:
    return Limit("account", (username,), settings.LOGIN_FAILURES_BEFORE_SLOWDOWN * OF_AN_ACCOUNT, FORGET_S)


def _claim(limits: list[Limit], what: str, field: str = "username") -> None:
    wait_s = throttle.claim(limits)
    if wait_s:
        log.warning("%s refused for %s s: too many failures", what, wait_s)
        raise TooMany("too many failed logins; try again in %(seconds)s s", field=field, seconds=wait_s)


def _remember(user: User, network: str) -> None:
    LoginAddress.objects.update_or_create(user=user, network=network, defaults={"succeeded": timezone.now()})

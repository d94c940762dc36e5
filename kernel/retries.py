"""Rows of a table that are sent to servers of unknown quality, with retries: notices and events of the registry.

A row has `open` (whether another attempt will be made), `attempts` and `not_before`. An attempt is claimed in the
database, so that no other process makes it, for CLAIMED_S; one that a killed process had begun is made again after
that. Reconcile enqueues the rows that are due again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

from django.db.models import Model, QuerySet
from django.utils import timezone

PAUSES_S = (10, 60, 300, 1800, 7200)  # after each failed attempt; after the last the row has failed
# A webhook answers or fails within 13 s (kernel.webhook). An e-mail has a limit for each answer of the mail server, not
# as a whole: where all of them take longer than this, it may be sent twice.
CLAIMED_S = 60
# Rows that a sender of a process sends at the same time: other threads are for work that users wait for.
AT_ONCE = 3
TURN_S = 60.0  # after which a thread takes no further rows


class Sender:
    """Sends the rows that are due.

    A user's rows are sent one after the other, and those of at most `at_once` users at a time, so that slow servers
    block no more threads than that, and one user's no more than one. `user` is the path from a row to its user, such as
    "notice__user"; `attempt` claims the row, sends it and settles it.
    """

    def __init__(self, model: type[Model], user: str, attempt: Callable[[Model], None], at_once: int = AT_ONCE):
        self.model, self.user, self.attempt, self.at_once = model, user, attempt, at_once
        self.busy: set[int] = set()  # the users whose rows are being sent by this process
        self._guard = threading.Lock()

    def due(self) -> QuerySet:
        """Return the rows that are due, the longest due first."""
        rows = self.model.objects.filter(open=True, not_before__lte=timezone.now())
        return rows.select_related(self.user).order_by("not_before", "pk")

    def deliver(self, pk: int) -> None:
        """Attempt a row that is due, then others that are due. May be called any number of times.

        A row that finds no free slot is sent by a thread that is already sending, or enqueued again by reconcile.
        """
        end = time.monotonic() + TURN_S
        row = self.due().filter(pk=pk).first()
        while row is not None and self._claim_slot(user := self._user_id(row)):
            try:
                self.attempt(row)
            finally:
                with self._guard:
                    self.busy.discard(user)
            with self._guard:
                others = list(self.busy)
            row = self.due().exclude(**{f"{self.user}__in": others}).first() if time.monotonic() < end else None

    def _user_id(self, row: Model) -> int:
        for name in self.user.split("__"):
            row = getattr(row, name)
        return row.pk

    def _claim_slot(self, user: int) -> bool:
        with self._guard:
            free = user not in self.busy and len(self.busy) < self.at_once
            if free:
                self.busy.add(user)
            return free


def claim(row: Model) -> bool:
    """Take the next attempt of a row, unless another process has."""
    unclaimed = type(row).objects.filter(pk=row.pk, open=True, attempts=row.attempts)
    until = timezone.now() + timedelta(seconds=CLAIMED_S)
    claimed = bool(unclaimed.update(attempts=row.attempts + 1, not_before=until))
    row.attempts += claimed
    return claimed


def settle(row: Model, *, failed: bool, **fields) -> None:
    """Record how a claimed attempt ended, with further fields of the row."""
    again = failed and row.attempts <= len(PAUSES_S)
    pause = PAUSES_S[row.attempts - 1] if again else 0
    due = timezone.now() + timedelta(seconds=pause)
    type(row).objects.filter(pk=row.pk).update(open=again, not_before=due, **fields)


def start_over(row: Model) -> bool:
    """Make a row due with all attempts ahead of it; return whether it is still there."""
    fresh = {"open": True, "attempts": 0, "not_before": timezone.now()}
    return bool(type(row).objects.filter(pk=row.pk).update(**fresh))

"""The runs that rows of the database own: one mechanism for jobs, model checks, applications and trainings.

A kind subclasses `OwnedRuns` and gives only what is its own: which row may start a run, what the run is, what follows
from its state. The mechanism is the same for all of them:

    launch   commit the run's name to the row, start the run with no lock held, record the start under the lock again
    look     poll the run and act on its state
    clean    stop the run, forget it, then clear its name in the row, provided the row still has that name
    sweep    stop and forget the runs whose name is in no row

Every step may be repeated, late, and by several callers at once: the runner's verbs are idempotent by the run's name,
and a row that has another run by now is left alone. Because a name is committed before its run is started, a run whose
name is in no row belongs to nothing.

Actors pass `follow=True`: they look at the row again soon. The reconcile loop passes False, since it comes back by
itself and each of its messages would start another chain of looks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from django.utils import timezone

import runners
from kernel import healing, storage
from kernel.errors import Fault, Refused
from kernel.locking import Missing, locked
from kernel.messages import Message, with_lines
from kernel.telemetry import tracing

LAUNCH_PATIENCE_S = 300  # how long a run may fail to start for a fault of the runner
LONGEST_PAUSE_S = 600  # between two runs of a row; longer than any that a kind makes
LOG_LINES_IN_REASON = 5
WAITING_MS = 2000  # between two looks at a run that waits for a node or an image


class Owner(Protocol):
    """A row that may own a run."""

    pk: int
    run_name: str  # empty while there is no run


Row = TypeVar("Row", bound=Owner)


class OwnedRuns(ABC, Generic[Row]):
    """The runs of one kind of row. No method is called while a lock is held, except `release`."""

    model: ClassVar[Any]  # the Django model of the rows
    prefix: ClassVar[str]  # of the names of these runs, and of no others

    # --- what a kind gives ----------------------------------------------------------------------------------------
    @abstractmethod
    def order(self, pk: int) -> Row | None:
        """Commit the name of the next run to the row and return the row; None when it may not start one now."""

    def prepare(self, row: Row) -> bool:
        """Prepare what the run needs; return False when it turns out that it may not start."""
        return True

    @abstractmethod
    def spec(self, row: Row) -> runners.RunSpec:
        """Return what to run."""

    @abstractmethod
    def fail(self, pk: int, reason: str) -> None:
        """Record that the row's run could not be started and will not be."""

    def is_worth_retrying(self, row: Row, fault: Exception) -> bool:
        """Return whether to raise a fault met while starting, so that the message is retried, or to fail the row."""
        return True

    def started(self, row: Row) -> None:
        """Record that the run is known to the runner."""

    def running(self, row: Row, status: runners.RunStatus, follow: bool) -> None:
        """Act on a run that runs, or that waits for a node or an image (`status.waits`, with the reason)."""

    def unknown(self, row: Row, status: runners.RunStatus, follow: bool) -> None:
        """Act on a run that the runner does not know: not started yet, or forgotten."""
        self.ended(row, status)

    @abstractmethod
    def ended(self, row: Row, status: runners.RunStatus) -> None:
        """Act on a run that has exited or is lost."""

    def discard(self, row: Row) -> None:
        """Remove the files that only the run needed. Called before the row forgets the run, so it may be repeated."""

    def release(self, row: Row) -> None:
        """Save the locked row, whose run is gone and whose `run_name` is empty now, and release what the run used."""
        row.save(update_fields=["run_name"])

    def trace(self, row: Row) -> str | None:
        """Return the span (W3C traceparent) that the start of the run belongs to; None for the current one."""
        return None

    # --- the mechanism --------------------------------------------------------------------------------------------
    def launch(self, pk: int) -> Row | None:
        """Start the run that the row is due for, unless the runner knows it; return the row, None when none is due.

        A refused or invalid spec fails the row at once. Raises Fault, RunnerError or OSError while that is worth
        another try (see `is_worth_retrying`).
        """
        try:
            row = self.order(pk)
            if row is None or not self._start(row):
                return None
        except Missing:  # the row is deleted: `sweep` stops what was started for it
            return None
        except (Refused, ValueError) as problem:
            return self.fail(pk, _not_started(problem))
        self.started(row)
        return row

    def _start(self, row: Row) -> bool:
        """Start the run unless the runner knows it already; return whether the runner knows it now."""
        try:
            runner = runners.get()
            if runner.poll(row.run_name).state != "unknown":
                return True
            if not self.prepare(row):
                return False
            with tracing.span("run.start", parent=self.trace(row), mlp__run=row.run_name):
                runner.start(self.spec(row))
        except (Fault, runners.RunnerError, OSError) as fault:
            if self.is_worth_retrying(row, fault):
                raise
            self.fail(row.pk, _not_started(fault))
            return False
        return True

    def poll(self, row: Row, follow: bool = False) -> None:
        """Poll the run of a row and call the method for its state."""
        status = runners.get().poll(row.run_name)
        if status.state == "running":
            self.running(row, status, follow)
        elif status.state == "unknown":
            self.unknown(row, status, follow)
        else:
            self.ended(row, status)

    def clean(self, row: Row, grace_s: float | None) -> bool:
        """Take one step towards a row without a run; return whether it is done.

        A run that still runs is asked to stop, with `grace_s` seconds before it is killed; None lets it run.
        """
        if row.run_name and not stop(row.run_name, grace_s):
            return False
        self.discard(row)
        try:
            with locked(self.model, pk=row.pk) as current:
                if current.run_name == row.run_name:
                    current.run_name = ""
                    self.release(current)
        except Missing:
            pass
        return True

    def sweep(self) -> None:
        """Stop and forget the runs of this kind whose name is in no row: earlier attempts, or late starts."""
        runner = runners.get()
        # The runner first: a run that starts between the two questions has its name in a row already.
        names = [name for name in runner.names() if name.startswith(self.prefix)]
        healing.each(runner.discard, sorted(set(names) - self.names_of_rows(names)))

    def names_of_rows(self, names: list[str]) -> set[str]:
        """Return those of the names that are in a row."""
        return set(self.model.objects.filter(run_name__in=names).values_list("run_name", flat=True))


def stop(run_name: str, grace_s: float | None) -> bool:
    """Ask a run to stop, or forget it once it has ended; return whether it is gone. With None it may run on."""
    runner = runners.get()
    if runner.poll(run_name).state == "running":
        if grace_s is not None:
            runner.stop(run_name, grace_s)
        return False
    runner.forget(run_name)
    return True


def lacking_gpus(kind: str, count: int) -> Message | None:
    """Return why a run that names this type of GPUs has to wait; None if it has not. Those of runs that named none are
    known only to the runner.
    """
    try:
        if kind:
            runners.get().need_gpus(kind, count)
    except runners.NoGpus as problem:
        return problem.msg
    return None


def has_processes(run_name: str) -> bool:
    """Return whether processes of a run may be left, also where its row has reported an end. Raises RunnerError."""
    return bool(run_name) and runners.get().poll(run_name).state == "running"


def _not_started(problem: Exception) -> str:
    return storage.without_root(Message("could not be started: %(problem)s", problem=problem))


def with_log(reason: str, log: Path) -> str:
    """Return the reason of an end with the last lines of the run's log below it."""
    return storage.without_root(with_lines(reason, runners.tail(log, LOG_LINES_IN_REASON).splitlines()))


def has_come(moment: datetime | None) -> bool:
    """Return whether the end of a pause has come. One further ahead than any pause was set before the machine's clock
    was set back, and has come, too.
    """
    ahead_s = -seconds_since(moment)
    return not 0 < ahead_s <= LONGEST_PAUSE_S


def seconds_run(status: runners.RunStatus, ordered: datetime | None) -> float:
    """Return for how long a run that was ordered then has had a process; 0 while it waits for a node or an image."""
    if status.waits:
        return 0.0
    since = seconds_since(ordered)
    return since if status.started is None else min(since, timezone.now().timestamp() - status.started)


def look_again_ms(status: runners.RunStatus, usual_ms: int) -> int:
    """Return after how many milliseconds an actor looks at the run again; reconcile sees its start in any case."""
    return max(usual_ms, WAITING_MS) if status.waits else usual_ms


def seconds_since(moment: datetime | None) -> float:
    """Return the seconds since that moment, 0 when there is none."""
    return (timezone.now() - moment).total_seconds() if moment else 0.0

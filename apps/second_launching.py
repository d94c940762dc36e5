"""Between the rows of rollouts and replicas and their runs: the mechanism of runners.owned for both.

No lock is held while a runner or a run is asked, and every step may be repeated.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TypeVar

import runners
from jobs.packages import building
from kernel import sockets, storage
from kernel.errors import Fault
from kernel.messages import Message
from runners import RunSpec, RunStatus, owned

from . import launching, proof, second_runs
from .models import Replica, Rollout

log = logging.getLogger(__name__)

Row = TypeVar("Row", Rollout, Replica)


class SecondRuns(owned.OwnedRuns[Row]):
    """The runs of one kind of row beside an application's own run. A row in the phase `starting` is due for its run."""

    prefix = launching.ApplicationRuns.prefix

    @abstractmethod
    def come_up(self, row: Row, address: str) -> None:
        """Record that the run answers at `address`. Raises Missing."""

    @abstractmethod
    def lose(self, row: Row, reason: str, requested: bool = False) -> None:
        """Record that the run did not come up or has ended; `requested`: with the platform. Raises Missing."""

    def order(self, pk: int) -> Row | None:
        rows = self.model.objects.select_related("app__user", "app__tenant", "app__model")
        return rows.filter(pk=pk, phase=self.model.Phase.STARTING).first()

    def prepare(self, row: Row) -> bool:
        """Return whether the files of the model are here, its packages installed and GPUs of its type free, and remove
        the log of the run that had its place.
        """
        coming = second_runs.as_application(row)
        try:
            waits_for = launching.lacking(coming)
        except building.Failed as problem:
            self.lose(row, problem.reason)
            return False
        if waits_for or owned.lacking_gpus(row.app.gpu_type, row.app.gpu):
            second_runs.note_wait(row)
            return False
        earlier = launching.log_path(coming)
        storage.clear(earlier.parent, only={earlier.name})  # another run may have put a link in the folder's place
        return True

    def spec(self, row: Row) -> RunSpec:
        return launching.spec_of(second_runs.as_application(row))

    def fail(self, pk: int, reason: str) -> None:
        row = self.order(pk)
        if row is not None:
            self.lose(row, reason)

    def running(self, row: Row, status: RunStatus, follow: bool) -> None:
        if row.phase != self.model.Phase.STARTING:
            return
        address = runners.get().address(row.run_name)
        if address and proof.is_given(address, row.run_name, launching.PROBE_S):
            self.come_up(row, sockets.text(address))
        elif _is_late(row, status):
            self._give_up(row)

    def unknown(self, row: Row, status: RunStatus, follow: bool) -> None:
        if row.phase != self.model.Phase.STARTING:
            self.ended(row, status)
        elif _is_late(row, status):
            self._give_up(row)
        else:
            try:
                self.launch(row.pk)
            except (Fault, runners.RunnerError, OSError):
                log.warning("the run %s could not be started; it is tried again", row.run_name, exc_info=True)

    def ended(self, row: Row, status: RunStatus) -> None:
        reason = status.reason or Message("the run no longer exists")
        requested = row.phase != self.model.Phase.STARTING and reason.startswith(runners.STOPPED)
        log_path = launching.log_path(second_runs.as_application(row))
        self.lose(row, owned.with_log(reason, log_path), requested)

    def _give_up(self, row: Row) -> None:
        self.lose(row, launching.too_slow(second_runs.as_application(row)))


def _is_late(row: Rollout | Replica, status: RunStatus) -> bool:
    return owned.seconds_run(status, row.ordered) > launching.start_s(second_runs.as_application(row))

"""A worker of the task queue: Dramatiq's, in one process, whose threads wait for tasks until there is one.

Dramatiq's own command has a second process, which waits for the worker and copies its output, and four kinds of
threads that look once a second whether the worker ends. supervisord does the former, and the latter are woken here.
"""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Iterable

import dramatiq

from .broker import Broker

SHUTDOWN_MS = 3000  # for tasks that are under way; their messages are delivered again after that


class Tasks(queue.PriorityQueue):
    """The tasks that a worker has received. Its threads wait for one, however long that takes, or for the end."""

    ended = False

    def get(self, block: bool = True, timeout: float | None = None):
        """Return the next task. Raises queue.Empty at the worker's end, and never for the time."""
        if not block:
            return super().get(False)
        with self.not_empty:
            while not self.ended and not self._qsize():
                self.not_empty.wait()
            if self.ended:
                raise queue.Empty
            return self._get()

    def end(self) -> None:
        """Have no thread wait any more. What is left can be taken without waiting."""
        with self.not_empty:
            self.ended = True
            self.not_empty.notify_all()


class Worker(dramatiq.Worker):
    """Runs the tasks of some queues in threads."""

    def __init__(self, broker: Broker, queues: Iterable[str], threads: int):
        super().__init__(broker, queues=set(queues), worker_threads=threads)
        self.work_queue = Tasks()

    def stop(self, timeout: int = SHUTDOWN_MS) -> None:
        """Stop after the tasks that are under way, at most so many milliseconds; give back what has not begun."""
        for thread in self.workers:
            thread.stop()
        self.work_queue.end()
        super().stop(timeout)


def run(broker: Broker, queues: Iterable[str], threads: int) -> None:
    """Run tasks until SIGTERM or SIGINT. To be called in the main thread."""
    ended, end = os.pipe()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.write(end, b"."))
    broker.emit_after("process_boot")  # begins the watch over the time limits of tasks
    worker = Worker(broker, queues, threads)
    worker.start()
    os.read(ended, 1)
    worker.stop()
    broker.close()

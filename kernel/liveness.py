"""Whether a server hangs: it is stopped, frozen or cut off, so it takes requests and answers none.

A dead server refuses connections at once. One that hangs blocks its callers until their time-outs. So a caller that
waits for one of our servers longer than SILENCE_S has it probed, once for the whole process: a new connection
with a greeting that every server of its kind answers at once, without a password. A server that is slow, with a long
query or a large batch, answers that, and is waited for. While the probe finds that it hangs, everything that needs it
fails without waiting, so that the threads are free for what does not need it; the probe is repeated until it is
answered. Used by postgres, valkey and bus.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from . import sockets

log = logging.getLogger(__name__)

SILENCE_S = 1.0  # without an answer, until the server is probed
LOOK_S = 0.1
AGAIN_S = 0.25  # between two probes of a server that hangs
# These serve people, who get an answer within 3 s. The others wait longer, since nobody waits for them.
PROMPT_PARTS = {"web", "websockets", "data"}


def limit_s(prompt: float, patient: float) -> float:
    """Return the time limit for this process: `prompt` where people wait for its answers."""
    return prompt if os.environ.get("MLP_PART") in PROMPT_PARTS else patient


class Server:
    """What this process knows of one server. `address` returns None where it cannot be known."""

    def __init__(self, name: str, address: Callable[[], sockets.Address | None], greeting: bytes):
        self.name, self.address, self.greeting = name, address, greeting
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self.hangs = False
        self.heard = float("-inf")  # when an answer of any kind came last
        self._lock = threading.Lock()
        self._probing = False

    def answered(self) -> None:
        """Record an answer; called for each, so that a slow probe alone condemns nobody."""
        self.heard = time.monotonic()

    def suspect(self) -> None:
        """Have it probed, unless that is going on, or it has answered within SILENCE_S."""
        if time.monotonic() - self.heard > SILENCE_S:
            self._begin()

    def condemn(self) -> None:
        """Take it as hanging until a probe is answered."""
        self._begin(hangs=True)

    def result(self, future: Future, limit_s: float):
        """Return the future's result. Raises TimeoutError after that time, or once the server hangs."""
        end = time.monotonic() + limit_s
        step = SILENCE_S
        while True:
            try:
                return future.result(min(step, max(0.0, end - time.monotonic())))
            except TimeoutError:
                if future.done():
                    raise
            if self.hangs or time.monotonic() >= end:
                future.cancel()
                raise TimeoutError(f"{self.name} does not answer")
            self.suspect()
            step = LOOK_S

    def _begin(self, hangs: bool = False) -> None:
        with self._lock:
            if not self._probing:
                threading.Thread(target=self._probe, name=f"{self.name}-probe", daemon=True).start()
                self._probing = True
            self.hangs = self.hangs or hangs

    def _probe(self) -> None:
        """Repeat the probe until it is answered."""
        hung = False
        try:
            while not self._answers():
                if not hung:
                    log.warning("%s does not answer; what needs it fails until it does", self.name)
                self.hangs = hung = True
                time.sleep(AGAIN_S)
        finally:  # without a probe nobody would find out that it answers again
            with self._lock:
                self.hangs = self._probing = False
                self.answered()
        if hung:
            log.warning("%s answers again", self.name)

    def _answers(self) -> bool:
        """Return whether it answers the greeting. A refusal is an answer: callers do not wait.

        The time is counted in looks, which take longer where this process itself does not get its share of a busy
        machine's time.
        """
        heard, looks = self.heard, round(limit_s(1.0, 8.0) / LOOK_S)
        try:
            address = self.address()
            if address is None:
                return True
            with sockets.connect(address, looks * LOOK_S) as link:
                link.settimeout(LOOK_S)
                link.sendall(self.greeting)
                return any(_has_answer(link) or self.heard != heard for _ in range(looks))
        except (TimeoutError, BlockingIOError):  # nobody takes connections out of its queue, which may be full
            return False
        except (OSError, ValueError):  # the latter for a name that cannot be looked up
            return True


def _has_answer(link) -> bool:
    try:
        link.recv(1)
    except TimeoutError:
        return False
    return True

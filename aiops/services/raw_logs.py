"""The intake's ear on `raw_logs`: lines that come over NATS from outside are stored as well as judged.

Preprocessing hears the same subject; whichever is first, the line's id makes storing it twice storing it once, and a
verdict that came before its line is found missing by the sweep.
"""

from __future__ import annotations

import logging
import time

from aiops import logstore
from aiops.intake import accept
from aiops.wire import subjects
from kernel.errors import Fault
from kernel.serve import Route

from . import base

log = logging.getLogger(__name__)

BATCH, LINGER_S = 512, 0.1
PAUSES_S = (0.5, 1, 2, 4)


class Intake:
    name = "intake"

    def __init__(self):
        self.subjects = {subjects.RAW_LOGS: Route(self.raw, "intake", BATCH, LINGER_S)}

    def raw(self, messages: list[bytes]) -> None:
        """Nobody waits for an answer on this subject, so a store that is away is tried again for some seconds."""
        items = base.items_of(subjects.RAW_LOGS, messages, base.one)
        lines = [accept.document(item) for item in items]
        for pause in (*PAUSES_S, None):
            try:
                logstore.get().append(lines)
                return
            except Fault as problem:
                if pause is None:
                    log.error("%s: %s lines are lost: %s", subjects.RAW_LOGS, len(lines), problem.msg)
                    return
                time.sleep(pause)

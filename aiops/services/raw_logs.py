"""The intake's subscription to `raw_logs`: lines that other senders publish on NATS are stored as well as judged.

Preprocessing receives the same subject. Whichever is first, a line is stored once by its id, and when a verdict came
before its line the sweep has the line judged again.
"""

from __future__ import annotations

import logging
import time

from aiops import logstore
from aiops.intake import accept
from aiops.wire import subjects
from kernel import disk
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
        """Store the lines. Nobody waits for an answer on this subject, so a store that is unavailable is retried for
        some seconds.
        """
        items = base.items_of(subjects.RAW_LOGS, messages, base.one)
        lines = [accept.document(item) for item in items]
        for pause in (*PAUSES_S, None):
            try:
                disk.require()
                logstore.get().append(lines)
                return
            except Fault as problem:
                if pause is None:
                    log.error("%s: %s lines are lost: %s", subjects.RAW_LOGS, len(lines), problem.msg)
                    return
                time.sleep(pause)

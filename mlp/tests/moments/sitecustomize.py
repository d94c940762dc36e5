"""What each Python process of a command imports at its start, where the command is to be killed at a moment."""

import json
import os
import signal
import sys
import threading

STEPS = json.loads(os.environ["KILLED_AT"])
COMMAND = int(os.environ.setdefault("KILLED_PID", str(os.getpid())))
turn = threading.RLock()


def look(event: str, arguments: tuple) -> None:
    """Kill the command, when this event is the last step of the moment; never return then."""
    if not STEPS or event != STEPS[0][0]:
        return
    with turn:
        if STEPS and event == STEPS[0][0] and STEPS[0][1] in repr(arguments[:2]):
            del STEPS[0]
            if not STEPS:
                os.kill(COMMAND, signal.SIGKILL)
                while True:  # in another process than the command's first
                    signal.pause()


sys.addaudithook(look)

"""Work whose time grows with the length of its input, and no faster.

The input is so long that linear work takes a second or so and quadratic work hours, so that the limit, of minutes of
processor time, says nothing about the machine.
"""

from __future__ import annotations

import os
import resource
import signal
import traceback
from collections.abc import Callable

CPU_S = 180


def ends(act: Callable[[], object]) -> bool:
    """Run this in a process of its own, which the system kills at the limit; return whether it came to its end."""
    pid = os.fork()
    if not pid:
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
            act()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in {0, -signal.SIGXCPU, -signal.SIGKILL}, f"ended with {status}"
    return status == 0

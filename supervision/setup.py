"""The set-up, once the servers answer and before anything else starts: Django's system checks, migrations, static
files, `prepare`.

It runs in a forked child: Django is loaded already, and its connections and threads end with it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from django.conf import settings
from django.core.management import call_command

from kernel import broker, heartbeats
from kernel.singleton import only_one
from supervision import health

from . import launch, outside, release

LIMIT_S = 300
FAILED, REPORTED = 1, 2  # what the child ends with: REPORTED where its log says what is wrong


class SetupFailed(RuntimeError):
    """The set-up failed; the message says why and where its log is."""


def run(pause: Callable[[float], None]) -> None:
    """Run the set-up and wait for it. Raises SetupFailed, or what `pause` raises: then the child is ended."""
    log = settings.MLP_ROOT / "log" / "setup" / "setup.log"
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _in_child(log)
    status = None
    end = time.monotonic() + LIMIT_S
    try:
        while status is None:
            pid, raw = os.waitpid(child, os.WNOHANG)
            status = os.waitstatus_to_exitcode(raw) if pid else None
            if time.monotonic() > end:
                raise SetupFailed(f"the set-up is not done after {LIMIT_S} s; its log: {log}")
            if status is None:
                pause(0.02)
    finally:
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    if status == REPORTED:
        raise SetupFailed(log.read_text(errors="replace").strip())
    if status:
        tail = "\n".join("    " + line for line in log.read_text(errors="replace").splitlines()[-15:])
        raise SetupFailed(f"the set-up failed.\n  The last lines of its log, {log}:\n{tail}")


def _in_child(log: Path) -> None:
    """Run the set-up in the child process. Never returns."""
    code = FAILED
    try:
        launch.die_with_parent(signal.SIGKILL)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # Ctrl-C reaches the parent, too, which decides
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for stream in (1, 2):
            os.dup2(output, stream)
        steps()
        code = 0
    except (outside.Unreachable, release.TooNew) as problem:
        print(problem)
        code = REPORTED
    except BaseException:  # a child that returned would continue as a second `up`
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def steps() -> None:
    outside.require()
    call_command("check")  # the code and the settings, once for all parts, whose memory it would fill
    with only_one("migrate"):  # the others, too, may be done by several machines at once
        release.check_database()
        call_command("migrate", interactive=False, verbosity=1)
        release.record()
        call_command("collectstatic", interactive=False, verbosity=0)
        call_command("prepare")
    # Heartbeats of the previous run would count for this one.
    broker.broker().client.delete(*(heartbeats.KEY.format(part=name) for name in health.BEATING))

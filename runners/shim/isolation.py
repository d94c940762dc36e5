"""The way into bubblewrap, which executes the guard with what it needs as open files.

bubblewrap mounts paths, also where it is given a descriptor, and a run may exchange what lies at a path at that moment.
So it gets the files as descriptors, and `guard.compare` looks at what was mounted before the script starts. Standard
library only, and little of it (see `suppress.py`).
"""

from __future__ import annotations

import marshal
import os

import guard

BIND = ("--bind", "--ro-bind")


def enter(spec: dict, locks: list[int], logs: list[int], commands: int, reports: int) -> None:
    """Execute bubblewrap, which executes the guard. Never returns."""
    try:
        command = held(spec)
        order = os.memfd_create("order", 0)
        os.write(order, marshal.dumps([spec, logs, commands, reports]))
        os.lseek(order, 0, os.SEEK_SET)
        for fd in (order, *locks, *logs, commands, reports, *guard.handed(spec), *spec["held"].values()):
            os.set_inheritable(fd, True)
        os.execve(command[0], [*command, str(order)], {})
    except Exception as error:
        guard.report(reports, failed=f"bubblewrap: {error}")
    finally:
        os._exit(1)


def held(spec: dict) -> list[str]:
    """Return the command line with descriptors in the place of paths that a run may change; note in the spec what has
    to be at each target.
    """
    command, spec["mounted"] = list(spec["bwrap"]), []
    for place in range(len(command) - 2):
        option, path, target = command[place : place + 3]
        if option in BIND and path in spec["held"]:
            opened = spec["held"][path]
            command[place + 1] = f"/proc/self/fd/{opened}"
            info = os.fstat(opened)
            spec["mounted"].append([target, info.st_dev, info.st_ino])
    return command


def inside(order: int) -> None:
    """Start the guard inside of bubblewrap. Never returns."""
    with open(order, "rb") as file:
        spec, logs, commands, reports = marshal.load(file)
    for fd in (*logs, commands, reports, *guard.handed(spec)):
        os.set_inheritable(fd, False)
    for fd in spec["held"].values():
        os.close(fd)
    guard.main(spec, logs, commands, reports)

"""supervisord (https://supervisord.org), which starts each part with launch.become in the process that it has forked.

Its configuration (control.py) names the part's folder as the one argument of every program.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

from supervisor import supervisord
from supervisor.options import ServerOptions

from . import forking, launch, logs


class Options(ServerOptions):
    """supervisord's access to the system, with another way to start a program."""

    def execve(self, filename: str, argv: list[str], env: dict[str, str]) -> NoReturn:
        """Become the part; called in the child, whose output is the part's log and which has no other descriptors."""
        os.environ.clear()
        os.environ |= env
        forking.like_new()
        forking.finish(lambda: launch.become(Path(argv[-1])))


def main() -> None:
    logs.install()
    supervisord.ServerOptions = Options  # supervisord.main makes one for each of its starts
    supervisord.main()


if __name__ == "__main__":
    main()

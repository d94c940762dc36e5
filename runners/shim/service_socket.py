"""The socket of a service: bound by the shim, outside of the run, and handed to the script as an open file.

The run has no access to the folder of its name, so that nobody but the shim decides who listens there. The script gets
it as services of systemd do: descriptor 3, announced by LISTEN_FDS and LISTEN_PID. It does not listen before the script
says so: earlier connections are refused instead of waiting. Standard library only.
"""

from __future__ import annotations

import os

from suppress import suppress

HANDED_OVER = 3  # the first descriptor after those of input, output and errors


def bind(path: str) -> int:
    """Open a socket with this path as its address and return its descriptor. Raises OSError."""
    remove(path)  # left by an earlier run of this name whose shim was killed
    import socket  # the guard does not need it, see `suppress.py`

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as opened:
        opened.bind(path)
        os.chmod(path, 0o600)
        return opened.detach()


def hand_over(listener: int) -> dict[str, str]:
    """Make the socket the script's descriptor; return the variables that announce it to this process."""
    if listener != HANDED_OVER:
        os.dup2(listener, HANDED_OVER)
    os.set_inheritable(HANDED_OVER, True)
    return {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}


def remove(path: str) -> None:
    """Remove the socket's name."""
    with suppress(FileNotFoundError):
        os.unlink(path)

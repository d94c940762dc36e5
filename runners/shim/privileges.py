"""The change of a process to the run's own user, and the capabilities that it keeps.

Called by the guard in the process that becomes the script. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import struct

PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, AMBIENT_RAISE = 4, 8, 38, 47, 2
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
# By the isolation of a run. The capability to write everywhere is kept only where Landlock restricts it.
REACH = {
    "bwrap": (),
    "landlock": (CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE),
    "none": (CAP_DAC_READ_SEARCH,),
}
VERSION_3 = 0x20080522
CAPSET = {"x86_64": 126, "aarch64": 91}
_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int, third: int = 0) -> None:
    """Call prctl(2). Raises OSError."""
    if _libc.prctl(option, value, third, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def hide() -> None:
    """Prevent all processes but root's from inspecting this one, also those of the same user."""
    prctl(PR_SET_DUMPABLE, 0)


def no_new_privileges() -> None:
    """Prevent this process and its children from gaining privileges, for example by setuid programs."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def become(uid: int, reach: tuple[int, ...] = ()) -> None:
    """Change to the user and its group, with no other group and no capability but the first available one of `reach`.

    That one gives access to folders of the interpreter and the storage that are closed to other users: for a run that
    Landlock restricts to its own files. Raises OSError.
    """
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    effective = _effective()
    kept = next((1 << capability for capability in reach if effective & 1 << capability), 0)
    if kept:
        prctl(PR_SET_KEEPCAPS, 1)
    os.setresuid(uid, uid, uid)
    header = struct.pack("=Ii", VERSION_3, 0)
    if _libc.syscall(CAPSET[os.uname().machine], header, struct.pack("=6I", kept, kept, kept, 0, 0, 0)):
        raise OSError(ctypes.get_errno(), "capset")
    if kept:
        prctl(PR_CAP_AMBIENT, AMBIENT_RAISE, kept.bit_length() - 1)


def _effective() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1], 16) for line in file if line.startswith("CapEff:"))

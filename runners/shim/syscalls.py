"""A filter of system calls for a run: what only administration needs, and kernels have had holes in, is refused.

Sockets are of the families that a network namespace contains: one of another family, such as AF_VSOCK, with which a
virtual machine talks to its host and its neighbours, would lead past the run's network policy.

Called by the guard in the process that becomes the script; inherited by everything that it starts, and not removable.
Much the same calls are left out by container engines. Without user namespaces a run can neither get capabilities, nor
mount file systems in memory, which no limit but a control group's would count. Standard library only. Source:
https://docs.kernel.org/userspace-api/seccomp_filter.html (constants of linux/seccomp.h and linux/audit.h).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
CLONE_NEWUSER = 0x10000000
X32 = 0x40000000  # the first call of x86's third interface, whose numbers are others
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, SECOND_ARGUMENT = 0, 4, 16, 24  # offsets in seccomp_data
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Name: (number on x86_64, number on aarch64); -1: there is none.
REFUSED = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "setns": (308, 268), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "quotactl": (179, 60), "syslog": (103, 116), "clock_settime": (227, 112), "settimeofday": (164, 170),
    "iopl": (172, -1), "ioperm": (173, -1),
}  # fmt: skip
# Shared memory, semaphores and queues that are no files: the kernel keeps one set of them for each user.
OF_THE_USER = {
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193),
    "semctl": (66, 191), "semtimedop": (220, 192), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181),
}  # fmt: skip
# Landlock does not know them: they tell the names of files that come and go in any folder of the same user.
WATCH = {"inotify_add_watch": (254, 27), "fanotify_init": (300, 262)}
# What changes limits and priority of the process that the first argument names, any one of the same user; 0: its own.
OF_A_PROCESS = {
    "prlimit64": (302, 261), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
}  # fmt: skip
# Likewise, where the second argument names it, and the first one says what it names; and which one means a user's all.
OF_PROCESSES = {"setpriority": (141, 140, 2), "ioprio_set": (251, 30, 3)}
# Their first argument has the flags.
MAKE_NAMESPACES = {"unshare": (272, 97), "clone": (56, 220)}
CLONE3 = 435  # its flags are in memory, which a filter cannot see; libraries fall back to clone


# Of these the first argument is the family; all others than these are refused.
MAKE_SOCKETS = {"socket": (41, 198), "socketpair": (53, 199)}
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def restrict(shares_files: bool = False, shares_user: bool = False) -> None:
    """Apply the filter to this process. Where the kernel has none, or its processor is not known, do nothing. A run
    that `shares_files` sees the machine's folders; one that `shares_user` has the user of the platform and of other
    runs, and no namespace of its own.

    Needs PR_SET_NO_NEW_PRIVS. Raises OSError.
    """
    instructions = program(os.uname().machine, shares_files, shares_user)
    if not instructions:
        return
    filtering = _Program(len(instructions) // 8, instructions)
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filtering), 0, 0):
        problem = ctypes.get_errno()
        if problem != errno.EINVAL:
            raise OSError(problem, "the filter of system calls")


def program(machine: str, shares_files: bool = False, shares_user: bool = False) -> bytes:
    """Return the filter's instructions for this kind of processor; none for others."""
    if machine not in AUDIT:
        return b""
    column = list(AUDIT).index(machine)
    lines = [_line(LOAD, ARCHITECTURE), _line(EQUAL, AUDIT[machine], 1, 0), _refuse(errno.ENOSYS), _line(LOAD, NUMBER)]
    if machine == "x86_64":
        lines += [_line(AT_LEAST, X32, 0, 1), _refuse(errno.ENOSYS)]
    lines += [_line(EQUAL, CLONE3, 0, 1), _refuse(errno.ENOSYS)]
    shared = (WATCH if shares_files else {}) | (OF_THE_USER if shares_user else {})
    for numbers in (*REFUSED.values(), *shared.values()):
        if numbers[column] >= 0:
            lines += [_line(EQUAL, numbers[column], 0, 1), _refuse(errno.EPERM)]
    if shares_user:
        lines += _own_process_only(column)
    for numbers in MAKE_NAMESPACES.values():
        lines += [_line(EQUAL, numbers[column], 0, 4), _line(LOAD, FIRST_ARGUMENT)]
        lines += [_line(ANY_BIT, CLONE_NEWUSER, 0, 1), _refuse(errno.EPERM), _line(RETURN, ALLOW)]
    for numbers in MAKE_SOCKETS.values():
        most = len(FAMILIES)
        lines += [_line(EQUAL, numbers[column], 0, most + 3), _line(LOAD, FIRST_ARGUMENT)]
        lines += [_line(EQUAL, family, most - place, 0) for place, family in enumerate(FAMILIES.values())]
        lines += [_refuse(errno.EAFNOSUPPORT), _line(RETURN, ALLOW)]
    return b"".join([*lines, _line(RETURN, ALLOW)])


def _own_process_only(column: int) -> list[bytes]:
    """Return the instructions that refuse to change another process."""
    lines = []
    for numbers in OF_A_PROCESS.values():
        lines += [_line(EQUAL, numbers[column], 0, 4), _line(LOAD, FIRST_ARGUMENT)]
        lines += [_line(EQUAL, 0, 1, 0), _refuse(errno.EPERM), _line(RETURN, ALLOW)]
    for *numbers, whole_user in OF_PROCESSES.values():
        lines += [_line(EQUAL, numbers[column], 0, 6), _line(LOAD, FIRST_ARGUMENT), _line(EQUAL, whole_user, 2, 0)]
        lines += [_line(LOAD, SECOND_ARGUMENT), _line(EQUAL, 0, 1, 0), _refuse(errno.EPERM), _line(RETURN, ALLOW)]
    return lines


def _refuse(problem: int) -> bytes:
    return _line(RETURN, ERRNO | problem)


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)

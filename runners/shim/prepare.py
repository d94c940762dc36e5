"""The files of a run, opened before its guard starts, with owners and modes by which its user can work with them.

Called by the shim, which may be root, while an earlier attempt or another run may have put links there, or exchange
folders at this moment. So each file is opened once, without following a link (`beneath.py`); what is changed, mounted
or allowed afterwards is what was opened. Standard library only.
"""

from __future__ import annotations

import os
import stat

import beneath


def prepare(spec: dict) -> None:
    """Open and prepare the files that the spec names; keep their descriptors by path as `held`.

    Raises OSError, which names the file.
    """
    os.makedirs(spec["tmp"], 0o700, exist_ok=True)
    held = spec["held"] = {}
    for path in dict.fromkeys((spec["cwd"], *spec["own"], *spec["open"])):
        try:
            held[path] = beneath.reference(path, spec["root"])
        except FileNotFoundError:
            if spec["isolation"] == "bwrap":
                raise
            for allowed in ("read", "write"):  # nor is it opened later, when a link may be there
                spec[allowed] = [each for each in spec[allowed] if each != path]
    if spec["uid"] is None:
        return
    give = beneath.Give(spec["uid"], spec["uid"])
    tmp = os.open(spec["tmp"], beneath.KEEP)
    try:
        beneath.change(tmp, give)
    finally:
        os.close(tmp)
    for path in (spec["cwd"], *spec["own"]):
        if path in held:
            beneath.change(held[path], give)
    if spec["isolation"] == "bwrap":
        for path in spec["open"]:
            beneath.change(held[path], _OpenUp())


class _OpenUp:
    """Makes files readable for all users: the isolation, or the folders above, decide who can reach them."""

    @staticmethod
    def bits(info: os.stat_result) -> int:
        return 0o555 if stat.S_ISDIR(info.st_mode) or info.st_mode & 0o100 else 0o444

    def wants(self, info: os.stat_result) -> bool:
        return info.st_uid == os.geteuid() and info.st_mode & self.bits(info) != self.bits(info)

    def __call__(self, fd: int, info: os.stat_result) -> None:
        if self.wants(info):
            os.fchmod(fd, stat.S_IMODE(info.st_mode) | self.bits(info))

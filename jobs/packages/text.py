"""Requirements as users write them: the lines of a requirements file, and `-r FILE` for one beside the script.

What a line means is the installer's matter. Options are refused, since where packages come from is decided by the
administrator, and so are paths: the installation sees no file of the user's.
"""

from __future__ import annotations

import codecs
import posixpath
import re
from collections.abc import Callable

from packaging.utils import canonicalize_name

from kernel.errors import Refused

MAX_CHARS = 64 << 10
MAX_LINES = 1000
MAX_FILES = 20
FIELD = "requirements"
NAMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[A-Za-z0-9 ,._-]*\])?\s*($|[<>=!~@;(]|--hash=)")
# A place may be an address of the network only, and of the options of one requirement its checksum.
ELSEWHERE = re.compile(r"^[^@;]*@(?!\s*(?:[a-z]+\+)?(?:https?|ssh|git)://)|\s-(?!-hash=)", re.IGNORECASE)
INCLUDE = re.compile(r"(?:-r|--requirement)(?:\s+|=)(\S.*)")
MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
COMMENT = re.compile(r"(^|\s)#.*$")


def decoded(data: bytes) -> str:
    """Return the text of a file as pip reads it: by its byte order mark, which PowerShell's `>` writes, else UTF-8."""
    for mark, encoding in MARKS.items():
        if data.startswith(mark):
            return data.removeprefix(mark).decode(encoding, errors="replace")
    return data.decode(errors="replace")


def joined(text: str) -> list[str]:
    """Return the lines of a text, without comments and blanks; what a backslash continues is one line."""
    whole = text.replace("\\\r\n", " ").replace("\\\n", " ").splitlines()
    return [line for each in whole if (line := " ".join(COMMENT.sub("", each).split()))]


def lines(text: str) -> list[str]:
    """Return the requirements and inclusions of a text. Raises Refused for others."""
    requirements = []
    for line in joined(text):
        if len(requirements) == MAX_LINES:
            raise Refused("at most %(most)s lines", field=FIELD, most=MAX_LINES)
        if not INCLUDE.fullmatch(line) and (not NAMED.match(line) or ELSEWHERE.search(line)):
            raise Refused(
                "%(line)s is not a requirement such as name==1.2; options and paths are not accepted",
                field=FIELD,
                line=line[:100],
            )
        requirements.append(line)
    return requirements


def included(text: str, folder: str) -> list[str]:
    """Return the paths of the files that a text in that folder includes, relative to `.home`. Raises Refused."""
    return [_path(match[1], folder) for match in map(INCLUDE.fullmatch, lines(text)) if match]


def resolved(text: str, folder: str, read: Callable[[str], str]) -> str:
    """Return the text with the files that it includes in their places, one requirement a line.

    `folder` is that of the script; `read` returns the text of a file relative to `.home`. Raises Refused.
    """
    requirements: list[str] = []
    seen: set[str] = set()

    def add(text: str, folder: str) -> None:
        for line in lines(text):
            match = INCLUDE.fullmatch(line)
            if match is None:
                requirements.append(line)
                continue
            path = _path(match[1], folder)
            if path in seen:
                continue
            if len(seen) == MAX_FILES:
                raise Refused("at most %(most)s files", field=FIELD, most=MAX_FILES)
            seen.add(path)
            add(read(path), posixpath.dirname(path))

    add(text, folder)
    return "".join(f"{line}\n" for line in dict.fromkeys(requirements))


def pinned(wanted: str, installed: list[str]) -> str:
    """Return lines that install again what resolved requirements were installed as, `name==version` each.

    What has an address keeps it, since an index may not have it; lines with checksums name versions already.
    """
    if "--hash=" in wanted:
        return wanted
    placed = [line for line in wanted.splitlines() if "://" in line]
    names = {canonicalize_name(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]) for line in placed}
    others = [line for line in installed if canonicalize_name(line.partition("==")[0]) not in names]
    try:
        return "".join(f"{line}\n" for line in lines("\n".join([*placed, *others])))
    except Refused:  # a package's set-up has written the list
        return wanted


def _path(name: str, folder: str) -> str:
    path = posixpath.normpath(posixpath.join(folder, name.strip("'\" ")))
    if path.startswith(("/", "..")):
        raise Refused("%(path)s is not below the folder of the script", field=FIELD, path=name[:100])
    return path

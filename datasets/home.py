"""What runs the code in a user's `.home` by itself. Apps above register how to find out (`apps.py`).

A token for submission may write there, and a schedule or a pipeline may have been given more of the model registry than
the token has: what it writes would run with that. So such a write is refused (webdav.admission).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernel.messages import Message
from kernel.registering import Rights

Finder = Callable[[str, Sequence[str], Rights], Message | None]

_finders: list[Finder] = []


def register(finder: Finder) -> None:
    """Register what returns, for a user's name, a path in `.home` and the rights of a token, why that is refused."""
    _finders.append(finder)


def refusal(username: str, parts: Sequence[str], rights: Rights) -> Message | None:
    """Return why a token with these rights must not change the path; None where nothing speaks against it."""
    return next((reason for finder in _finders if (reason := finder(username, parts, rights)) is not None), None)

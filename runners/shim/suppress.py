"""`contextlib.suppress` for the guard, which bubblewrap executes for each run.

Until the script starts it loads only what that takes: half of the time of its start were modules such as contextlib,
json, socket and signal, which load others for what is not used here.
"""

from __future__ import annotations


class suppress:
    """Ends the block at an exception of these classes, and goes on after it."""

    def __init__(self, *kinds: type[BaseException]):
        self.kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self.kinds)

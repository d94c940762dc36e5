"""What an import or export is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Options:
    """What is to be copied. `since` is in milliseconds, of the runs' starts."""

    experiments: tuple[str, ...] = ()
    since: int | None = None
    deleted: bool = False
    again: bool = False
    dry: bool = False
    registry: bool = True
    artifacts: bool = True

    def wants(self, name: str) -> bool:
        """Return whether an experiment of this name is to be copied."""
        return not self.experiments or any(fnmatchcase(name, pattern) for pattern in self.experiments)

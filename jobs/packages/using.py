"""How a run uses an environment, and who needs which: apps above register what they know (`apps.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from runners import Mount
from runners.base import Runner

ENVIRONMENT = "/opt/packages"  # where runs see it, if the runner can mount it there

Key = tuple[int, str]  # a user's number, a digest


@dataclass(frozen=True)
class Use:
    """An object that uses the environment of a digest: its `kind` (job, model, application, or environment
    for a named one) and name; `live`: it
    needs the environment now.
    """

    digest: str
    kind: str
    name: str
    live: bool


Lister = Callable[[int], Iterable[Use]]

_users: list[Callable[[], set[Key]]] = []
_listers: list[Lister] = []


def register(user: Callable[[], set[Key]]) -> None:
    """Add a function that returns which environments must be installed now, or must stay."""
    if user not in _users:
        _users.append(user)


def in_use() -> set[Key]:
    """Return the environments that others than jobs need."""
    return {key for user in _users for key in user()}


def register_lister(lister: Lister) -> None:
    """Add a function that returns what uses the environments of a user, by the user's number."""
    if lister not in _listers:
        _listers.append(lister)


def uses_of(number: int) -> list[Use]:
    """Return what others than jobs use of a user's environments."""
    return [use for lister in _listers for use in lister(number)]


def python_of(runner: Runner, tree: Path | None) -> str:
    """Return the interpreter of a run that has the environment in that folder, None for those that all runs have."""
    return f"{runner.place(tree, ENVIRONMENT)}/bin/python" if tree else runner.python


def variables_of(runner: Runner, tree: Path | None) -> dict[str, str]:
    """Return the variables of such a run, as `activate` sets them."""
    if tree is None:
        return {}
    place = runner.place(tree, ENVIRONMENT)
    return {"VIRTUAL_ENV": place, "PATH": f"{place}/bin:{runner.environment('')['PATH']}"}


def mounts_of(tree: Path | None) -> tuple[Mount, ...]:
    """Return what such a run sees of it."""
    return (Mount(tree, ENVIRONMENT),) if tree else ()

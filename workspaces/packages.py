"""The packages of a workspace: JupyterLab, and those of the named environment that it was given."""

from __future__ import annotations

import re
from pathlib import Path

from django.conf import settings

from jobs.models import EnvironmentVersion
from jobs.packages import building, store
from jobs.packages.building import Need
from jobs.packages.named import locating
from jobs.packages.named.used import NamedUse
from jobs.packages.using import Key

from .models import LIVE, State, Workspace

RUNTIME = "python"


def lines_of(workspace: Workspace) -> str:
    """Return the requirements, a line each: in a named environment its versions go first, so that they stay."""
    version = workspace.environment_version
    lines = [locating.lines_of(version)] if version is not None else []
    return "\n".join([*lines, *settings.WORKSPACE_PACKAGES])


def have_ssh() -> bool:
    """Return whether workspaces have an SSH server."""
    return any(re.match(r"asyncssh\b(?!-)", line) for line in settings.WORKSPACE_PACKAGES)


def need_of(workspace: Workspace) -> Need:
    """Return what is installed, with the CPU, memory and network policy of the workspace."""
    since = workspace.ordered.timestamp() if workspace.ordered else 0.0
    policy = workspace.tenant.network_policy
    return Need(workspace.user, lines_of(workspace), RUNTIME, workspace.cpu, workspace.ram, policy, since)


def ensure(workspace: Workspace) -> bool:
    """Return whether the packages are installed; start, or look at, their installation. Raises building.Failed;
    RunnerError, OSError.
    """
    need = need_of(workspace)
    if not need.wanted:
        return True
    _note(workspace, need.environment.digest)
    return building.ensure(need) is not None


def _note(workspace: Workspace, digest: str) -> None:
    """Record which environment the workspace needs, before its installation starts: `in_use` knows it by that."""
    Workspace.objects.filter(pk=workspace.pk).exclude(packages=digest).update(packages=digest)


def tree_of(workspace: Workspace) -> Path | None:
    """Return the folder of the environment that `ensure` has prepared; None for a workspace that needs none."""
    wanted = lines_of(workspace)
    return store.environment_of(workspace.user_id, wanted, RUNTIME).tree if wanted else None


def in_use() -> set[Key]:
    """Return the environments of workspaces that are up or starting."""
    rows = Workspace.objects.filter(state__in=LIVE).exclude(packages="")
    return set(rows.values_list("user_id", "packages"))


def named_uses(version: EnvironmentVersion) -> list[NamedUse]:
    """Return the workspaces that name a version: each needs it as long as it is there."""
    rows = Workspace.objects.filter(environment_version=version).exclude(state=State.DELETING).order_by("-pk")
    return [NamedUse("workspace", user, name, True) for user, name in rows.values_list("user__username", "name")]

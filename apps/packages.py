"""The packages of an application: those of the named environment that it was given, else those of its model."""

from __future__ import annotations

from pathlib import Path

from jobs.models import EnvironmentVersion
from jobs.packages.named import locating
from jobs.packages.named.used import NamedUse
from jobs.packages.using import Key
from models_app import packages
from models_app.launching import ensure_packages

from .models import Application, State

LIVE = (State.CREATING, State.READY)


def ensure(app: Application) -> bool:
    """Return whether the packages are installed; start, or look at, their installation. Raises building.Failed;
    RunnerError, OSError.
    """
    version = app.environment_version
    if version is None:
        return ensure_packages(app.model, app.tenant, app.cpu, app.ram, app.ordered)
    since = app.ordered.timestamp() if app.ordered else 0.0
    policy = app.tenant.network_policy
    return locating.ensure(version, packages.RUNTIME, cpu=app.cpu, ram=app.ram, network=policy, since=since) is not None


def tree_of(app: Application) -> Path | None:
    """Return the folder of the environment that `ensure` has prepared; None for an application that needs none."""
    if app.environment_version is None:
        return packages.tree_of(app.model)
    return locating.environment_for(app.environment_version, packages.RUNTIME).tree


def in_use() -> set[Key]:
    """Return the named environments of applications that are up or starting."""
    rows = Application.objects.filter(state__in=LIVE).exclude(environment_version=None)
    versions = {app.environment_version for app in rows.select_related("environment_version__environment")}
    found = {locating.environment_for(version, packages.RUNTIME) for version in versions}
    return {(environment.number, environment.digest) for environment in found}


def named_uses(version: EnvironmentVersion) -> list[NamedUse]:
    """Return the applications that name a version: each needs it as long as it is there."""
    rows = Application.objects.filter(environment_version=version).exclude(state=State.DELETING).order_by("-pk")
    return [NamedUse("application", user, name, True) for user, name in rows.values_list("user__username", "name")]

"""Workspaces are tenants: a user is in one or several of them, and administrators manage them."""

from __future__ import annotations

from kernel.effects import READ
from mlflow_protocol.protocol import (
    BASES_3,
    Call,
    MlflowError,
    Routes,
    effect,
    for_jobs,
    missing_workspace,
    patterns,
    workspaces_of,
)


@effect(READ)
@for_jobs
def many(call: Call) -> dict:
    return {"workspaces": [{"name": name} for name in workspaces_of(call)]}


@effect(READ)
@for_jobs
def get(call: Call, name: str) -> dict:
    if name not in workspaces_of(call):
        raise missing_workspace(name)
    return {"workspace": {"name": name}}


def change(call: Call, name: str = "") -> dict:
    """Refuse to create, change or delete a workspace. Raises MlflowError."""
    if name:
        get(call, name)
    raise MlflowError("PERMISSION_DENIED", "workspaces are tenants, which administrators manage")


ROUTES: Routes = {
    "workspaces": {"GET": many, "POST": change},
    "workspaces/<str:name>": {"GET": get, "PATCH": change, "DELETE": change},
}
PATTERNS = patterns(ROUTES, BASES_3)

"""When a workspace is stopped by itself: by its limit of hours, or when it has been idle for so long. The limits are
the lowest of its own, its tenant's and the platform's; those of today count, also for one that runs.

Idle is a workspace whose kernels, terminals and requests do nothing: one whose kernel computes, or in whose terminal a
command runs, is not.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.utils.translation import gettext_noop

from kernel.errors import Refused
from kernel.messages import Message
from resources.models import Tenant

from .models import Workspace, least

NOT_ALLOWED = gettext_noop("workspaces are not allowed in the tenant %(tenant)s")


def most(tenant: Tenant) -> tuple[int | None, int | None]:
    """Return the longest that a workspace of the tenant may be idle, in minutes, and run, in hours; None: for ever."""
    idle = least(tenant.workspace_idle_minutes, settings.WORKSPACE_IDLE_MINUTES)
    return idle, least(tenant.workspace_hours, settings.WORKSPACE_HOURS)


def require_allowed(tenant: Tenant) -> None:
    """Raise Refused where the tenant's policy allows no workspaces."""
    if not tenant.allows_workspaces:
        raise Refused(NOT_ALLOWED, field="tenant", tenant=tenant.name)


def narrowed(tenant: Tenant, idle_minutes: int | None, hours: int | None) -> tuple[int | None, int | None]:
    """Return what a workspace is given: what its user wants, by default what the policies say. Raises Refused for more
    than these allow.
    """
    most_idle, most_hours = most(tenant)
    for field, wanted, limit in (("idle_minutes", idle_minutes, most_idle), ("hours", hours, most_hours)):
        if wanted is not None and limit is not None and wanted > limit:
            raise Refused("at most %(most)s", field=field, most=limit)
    return idle_minutes or most_idle, hours or most_hours


def due(workspace: Workspace, now: datetime) -> tuple[datetime, Message] | None:
    """Return when a running workspace has to be stopped, and why, if its owner has to be warned now; else None."""
    warning = timedelta(minutes=settings.WORKSPACE_WARN_MINUTES)
    if not workspace.tenant.allows_workspaces:
        return now + warning, Message(NOT_ALLOWED, tenant=workspace.tenant.name)
    ends = workspace.ends
    if ends is not None and now >= ends - warning:
        return max(ends, now), Message("it has run for %(hours)s h, as long as it may", hours=workspace.hour_limit)
    if workspace.idle_limit and workspace.active and not workspace.busy:
        idle = workspace.active + timedelta(minutes=workspace.idle_limit)
        if now >= idle:
            reason = Message("idle for %(minutes)s min", minutes=workspace.idle_limit)
            return max(idle + warning, now), reason
    return None

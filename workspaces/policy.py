"""When a workspace is stopped by itself: by its limit of hours, or when it has been idle for so long.

Idle is a workspace whose kernels, terminals and requests do nothing: one whose kernel computes, or in whose terminal a
command runs, is not.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings

from kernel.errors import Refused
from kernel.messages import Message

from .models import Workspace


def narrowed(idle_minutes: int | None, hours: int | None) -> tuple[int | None, int | None]:
    """Return what a workspace is given: what its user wants, by default what the settings say. Raises Refused for more
    than these allow.
    """
    most_idle, most_hours = settings.WORKSPACE_IDLE_MINUTES or None, settings.WORKSPACE_HOURS or None
    for field, wanted, most in (("idle_minutes", idle_minutes, most_idle), ("hours", hours, most_hours)):
        if wanted is not None and most is not None and wanted > most:
            raise Refused("at most %(most)s", field=field, most=most)
    return idle_minutes or most_idle, hours or most_hours


def due(workspace: Workspace, now: datetime) -> tuple[datetime, Message] | None:
    """Return when a running workspace has to be stopped, and why, if its owner has to be warned now; else None."""
    warning = timedelta(minutes=settings.WORKSPACE_WARN_MINUTES)
    ends = workspace.ends
    if ends is not None and now >= ends - warning:
        return max(ends, now), Message("it has run for %(hours)s h, as long as it may", hours=workspace.hours)
    if workspace.idle_minutes and workspace.active and not workspace.busy:
        idle = workspace.active + timedelta(minutes=workspace.idle_minutes)
        if now >= idle:
            reason = Message("idle for %(minutes)s min", minutes=workspace.idle_minutes)
            return max(idle + warning, now), reason
    return None

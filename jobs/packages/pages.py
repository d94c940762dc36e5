"""The page of a user's environments of packages."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from kernel.pages import attempt, why_not

from . import listing

SHOWN = 100
USES_SHOWN = 5  # of each


@login_required
@require_GET
def environments(request):
    """List the user's environments: what is in them, how large they are, who uses them."""
    rows = listing.of_user(request.user)
    for row in rows[:SHOWN]:
        row.undeletable = why_not(lambda row=row: listing.require_unused(row))
        row.shown_uses, row.more_uses = row.used_by[:USES_SHOWN], len(row.used_by[USES_SHOWN:])
    context = {
        "rows": rows[:SHOWN],
        "more": len(rows) > SHOWN,
        "shown": SHOWN,
        "kept": sum(row.size for row in rows) << 20,
        "room": settings.PACKAGES_USER_MIB << 20,
        "days": settings.PACKAGES_DAYS,
    }
    return render(request, "jobs/environments.html", context)


@login_required
@require_POST
def delete(request, digest):
    """Remove an environment."""
    if problem := attempt(lambda: listing.remove(request.user, digest)):
        messages.error(request, problem)
    else:
        messages.success(request, _("The environment is removed."))
    return redirect("environments")

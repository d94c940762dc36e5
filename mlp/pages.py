"""The pages that belong to no single app: the index, the reference, and what is shown when something goes wrong."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from accounts import lifecycle as accounts
from datasets.models import Dataset
from jobs.models import Job, State
from resources.models import Tenant
from resources.pages import bars

LIVE_SHOWN = 6
RECENT_SHOWN = 8


@login_required
@never_cache
@require_GET
def index(request):
    """Username, API token, job metrics and the script that shows them live (contract 7)."""
    mine = Job.objects.filter(user=request.user).order_by("-pk")
    day = timezone.now() - timedelta(days=1)
    context = {
        "token": accounts.token_of(request.user),
        "gateway": settings.GATEWAY_URL,
        "live": list(mine.filter(state__in=[State.CREATING, State.RUNNING])[:LIVE_SHOWN]),
        "recent": list(mine.exclude(state__in=[State.CREATING, State.RUNNING])[:RECENT_SHOWN]),
        "failed": list(mine.filter(state=State.ERROR, ended__gt=day)[:RECENT_SHOWN]),
        "datasets": Dataset.objects.filter(user=request.user).count(),
        "bars": bars(Tenant.objects.get(pk=request.user.tenant_id)),
    }
    return render(request, "index.html", context)


@require_GET
def reference(request):
    """The REST reference, drawn from the schema that the code itself declares."""
    return render(request, "reference.html")


def not_found(request, exception):
    return render(request, "error.html", {"code": 404}, status=404)


def forbidden(request, exception=None, reason=""):
    return render(request, "error.html", {"code": 403}, status=403)


def broken(request):
    return render(request, "error.html", {"code": 500}, status=500)

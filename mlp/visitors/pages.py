"""The pages that belong to no single app: the index, the API reference and the error pages."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.db import InterfaceError, OperationalError
from django.db.models import Count, Q, Value
from django.middleware.csrf import REASON_NO_CSRF_COOKIE
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST
from redis.exceptions import RedisError

from accounts import lifecycle as accounts
from apps import request_rates
from apps.models import Application
from apps.models import State as AppState
from datasets.models import Dataset
from datasets.models import State as DatasetState
from jobs import states
from jobs.models import Job, State
from kernel import storage
from kernel.errors import Fault
from kernel.models import StateChange
from kernel.pages import address
from models_app.models import Model
from resources.models import Tenant
from resources.pages import bars, own_bars
from tracking.metrics.series import accuracy_and_loss

LIVE_SHOWN = 6
WAITING_SHOWN = 10
RECENT_SHOWN = 10
APPS_SHOWN = 6
FAILURES_SHOWN = 8
FAILING = {  # kinds, each with a page
    "job": Job.kept, "dataset": Dataset.kept, "model": Model.kept, "application": Application.kept,
}  # fmt: skip
FAILURES_FOR = timedelta(days=7)
OTHER_SITE = ("Origin checking failed", "Referer checking failed")  # how Django's reasons begin
SEEN_FOR_S = 365 * 86400


@login_required
@never_cache
@require_GET
def index(request):
    """Show the username, the API token, and job metrics that are updated live."""
    jobs = Job.kept.filter(user=request.user)
    by_state = states.counted(jobs)
    count = {
        "all": sum(by_state.values()),
        "running": by_state.get("running", 0),
        "waiting": by_state.get("queued", 0) + by_state.get("starting", 0),
    }
    dataset_count = Dataset.kept.filter(user=request.user).aggregate(
        all=Count("pk"), ready=Count("pk", filter=Q(state=DatasetState.READY))
    )
    newest = jobs.select_related("user", "diagnosis").order_by("-pk")
    running = newest.filter(state=State.RUNNING).prefetch_related(accuracy_and_loss())
    failures = _failures(request.user, _seen(request))
    context = {
        "token": accounts.token_of(request.user),
        "gateway": address(request),
        "count": count,
        "datasets": dataset_count,
        "live": list(running[:LIVE_SHOWN]) if count["running"] else [],
        "waiting": list(newest.filter(state=State.CREATING)[:WAITING_SHOWN]) if count["waiting"] else [],
        "recent": list(newest.exclude(state__in=[State.CREATING, State.RUNNING])[:RECENT_SHOWN]),
        "failures": failures[:FAILURES_SHOWN],
        "failed": len(failures),
        "apps": _applications(request.user),
        "bars": bars(Tenant.objects.get(pk=request.user.tenant_id)),
        "own": own_bars(request.user),
    }
    if not count["all"]:
        context["has_script"] = any(storage.files(storage.home_dir(request.user.username)))
    return render(request, "index.html", context)


def _applications(user) -> list[Application]:
    """Return the newest applications that are running or starting, each with its `traffic`."""
    active = Application.objects.filter(user=user, state__in=[AppState.CREATING, AppState.READY])
    rows = list(active.select_related("user", "model").order_by("-pk")[:APPS_SHOWN])
    for row in rows:
        row.traffic = request_rates.read(row)
    return rows


@login_required
@require_POST
def failures_seen(request):
    """Mark the failures as read; the index then shows only later ones."""
    response = redirect("index")
    response.set_cookie(
        _seen_cookie(request.user), str(int(time.time())), max_age=SEEN_FOR_S, httponly=True, samesite="Lax",
        secure=settings.SESSION_COOKIE_SECURE,
    )  # fmt: skip
    return response


def _seen_cookie(user) -> str:
    return f"seen_{user.username}"


def _seen(request) -> datetime:
    """Return the time since which failures are unread: since they were last marked as read, a week at most."""
    oldest = timezone.now() - FAILURES_FOR
    try:
        last_read = datetime.fromtimestamp(int(request.COOKIES.get(_seen_cookie(request.user), "")), UTC)
    except (ValueError, OverflowError, OSError):
        return oldest
    return max(last_read, oldest)


def _failures(user, since: datetime) -> list[StateChange]:
    """Return the failures since then of objects that still exist, newest first; cancelled objects are left out."""
    changes = StateChange.objects.failures().filter(owner=user.username, at__gt=since, kind__in=list(FAILING))
    rows = list(changes.order_by("-id")[:200])
    ids = {kind: [row.object_id for row in rows if row.kind == kind] for kind in FAILING}
    asked = [
        rows_of.filter(pk__in=ids[kind], state="error").order_by().values_list(Value(kind), "pk")
        for kind, rows_of in FAILING.items()
        if ids[kind]
    ]
    existing = set(asked[0].union(*asked[1:], all=True)) if asked else set()
    return [row for row in rows if (row.kind, row.object_id) in existing]


@require_GET
def reference(request):
    """Show the REST reference, which is generated from the code's own schema."""
    response = render(request, "reference.html")
    patch_vary_headers(response, ["Cookie"])
    return response


def not_found(request, exception):
    return render(request, "error.html", {"code": 404}, status=404)


def forbidden(request, exception=None, reason=""):
    """Show why a request is refused: a permission is missing, or (`reason`, Django's own) its form is not accepted."""
    context = {"code": 403, "permission": exception is not None, "origin": reason.startswith(OTHER_SITE)}
    return render(request, "error.html", {**context, "cookie": reason == REASON_NO_CSRF_COOKIE}, status=403)


def broken(request):
    """Show the page of an internal error: 503 where a server is unavailable. It needs neither session nor database."""
    away = isinstance(sys.exc_info()[1], Fault | OperationalError | InterfaceError | RedisError)
    response = render(None, "broken.html", {"away": away}, status=503 if away else 500)
    if away:
        response["Retry-After"] = "2"
    return response

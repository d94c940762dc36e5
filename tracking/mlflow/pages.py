"""What a browser finds below /mlflow/: the address that MLflow's clients print leads to the page of the run."""

from __future__ import annotations

import uuid

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from accounts.sharing import access
from jobs.models import Job, Project

COMPATIBLE = "3.17.2"  # the newest of MLflow's releases whose clients the tests run


@require_safe
def landing(request: HttpRequest) -> HttpResponse:
    """Show the page whose script reads `#/experiments/{id}/runs/{run}`, which a server never gets."""
    return render(request, "tracking/mlflow.html")


@login_required
@require_safe
def run(request: HttpRequest, run: str) -> HttpResponse:
    """Redirect to the page of a run that the visitor may read."""
    try:
        key = uuid.UUID(run)
    except ValueError:
        raise Http404 from None
    rows = access.readable(request, Job.objects.filter(run_id=key).select_related("user"))
    if not rows:
        raise Http404
    return redirect(access.address(rows[0], "job"))


@login_required
@require_safe
def experiment(request: HttpRequest, experiment: int) -> HttpResponse:
    """Redirect to the page of a project that the visitor may read; 0 is the visitor's default project."""
    key = {"pk": experiment} if experiment else {"user": request.user, "default": True}
    rows = access.readable(request, Project.objects.filter(**key).select_related("user"))
    if not rows:
        if not experiment:
            return redirect(reverse("projects"))
        raise Http404
    return redirect(access.address(rows[0], "project"))


@require_safe
def health(_request: HttpRequest) -> HttpResponse:
    return HttpResponse("OK", content_type="text/plain")


@require_safe
def version(_request: HttpRequest) -> HttpResponse:
    """Return the newest release of MLflow that this server is compatible with."""
    return HttpResponse(COMPATIBLE, content_type="text/plain")


@require_safe
def server_info(_request: HttpRequest) -> HttpResponse:
    return JsonResponse({"store_type": "ml-platform", "workspaces_enabled": True})

"""Exports in the browser: the list with its form, and the button that cancels one."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from kernel.pages import Listing, attempt, page_of, problems_of, read_form

from ..buckets import rows as buckets
from ..models import Bucket, Export, ExportState
from . import lifecycle
from .serializers import ExportIn

BUCKETS_SHOWN = 10
FIELDS = ("src", "target")
LISTING = Listing(
    heading=gettext_lazy("Exports"),
    about=gettext_lazy("Datasets, models and outputs of jobs that are sent to a bucket."),
    new=gettext_lazy("New export"),
    none=gettext_lazy("No exports yet"),
    hint=gettext_lazy("Export a dataset, a model or the output of a finished job above, or from its page."),
    no_match=gettext_lazy("No export matches"),
    icon="up",
)


@login_required
@require_http_methods(["GET", "POST"])
def exports(request):
    """List the user's exports; a POST creates one."""
    problems = problems_of(lambda: _create(request) if request.method == "POST" else None, FIELDS)
    if request.method == "POST" and not problems:
        return redirect("exports")
    mine = Export.objects.filter(user=request.user).order_by("-pk")
    state = request.GET.get("state", "")
    page = page_of(request, mine.filter(state=state) if state in ExportState.values else mine)
    writable = buckets.usable(request.user).filter(access=Bucket.Access.WRITE)
    context = {
        "listing": LISTING,
        "page": page,
        "states": ExportState.choices,
        "state": state,
        "any": bool(page.object_list) or mine.exists(),
        "problems": problems,
        "open": bool(problems or "src" in request.GET),
        "form": request.POST if request.method == "POST" else {"src": request.GET.get("src", "")},
        "buckets": list(writable.values_list("name", flat=True)[:BUCKETS_SHOWN]),
        "live": lifecycle.LIVE,
    }
    return render(request, "datasets/exports.html", context, status=problems.status if problems else 200)


def _create(request) -> Export:
    return lifecycle.create_export(user=request.user, by=request.user.username, **read_form(request, ExportIn))


@login_required
@require_GET
def export(request, pk):
    """Show an export in the list: what notices link to."""
    return redirect(f"{reverse('exports')}#export-{pk}")


@login_required
@require_POST
def cancel(request, pk):
    problem = attempt(lambda: lifecycle.cancel(user=request.user, number=pk, by=request.user.username))
    if problem:
        messages.error(request, problem)
    return redirect("exports")

"""The page Connect: how a program elsewhere reports to the platform, and whether its runs arrive."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from accounts import lifecycle as accounts
from jobs.models import Job, Origin
from kernel.pages import address

from .snippets import LIBRARIES, PLACES, text

SHOWN = 5


@login_required
@never_cache
@require_GET
def connect(request: HttpRequest) -> HttpResponse:
    """Show the snippets with the visitor's token, and the newest runs that clients have reported."""
    gateway = address(request)
    libraries = [
        {
            "key": library.key,
            "label": library.label,
            "texts": [(place, text(library, place.key, gateway)) for place in PLACES],
        }
        for library in LIBRARIES
    ]
    # Of runs in runs the outer one is enough; a job's are on the job's page.
    runs = Job.kept.filter(user=request.user, origin=Origin.CLIENT, parent=None).select_related("project")
    context = {
        "libraries": libraries,
        "places": PLACES,
        "library": _chosen(request, "for", LIBRARIES),
        "place": _chosen(request, "in", PLACES),
        "gateway": gateway,
        "token": accounts.token_of(request.user),
        "runs": list(runs.order_by("-pk")[:SHOWN]),
    }
    return render(request, "tracking/connect.html", context)


def _chosen(request: HttpRequest, field: str, choices: tuple) -> str:
    """Return the key that the address asks for, by default the first."""
    keys = [choice.key for choice in choices]
    asked = request.GET.get(field)
    return asked if asked in keys else keys[0]

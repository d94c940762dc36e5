"""The page of an application's shadow: what was compared, pairs of answers that differ, and the forms."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from kernel.pages import attempt, problems_of, read_form, why_not
from kernel.registering import lines_of
from models_app.models import Model
from models_app.models import State as ModelState

from .. import rollouts
from ..models import Application, Rollout, Shadow, State
from ..records.pages import own
from . import rows, verbs
from .serializers import ShadowIn, latency

HOURS_SHOWN, PAIRS_SHOWN, MODELS_SHOWN = 24, 20, 200
FIRST = {"percent": 100, "minutes": 0, "tolerance": "1e-6"}


@login_required
@require_GET
def shadow(request, name):
    """Show the present shadow of an application, or the last, and the form for the next one."""
    return _page(request, own(request, name))


def _page(request, app: Application, problems=None, form=None):
    found = rows.latest(app)
    rollout = Rollout.objects.filter(app=app).select_related("model", "shadow").first()
    going_on = found is not None and rollout is not None and rollout.shadow_id == found.pk and found.ended is None
    ready = Model.kept.filter(user=app.user, state=ModelState.READY).order_by("-pk")
    context = {
        "app": app,
        "shadow": found,
        "rollout": rollout,
        "going_on": going_on,
        "up": going_on and rollout.phase == Rollout.Phase.SHADOW,
        **(shown(found) if found else {}),
        "pairs": list(found.pairs.order_by("-pk")[:PAIRS_SHOWN]) if found else [],
        "hours": [{"hour": hour, **counts} for hour, counts in sorted(found.hours.items())[-HOURS_SHOWN:]][::-1]
        if found else [],
        "models": list(ready.values_list("name", "title")[:MODELS_SHOWN]),
        "unstartable": why_not(lambda: rollouts.require_movable(app, restarts=True)) if app.state == State.READY
        else _("The application is not up."),
        "settings": form or FIRST,
        "problems": problems,
    }  # fmt: skip
    return render(request, "apps/shadow.html", context, status=problems.status if problems else 200)


def shown(found: Shadow) -> dict:
    """Return the counts of a shadow with their words, and the latencies of both."""
    counts = [(Shadow._meta.get_field(field).verbose_name, getattr(found, field)) for field in Shadow.COUNTS]
    return {"counts": counts, "base": latency(found.base_ms), "other": latency(found.shadow_ms)}


@login_required
@require_POST
def change(request, name):
    """Do what the button `do` says: start, promote or end."""
    app = own(request, name)
    key = {"user": app.user, "name": app.name, "by": request.user.username}
    if request.POST.get("do") == "start":
        given = {field: request.POST.get(field, "").strip() for field in ("model_name", "ignore", *FIRST)}

        def start() -> None:
            values = read_form(request, ShadowIn, percent=int, minutes=int, tolerance=float, ignore=lines_of)
            verbs.begin(**values, **key)

        problems = problems_of(start, ShadowIn().fields)
        if problems:
            return _page(request, app, problems, given)
        return redirect("application_shadow", name=app.name)
    verb = {"promote": verbs.promote, "end": verbs.end}.get(request.POST.get("do", ""))
    problem = attempt(lambda: verb(**key)) if verb else _("Choose what to do.")
    if problem:
        messages.error(request, problem)
        return redirect("application_shadow", name=app.name)
    return redirect("application", name=app.name)

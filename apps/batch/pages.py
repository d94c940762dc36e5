"""The form that scores a dataset, with the model of an application or a model of the registry's."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from datasets.models import Dataset
from datasets.models import State as DatasetState
from jobs.models import Job
from kernel.pages import free_name, problems_of, read_form
from models_app.models import Model
from resources import products

from ..models import Application
from . import scoring
from .serializers import ScoringIn

DATASETS_SHOWN = 200


@login_required
@require_http_methods(["GET", "POST"])
def of_application(request, name):
    """Score a dataset with the model of an application."""
    rows = Application.objects.filter(user=request.user, name=name, trashed=None)
    app = rows.select_related("model__user", "model__environment_version").first()
    if app is None:
        raise Http404
    first = {"cpu": f"{app.cpu:g}", "gpu": app.gpu, "gpu_type": app.gpu_type, "ram": app.ram}
    return _page(request, app, scoring.of_application(app), first)


@login_required
@require_http_methods(["GET", "POST"])
def of_model(request, name):
    """Score a dataset with a model."""
    model = Model.objects.filter(user=request.user, name=name, trashed=None).select_related("user").first()
    if model is None:
        raise Http404
    return _page(request, model, {"model": model}, {"cpu": "1", "gpu": 0, "ram": 1024})


def _page(request, target: Application | Model, of_target: dict, first: dict):
    problems, made = None, []
    if request.method == "POST":

        def create() -> None:
            values = read_form(request, ScoringIn, gpu=int, cpu=float, ram=int, retries=int)
            made.append(scoring.create(user=request.user, by=request.user.username, **{**of_target, **values}))

        problems = problems_of(create, ScoringIn().fields)
        if not problems:
            return redirect("job", made[0].name)
    named = Dataset.objects.filter(user=request.user)
    output = free_name(named, f"{target.name}scores")
    ready = named.filter(state=DatasetState.READY, trashed=None).order_by("-pk")
    context = {
        "target": target,
        "kind": "application" if isinstance(target, Application) else "model",
        "model": of_target["model"],
        "datasets": list(ready.values_list("name", flat=True)[:DATASETS_SHOWN]),
        "form": {**first, "output": output, "dataset": request.GET.get("dataset", ""), **request.POST.dict()},
        "gpu_types": products.offered(),
        "problems": problems,
        "jobs": Job.objects.filter(scoring__model=of_target["model"]).select_related("scoring").order_by("-pk")[:10],
    }
    return render(request, "apps/score.html", context, status=problems.status if problems else 200)

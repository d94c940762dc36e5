"""The page of all runs, with the form that submits a job."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.shortcuts import render
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from jobs import submit_form
from jobs.models import Job
from jobs.queue import waiting
from jobs.serializers import JobIn
from kernel.pages import Listing, create_once, form_mark

from . import pages

LISTING = Listing(
    heading=gettext_lazy("Jobs"),
    about=gettext_lazy("A job runs one of your scripts until it ends, and reports its metrics."),
    new=gettext_lazy("New job"),
    none=gettext_lazy("No jobs yet"),
    hint=gettext_lazy("Fill in the form above; the defaults are fine for a first run."),
    icon="jobs",
)


@login_required
@require_http_methods(["GET", "POST"])
def jobs(request):
    problems, made = create_once(request, Job, submit_form.submit, JobIn().fields)
    if made is not None:
        return made
    table = pages.shown(request, request.user)
    waiting.attach([row.job for row in table["page"].rows] if table["page"] else [])
    form = request.POST.dict() if request.method == "POST" else submit_form.first_values(request)
    datasets = request.POST.getlist("datasets") if request.method == "POST" else form.get("datasets", [])
    any_job = any(count for _word, _label, count in table["counts"])
    any_job = any_job or Job.objects.filter(user=request.user).exists()
    context = {
        "listing": LISTING,
        "any": any_job,
        "problems": problems,
        "form": form,
        "chosen": datasets,
        "open": bool(problems or not any_job or {"new", "from", "entry", "dataset"} & set(request.GET)),
        "more_open": bool(submit_form.MORE_FIELDS & set(problems.fields)) or submit_form.is_unusual(form),
        "mark": form_mark(request),
        **submit_form.choices(request.user),
        **table,
    }
    return render(request, "tracking/jobs.html", context, status=problems.status if problems else 200)

"""What the forms of sweeps, schedules and pipelines show at first, and what they post."""

from __future__ import annotations

from collections.abc import Callable

from django.db.models import QuerySet
from django.http import HttpRequest

from jobs.models import Job
from kernel.pages import free_name, named


def shown(request: HttpRequest, first: Callable[[HttpRequest], dict]) -> dict:
    """Return what the template shows in the form: what was posted, else the first values."""
    posted = {**request.POST.dict(), "datasets": request.POST.getlist("datasets")}
    form = posted if request.method == "POST" else first(request)
    return {"form": form, "chosen": form.get("datasets", []), "text": "yaml" in form}


def of_job(request: HttpRequest, mine: QuerySet) -> dict:
    """Return what `?from=job` names: the job's script, resources and datasets, and a name that is free in `mine`."""
    job = named(request, Job.objects.filter(user=request.user).select_related("project"), "from")
    if job is None:
        return {}
    form = {name: getattr(job, name) for name in ("entry", "gpu", "ram", "datasets", "title", "image", "gpu_type")}
    project = job.project.name if job.project else ""
    return form | {"cpu": f"{job.cpu:g}", "name": free_name(mine, job.name), "project": project}

"""Parts of a page that belong to an app above its own: `{% load offers %}{% model_offer job %}` on a job's page."""

from __future__ import annotations

from django import template
from django.db.models import Q

from jobs.models import Job, State
from models_app import sources
from models_app.models import Model
from models_app.pages import proposed_name

register = template.Library()

MAX = 6


@register.inclusion_tag("models_app/_offer.html")
def model_offer(job: Job) -> dict:
    """Return the form that creates a model from a finished job's output, prefilled, and the models created from it."""
    if job.state != State.FINISHED:
        return {}
    candidates = sources.of_job(job.user.username, job.name)[:MAX]
    from_job = Q(src=f"jobs/{job.name}") | Q(src__startswith=f"jobs/{job.name}/")
    return {
        "src": candidates[0] if candidates else "",
        "others": candidates[1:],
        "name": proposed_name(job.user, candidates[0]) if candidates else "",
        "models": list(Model.objects.filter(from_job, user=job.user).order_by("-pk")[:MAX]),
    }

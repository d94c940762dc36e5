"""What a page offers of an app above its own: `{% load offers %}{% model_offer job %}` on the page of a job."""

from __future__ import annotations

from django import template
from django.db.models import Q

from jobs.models import Job, State
from models_app import sources
from models_app.models import Model
from models_app.pages import proposed_name

register = template.Library()

MOST = 6


@register.inclusion_tag("models_app/_offer.html")
def model_offer(job: Job) -> dict:
    """To make a model of a finished job's output, with its name and source filled in; and those made of it before."""
    if job.state != State.FINISHED:
        return {}
    found = sources.of_job(job.user.username, job.name)[:MOST]
    of_it = Q(src=f"jobs/{job.name}") | Q(src__startswith=f"jobs/{job.name}/")
    return {
        "src": found[0] if found else "",
        "others": found[1:],
        "name": proposed_name(job.user, found[0]) if found else "",
        "made": list(Model.objects.filter(of_it, user=job.user).order_by("-pk")[:MOST]),
    }

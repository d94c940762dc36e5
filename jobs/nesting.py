"""Runs inside runs: those that name another as their parent, as MLflow's clients do."""

from __future__ import annotations

import re

from django.db.models import QuerySet

from .models import Job
from .models.nesting import NESTED, PARENT, PARENT_ID


def nested_in(job: Job) -> QuerySet[Job]:
    """Return the runs of the same user that name this one as their parent."""
    return Job.objects.annotate(outer=PARENT_ID).filter(NESTED, user=job.user_id, outer=job.run_id.hex)


def parents_of(job: Job) -> QuerySet[Job]:
    """Return the run of the same user that this one names as its parent; none where there is no such run."""
    named = job.system_tags.get(PARENT, "")
    return Job.objects.filter(user=job.user_id, run_id=named if re.fullmatch("[0-9a-f]{32}", named) else None)

"""Runs nested in others: as MLflow has it, by a tag of the inner one, which may be set before the outer run exists."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Func, Q, Value

PARENT = "mlflow.parentRunId"
PARENT_ID = Func(
    F("system_tags"), Value(PARENT), arg_joiner=" ->> ", output_field=models.TextField(), template="(%(expressions)s)"
)  # the order of the arguments is that of the migration: Django compares them in order
NESTED = Q(system_tags__has_key=PARENT)
INDEX = models.Index(PARENT_ID, name="job_parent_tag", condition=NESTED)

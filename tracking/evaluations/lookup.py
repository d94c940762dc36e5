"""Which evaluation datasets a call or page may be about: the user's own, and those in projects that others share.

A job's token sees those of the job's project. A dataset that is missing or another user's gets one answer.
"""

from __future__ import annotations

from django.db.models import QuerySet

from accounts.sharing import access
from jobs.models import EvaluationDataset, Job, Project
from kernel import sanitize
from mlflow_protocol.protocol import Call, MlflowError
from tracking.mlflow.lookup import read_only

SHARED = 100  # projects of a dataset that are looked at


def own(call: Call) -> QuerySet[EvaluationDataset]:
    """Return the datasets that a call may change."""
    rows = EvaluationDataset.objects.filter(user=call.caller.user_id)
    if call.caller.job_id:
        rows = rows.filter(projects__in=Job.objects.filter(pk=call.caller.job_id).values("project"))
    return rows


def find(call: Call, key: str, *, write: bool = False) -> EvaluationDataset:
    """Return the dataset with that id. Raises MlflowError."""
    key = sanitize.text(key)[:100]
    row = own(call).filter(key=key).select_related("user").first()
    if row is not None:
        return row
    row = None if call.caller.job_id else shared(access.Visitor(call.user), key, call.caller.user_id)
    if row is None:
        raise MlflowError("RESOURCE_DOES_NOT_EXIST", f"Evaluation dataset with id '{key}' not found")
    if write:
        raise read_only("evaluation dataset", key)
    return row


def shared(visitor: access.Visitor, key: str, user_id: int | None) -> EvaluationDataset | None:
    """Return the dataset of another user that the visitor may read, since one of its projects is shared."""
    row = EvaluationDataset.objects.filter(key=key).exclude(user=user_id).select_related("user").first()
    if row is None:
        return None
    return row if granted(visitor, row) else None


def granted(visitor: access.Visitor, row: EvaluationDataset) -> list[Project]:
    """Return the projects of a dataset of another user that the visitor may read."""
    projects = list(row.projects.filter(trashed=None).select_related("user").order_by("pk")[:SHARED])
    readings = access.readings(visitor, projects) if projects else {}
    return [project for project in projects if project.pk in readings]

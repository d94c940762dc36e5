"""Which traces a call or page may be about: the user's own, and those of projects that others share with the user.

A job's token sees the traces of the job's project. A trace that is missing, another user's or in the trash of another
user gets one answer.
"""

from __future__ import annotations

import re

from django.db.models import QuerySet

from accounts.sharing import access
from jobs.models import Job, Trace
from mlflow_protocol.protocol import Call, MlflowError, missing
from tracking.mlflow.lookup import read_only

from .recording import PREFIX, TRACE_ID

OTHER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
SAME_ID = 10  # traces of one id, of several users, that are looked at


def key_of(text: str) -> str | None:
    """Return the key of a trace by its id, with MLflow's prefix or without; None for a text that is no id."""
    plain = text.removeprefix(PREFIX).lower()
    if TRACE_ID.fullmatch(plain):
        return plain
    return text if OTHER_ID.fullmatch(text) else None


def id_of(key: str) -> str:
    """Return the id of a trace as MLflow has it."""
    return PREFIX + key if TRACE_ID.fullmatch(key) else key


def own(call: Call) -> QuerySet:
    """Return the traces that a call may change."""
    rows = Trace.objects.filter(user=call.caller.user_id)
    if call.caller.job_id:
        rows = rows.filter(project__in=Job.objects.filter(pk=call.caller.job_id).values("project"))
    return rows


def trace(call: Call, text: str, *, write: bool = False) -> Trace:
    """Return the trace with that id. Raises MlflowError."""
    key = key_of(text)
    row = own(call).filter(key=key).select_related("project", "user").first() if key else None
    if row is not None:
        return row
    row = None if key is None or call.caller.job_id else shared(access.Visitor(call.user), key, call.caller.user_id)
    if row is None:
        raise missing("Trace", text[:100])
    if write:
        raise read_only("trace", text[:100])
    return row


def shared(visitor: access.Visitor, key: str, user_id: int | None) -> Trace | None:
    """Return the trace of another user that the visitor may read, since its project is shared."""
    rows = Trace.objects.filter(key=key, project__trashed=None).exclude(user=user_id)
    candidates = list(rows.select_related("project__user", "user")[:SAME_ID])
    if not candidates:
        return None
    granted = access.readings(visitor, [row.project for row in candidates])
    return next((row for row in candidates if row.project_id in granted), None)


def require_active(trace: Trace) -> None:
    """Raise MlflowError for a trace whose project is in the trash."""
    if trace.project.trashed is not None:
        raise MlflowError("INVALID_PARAMETER_VALUE", f"The experiment {trace.project_id} is deleted")

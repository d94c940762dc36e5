"""The states that pages distinguish, as conditions: a cancelled run is not a failed one (models.Job.shown_state)."""

from __future__ import annotations

from django.db.models import Count, Q, QuerySet
from django.utils.translation import gettext_lazy as _

from jobs.models import SHOWN_ONLY, Job, State

NAMES = ("queued", "starting", "running", "finished", "failed", "cancelled", "pruned", "deleting")
CONDITIONS = {name: Q(display_state=name) for name in NAMES}
REST = {"creating": Q(state=State.CREATING), "error": Q(state=State.ERROR)}  # the contract's words, for filters
WORDS = {
    "queued": State.CREATING.label, "starting": SHOWN_ONLY["starting"], "running": State.RUNNING.label,
    "finished": State.FINISHED.label, "failed": _("failed"), "cancelled": SHOWN_ONLY["cancelled"],
    "pruned": SHOWN_ONLY["pruned"], "deleting": State.DELETING.label,
}  # fmt: skip


def counted(runs: QuerySet) -> dict[str, int]:
    """Return the number of runs in each of these states; states without runs are omitted."""
    return dict(runs.order_by().values_list("display_state").annotate(n=Count("pk")))


def word(job: Job) -> str:
    """Return which of these states a run is in."""
    return {"creating": "queued", "error": "failed"}.get(job.shown_state, job.shown_state)

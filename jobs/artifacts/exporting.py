"""The output of a job that names where it is to go (`output_uri`) is sent there once the job has finished.

That is an export like any other (datasets.exports): it cannot fail the job, and its failure is a notification.
"""

from __future__ import annotations

from django.db.models.signals import post_save

from datasets.buckets import rows as buckets
from datasets.exports import lifecycle as exports
from datasets.models import Export
from jobs.models import Job, State
from kernel.models import StateChange

KIND = "job"  # in the history


def target_of(job: Job) -> str:
    """Return where the output of a job goes: a folder with its name: jobs of a sweep share their `output_uri`."""
    return f"{buckets.spelled(job.output_uri).rstrip('/')}/{job.name}"


def export_of(job: Job) -> Export | None:
    """Return the export of the job's output that its `output_uri` has asked for, None where there is none yet."""
    if not job.output_uri:
        return None
    return Export.objects.filter(user=job.user_id, object_id=job.pk, src=f"jobs/{job.name}").order_by("pk").first()


def _of_change(sender, instance: StateChange, created: bool, **_others) -> None:
    if not created or (instance.kind, instance.transition, instance.target) != (KIND, "finish", State.FINISHED):
        return
    job = Job.objects.select_related("user").filter(pk=instance.object_id).exclude(output_uri="").first()
    if job is not None:
        source = f"jobs/{job.name}"
        exports.add(user=job.user, src=source, object_id=job.pk, target=target_of(job), by=instance.by)


def listen() -> None:
    """Act on each job that finishes, in the transaction of that change."""
    post_save.connect(_of_change, sender=StateChange, dispatch_uid="jobs.exporting")

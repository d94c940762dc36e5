"""Submits a job again with some values changed: the button of a failed job, and `:rerun`."""

from __future__ import annotations

from accounts import throttle
from jobs import lifecycle
from jobs.artifacts import outputs
from jobs.models import Job
from kernel.errors import Refused
from kernel.pages import free_name
from kernel.registering import ALL, Rights

TAKEN_OVER = (
    "entry", "runtime", "gpu", "cpu", "ram", "datasets", "args", "env", "retries", "timeout",
    "priority", "preemptible", "workers", "network", "tags", "group", "requirements", "title",
    "environment", "image", "gpu_type", "output_uri",
)  # fmt: skip


def rerun(job: Job, rights: Rights = ALL, *, by: str, **changes) -> Job:
    """Create a job like this one and return it; its name is derived from this one unless a name is given. It gets as
    much of the registry as this one and the caller's `rights` have, both. Raises as create_job.
    """
    if job.is_client:
        raise Refused("an MLflow client reports this run; the platform cannot run it again", field="name")
    values = {name: getattr(job, name) for name in TAKEN_OVER}
    kept = rights.narrowed(job.registry, job.registry_models)
    values["registry"], values["registry_models"] = str(kept.registry), list(kept.models)
    values["inputs"] = job.job_inputs
    values["tenant"] = job.tenant.name
    values["project"] = job.project.name if job.project_id else None
    if job.snapshot_id:
        values["code_from"] = job.name
    if changes.get("environment"):
        values["requirements"] = ""
    elif "requirements" in changes:
        values["environment"] = ""
    values |= changes
    if "name" not in values:
        values["name"] = free_name(Job.objects.filter(user=job.user), job.name)
        if not values["name"]:
            raise Refused("no free name was found; enter one", field="name")
    throttle.count_submission(job.user.username)
    outputs.require(job.user_id)
    return lifecycle.create_job(user=job.user, by=by, **values)

"""The types of GPUs that jobs hold, for resources.products. Used by lifecycle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from django.db.models import F, Sum

from jobs.models import Job
from resources import products


def held() -> Iterable[tuple[str, int]]:
    """Return the GPUs that admitted jobs have, by the types that they have named."""
    rows = Job.objects.filter(reserved=True).exclude(gpu_type="").values("gpu_type").order_by()
    return rows.annotate(gpus=Sum(F("gpu") * F("workers"))).values_list("gpu_type", "gpus")


def require(job: Job, ahead: Mapping[str, int] | None = None) -> None:
    """Raise NoneLeft unless GPUs of the type of a job that is being admitted are left, beside those that are kept for
    jobs `ahead` of it.
    """
    products.require(job.gpu_type, job.gpu * job.workers, ahead)

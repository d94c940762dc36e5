"""The types of GPUs that jobs hold, for resources.products. Used by lifecycle and line."""

from __future__ import annotations

from collections.abc import Mapping

from django.db.models import F, Sum

from jobs.models import Job
from resources import products


def stock(*, lock: bool = False) -> products.Stock:
    """Return the GPUs by product, with those that admitted jobs have by type. `lock`: until the transaction ends."""
    rows = Job.objects.filter(reserved=True).exclude(gpu_type="").values("gpu_type").order_by()
    held = rows.annotate(gpus=Sum(F("gpu") * F("workers")))
    if lock:
        products.lock()
    return products.stock(dict(held.values_list("gpu_type", "gpus")))


def require(job: Job, ahead: Mapping[str, int] | None = None) -> None:
    """Raise NoneLeft unless GPUs of the type of a job that is being admitted are left, beside those that are kept for
    jobs `ahead` of it. Locks the rows of the products where that matters.
    """
    if not job.gpu or not (job.gpu_type or ahead):
        return
    refusal = stock(lock=True).refusal(job.gpu_type, job.gpu * job.workers, ahead)
    if refusal is not None:
        raise refusal
